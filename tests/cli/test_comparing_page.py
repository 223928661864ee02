"""What the page about comparisons shows is what its commands print."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.report.run_folders import write_run

PAGE = Path(__file__).parents[2] / "docs/comparing.md"
CLIENTS = {
    "local": [0.8125, 0.6875, 0.5, 0.875],
    "fedavg": [0.375, 0.625, 0.3125, 0.5],
    "fedper": [0.9375, 0.5625, 0.5625, 0.9375],
}
"""In sixteenths, whose means have few digits."""
SHIFTS = (-0.03125, 0.03125)
"""By seed."""


@pytest.fixture
def commands(plures):
    """The page's runs in the folder where it says they are."""
    for method, values in CLIENTS.items():
        for seed, shift in enumerate(SHIFTS):
            own = {"personal/test": [value + shift * (client % 3) for client, value in enumerate(values)]}
            write_run(Path("runs") / f"{method}-{seed}", own, method=method, seed=seed)
    return plures


@pytest.mark.parametrize("language", ["text", "markdown", "csv", "latex"])
def test_every_format_is_shown_as_it_is_printed(commands, language):
    command, shown = examples()[language]
    said = commands(*shlex.split(command.replace("runs/fedper-*", "runs/fedper-0 runs/fedper-1"))[1:])

    assert said.code == 0
    assert shown in said.out.replace("\r\n", "\n")


def examples() -> dict[str, tuple[str, str]]:
    """By language: the command that stands before a block, and the block."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^`(plures compare [^`]*)`:\n\n```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {language: (command, shown) for command, language, shown in found}


def test_the_columns_of_the_csv_are_all_explained(commands):
    (heading,) = [line for line in examples()["csv"][1].splitlines() if line.startswith("label,")]
    text = PAGE.read_text(encoding="utf-8")

    assert all(f"`{name}`" in text for name in heading.split(","))


def test_the_keys_of_the_json_that_are_named_are_there(commands):
    found = json.loads(commands("compare", "runs/fedper-0", "--json").out)

    assert {"best", "reference", "labels", "beside"} <= found.keys()
    assert set(found["beside"]) == {"added", "missing", "words", "command"}
