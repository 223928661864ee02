"""Each command: what it prints, where, how wide, and what it leaves behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from plures import __version__
from plures.methods import METHODS
from tests.cli.helpers import widest

COMMANDS = ("run", "demo", "methods", "new-method", "split", "tune")
ESCAPE = "\x1b"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_teaches_where_to_start(plures, flag):
    said = plures(flag)

    assert (said.code, said.err) == (0, "")
    for words in ("Start here:", "plures demo", "plures methods", "plures run EXPERIMENT.toml", 'method = "pflego"'):
        assert words in said.out
    for command in COMMANDS:
        assert re.search(rf"^│ {command} +\S", said.out, re.MULTILINE)
    assert widest(said.out) <= 80


def test_a_command_without_arguments_shows_the_help(plures):
    said = plures()

    assert "Start here:" in said.out + said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_of_80_columns(plures, command):
    said = plures(command, "--help")

    assert (said.code, said.err) == (0, "")
    assert f"Usage: plures {command} [OPTIONS]" in said.out
    assert widest(said.out) <= 80


@pytest.mark.parametrize(("command", "words"), [("run", "A TOML file"), ("split", "A model by name")])
def test_the_help_of_a_command_says_what_its_argument_is(plures, command, words):
    said = plures(command, "--help")

    assert words in said.out
    assert "\\[" not in said.out


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", ("--set", "--out", "--json")),
        ("demo", ("--out", "--rounds", "--seed", "--json")),
        ("methods", ("--json",)),
        ("split", ("--personal", "--buffers", "--set")),
    ],
)
def test_the_help_of_a_command_names_its_options(plures, command, options):
    said = plures(command, "--help")

    assert all(option in said.out for option in options)


def test_the_version_is_that_of_the_package(plures):
    assert plures("--version").out == f"plures {__version__}\n"


@pytest.mark.parametrize("args", [("runn",), ("run",), ("methods", "--jsn"), ("demo", "--rounds", "0")])
def test_a_wrong_call_is_told_on_stderr_with_code_2(plures, args):
    said = plures(*args)

    assert (said.code, said.out) == (2, "")
    assert "Error" in said.err or "Usage" in said.err
    assert "Traceback" not in said.err


def test_methods_lists_every_method_within_80_columns(plures):
    said = plures("methods")

    assert (said.code, said.err) == (0, "")
    names = [line.split()[0] for line in said.out.splitlines() if line and not line.startswith(" ")]
    assert names == ["name", *METHODS]
    assert widest(said.out) <= 80
    assert ESCAPE not in said.out


def test_methods_as_json_says_of_each_its_paper_what_is_shared_personal_and_sent(plures):
    said = plures("methods", "--json")

    found = json.loads(said.out)
    assert [info["name"] for info in found] == list(METHODS)
    for info in found:
        assert info.keys() >= {"name", "title", "paper", "shared", "personal", "sent", "file"}
        assert all(isinstance(value, str) and value for value in info.values())
        assert (Path(__file__).parents[2] / info["file"]).is_file()


def test_split_shows_every_parameter_its_part_and_its_size(plures):
    said = plures("split", "mlp")

    assert (said.code, said.err) == (0, "")
    rows = [line.split() for line in said.out.splitlines()]
    assert rows == [
        ["parameter", "part", "shape", "values"],
        ["body.1.weight", "shared", "64x64", "4,096"],
        ["body.1.bias", "shared", "64", "64"],
        ["head.weight", "personal", "10x64", "640"],
        ["head.bias", "personal", "10", "10"],
        ["total", "shared", "86.5%", "4,160"],  # 4,160 of 4,810
        ["total", "personal", "13.5%", "650"],
    ]
    assert widest(said.out) <= 80


def parts_of(out: str) -> dict[str, str]:
    rows = [line.split() for line in out.splitlines()[1:]]
    return {row[0]: row[1] for row in rows if row[0] != "total"}


@pytest.mark.parametrize(
    ("args", "personal"),
    [
        (("--personal", "body.*"), {"body.1.weight", "body.1.bias"}),
        (("--personal", "*.bias"), {"body.1.bias", "head.bias"}),
        (("--personal", "first_layer"), {"body.1.weight", "body.1.bias"}),
        (("--personal", "head.bias", "--personal", "*.1.weight"), {"head.bias", "body.1.weight"}),
    ],
)
def test_split_takes_patterns_and_roles(plures, args, personal):
    parts = parts_of(plures("split", "mlp", *args).out)

    assert {name for name, part in parts.items() if part == "personal"} == personal


def test_split_takes_options_of_the_model_and_a_policy_for_statistics(plures):
    said = plures("split", "mlp", "--set", "hidden=[8, 6]", "--set", "batch_norm=true", "--buffers", "personal")

    parts = parts_of(said.out)
    assert parts["body.2.running_mean"] == "buffers"
    assert parts["body.4.weight"] == "shared"
    assert "8x64" in said.out
    assert "6x8" in said.out
    assert widest(said.out) <= 80


def test_split_shows_a_model_of_the_users_own_folder(plures):
    Path("my_networks.py").write_text(
        "from torch import nn\n\ndef make(width=3):\n"
        "    return nn.Sequential(nn.Linear(2, width), nn.Linear(width, 2))\n",
        encoding="utf-8",
    )

    said = plures("split", "my_networks:make", "--set", "width=5")

    assert parts_of(said.out) == {
        "0.weight": "shared",
        "0.bias": "shared",
        "1.weight": "personal",
        "1.bias": "personal",
    }
    assert "5x2" in said.out


def test_run_prints_a_table_and_writes_a_folder(plures, experiment):
    said = plures("run", experiment, "--set", "rounds=1", "--set", "method_options.lr=0.2", "--out", "results")

    assert said.code == 0
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[lines.index(["global", "=", "personal/test"]) + 1][0] == "accuracy"
    assert "best on validation: round 1, global/test/accuracy" in said.out
    assert said.out.endswith("Results: results\n")
    assert widest(said.out) <= 80
    result = json.loads(Path("results/result.json").read_text(encoding="utf-8"))
    assert (result["method"], result["rounds"], result["clients"]) == ("fedavg", 1, 10)
    assert "lr = 0.2" in Path("results/experiment.toml").read_text(encoding="utf-8")


def test_run_shows_its_progress_as_plain_lines_on_stderr(plures, experiment):
    said = plures("run", experiment, "--set", "rounds=3", "--set", "evaluation.every=1", "--out", "results")

    lines = said.err.splitlines()
    assert lines[0] == "fedavg: 3 rounds, 10 clients"
    assert [line.split("  ")[0] for line in lines[1:]] == ["fedavg 1/3", "fedavg 2/3", "fedavg 3/3"]
    assert all(re.search(r"global \d+\.\d%  \d+\.\d [kM]B  \d+ s, \d+ s left$", line) for line in lines[1:])
    assert ESCAPE not in said.err + said.out
    assert "\r" not in said.err + said.out
    assert widest(said.err) <= 80


def test_json_of_a_run_is_all_there_is_on_stdout(plures, experiment):
    said = plures("run", experiment, "--json", "--out", "results")

    assert json.loads(said.out) == json.loads(Path("results/result.json").read_text(encoding="utf-8"))
    assert said.err.startswith("fedavg: 2 rounds")


def test_without_a_folder_run_makes_one_with_the_date_in_its_name(plures, experiment):
    said = plures("run", experiment, "--set", "rounds=1")

    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"fedavg-\d{8}-\d{6}", folder.name)
    assert f"Results: {Path('runs') / folder.name}" in said.out
    assert (folder / "result.json").is_file()


def test_the_folder_may_stand_in_the_file(plures, experiment):
    experiment.write_text('out = "from_file"\n' + experiment.read_text(encoding="utf-8"), encoding="utf-8")

    plures("run", experiment, "--set", "rounds=1")
    plures("run", experiment, "--set", "rounds=1", "--out", "from_call")

    assert sorted(path.name for path in Path.cwd().iterdir()) == ["from_call", "from_file"]


def test_a_method_alone_in_a_file_is_enough(plures, tmp_path):
    (tmp_path / "short.toml").write_text('method = "pflego"', encoding="utf-8")

    said = plures("run", tmp_path / "short.toml", "--set", "rounds=1", "--json", "--out", "results")

    result = json.loads(said.out)
    assert (result["method"], result["clients"], result["status"]) == ("pflego", 20, "finished")


@pytest.mark.parametrize("splits", ['["validation", "test"]', '["train", "validation", "test"]'])
def test_the_widest_table_of_a_run_fits_80_columns_with_every_digit(plures, experiment, splits):
    said = plures(
        *("run", experiment, "--set", "method=finetune", "--set", "evaluation.post_local=true", "--out", "results"),
        *("--set", f"evaluation.splits={splits}", "--set", "server.lr=300"),
    )

    assert "sampled/post_local/validation" in said.out
    assert widest(said.out) <= 80
    assert "…" not in said.out


def test_demo_as_json_is_all_there_is_on_stdout(plures):
    said = plures("demo", "--rounds", "1", "--json", "--out", "results")

    rows = json.loads(said.out)
    assert rows == json.loads(Path("results/comparison.json").read_text(encoding="utf-8"))
    assert [row["title"] for row in rows][:6] == ["Local", "FedAvg", "FedAvg-FT", "FedPer", "FedAlt", "PFLEGO"]
    assert len(rows) == len(METHODS)
    for row in rows:
        assert 0 <= row["value"] <= 1
        assert (row["helped"] is None) == (row["title"] == "FedAvg")


def test_demo_refuses_a_folder_that_is_not_empty(plures):
    Path("results").mkdir()
    Path("results/mine.txt").write_text("precious", encoding="utf-8")

    said = plures("demo", "--rounds", "1", "--out", "results")

    assert said.code == 2
    assert "is not empty" in said.err
    assert [path.name for path in Path("results").iterdir()] == ["mine.txt"]
