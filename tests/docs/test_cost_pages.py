"""The pages on capacities and costs say what is: snippets run, and tables name all units, forms and methods."""

from __future__ import annotations

import re
import tomllib

import pytest

from plures import make_experiment, run, run_experiment
from plures.data import digits_federation
from plures.evaluate.masks import used_masks
from plures.methods import METHODS
from plures.models import as_networks, mlp
from plures.recipes.capacities import RULES, UNITS
from plures.recipes.running import make_program
from plures.report.records import VISIT_COLUMNS, read_visits
from tests.docs.test_pages import ROOT, blocks

CAPACITY = (ROOT / "docs/capacity.md").read_text(encoding="utf-8")
COSTS = (ROOT / "docs/costs.md").read_text(encoding="utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its own."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_snippet_of_the_capacity_page_runs_and_shows_densities(capsys):
    (shown,) = blocks("docs/capacity.md", "python")

    exec(compile(shown, "capacity.md", "exec"), {})

    densities = re.findall(r"^\d density (\d\.\d{3})$", capsys.readouterr().out, re.MULTILINE)
    assert len(densities) == 3
    assert "1.000" in densities
    assert len(set(densities)) == 2


def test_the_file_of_the_capacity_page_runs():
    (shown,) = blocks("docs/capacity.md", "toml")

    result = run_experiment(make_experiment(tomllib.loads(shown) | {"rounds": 1}))

    capacities = [result.program.capacity(client) for client in range(20)]
    assert sorted(capacities) == [0.5] * 18 + [1.0] * 2


def test_the_snippet_of_the_cost_page_runs(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (shown,) = blocks("docs/costs.md", "python")

    exec(compile(shown, "costs.md", "exec"), {})

    assert re.fullmatch(r"\d+\.\d GB, \d\.\d+e\+\d\d FLOPs, \d+ MB\n", capsys.readouterr().out)


def test_the_capacity_page_names_every_unit_and_every_form():
    assert [row[0].strip("`") for row in rows(CAPACITY, "Units")] == list(UNITS)
    named = [found[1] for row in rows(CAPACITY, "Forms") if (found := re.match(r"`\{(\w+) = ", row[0]))]
    assert named == list(RULES)


def test_the_forms_of_the_capacity_page_are_taken():
    for form in (row[0].strip("`") for row in rows(CAPACITY, "Forms")):
        value = tomllib.loads(f"value = {form}")["value"]
        table = {
            "method": "fedspa",
            "rounds": 1,
            "data": {"clients": 3, "partition": "iid"},
            "capacity": {"bytes": value},
        }
        assert run_experiment(make_experiment(table)).status == "finished"


def test_the_capacity_page_names_every_method_that_has_capacities_with_its_unit():
    told = {re.sub(r"\[?`(\w+)`.*", r"\1", row[0]): row[1] for row in rows(CAPACITY, "Methods")}
    own = {name: info for name, info in METHODS.items() if info.make.__module__.startswith("plures.methods.")}

    assert told == {name: rule.unit for name, info in own.items() if (rule := info.make().capacity) is not None}


def test_the_figures_of_the_capacity_page_for_bytes_are_those_of_a_run(tmp_path):
    told = re.search(
        r"`bytes = (\d+)` gets a density of ([\d.]+)\s.*? of ([\d,]+) parameters.*? ([\d,]+) bytes", CAPACITY, re.S
    )
    limit, density, size, largest = (float(number.replace(",", "")) for number in told.groups())
    federation = digits_federation(num_clients=5)

    result = run("fedspa", federation, mlp, rounds=2, capacity={"bytes": limit}, out=tmp_path / "run")

    assert round(result.program.capacity(0), 3) == density
    assert sum(value.numel() for value in result.server.shared.values()) == size
    visits = list(read_visits(tmp_path / "run"))
    assert max(int(row[way]) for row in visits for way in ("bytes_up", "bytes_down")) == largest <= limit


def test_the_cost_page_names_every_method_whose_masks_are_compared():
    table = COSTS.partition("| method | what is compared |")[2].partition("\n\n")[0]
    federation, found = digits_federation(num_clients=5), set[str]()
    for name, info in METHODS.items():
        if info.make.__module__.startswith("plures.methods.") and name != "fedbn":  # it wants norms, and has no masks
            program = make_program(info.make(), as_networks(mlp()), federation, seed=0)
            found |= {name} if used_masks(program.initial_shared() | program.initial_state(0)) else set()

    assert set(re.findall(r"`(\w+)`", table)) == found


@pytest.mark.parametrize(
    "name",
    [
        "bytes_down",
        "values_down",
        "dense_flops",
        "flops",
        "search_flops",
        "peak_bytes",
        "seconds",
        "refresh_seconds",
        "phase_seconds",
    ],
)
def test_the_cost_page_explains_what_a_visit_is_recorded_with(name):
    assert name in VISIT_COLUMNS
    assert f"`{name}`" in COSTS
