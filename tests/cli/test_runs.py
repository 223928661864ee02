"""plures runs: a table of runs with their state, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plures import make_experiment, run_experiment, run_study
from tests.cli.helpers import widest

TABLE = {"method": "fedavg", "rounds": 2, "data": {"clients": 5}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study of two runs below a long name, and a run of its own."""
    folder = tmp_path_factory.mktemp("runs")
    experiment = make_experiment(TABLE)
    run_study(experiment, out=folder / ("a-long-name-" * 8), seeds=1, beside=["local"])
    run_experiment(experiment.model_copy(update={"seed": 7}), out=folder / "one")
    return folder


def test_runs_lists_every_run_within_80_columns_and_hides_no_part_of_a_name(plures, folder):
    said = plures("runs", folder)

    assert (said.code, said.err) == (0, "")
    heading, first, *_ = said.out.splitlines()
    assert heading.split() == ["state", "method", "seed", "rounds", "score", "age", "folder"]
    assert first.split()[:4] == ["finished", "fedavg", "7", "2/2"]
    assert first.split()[-1] == "one"
    assert widest(said.out) <= 80
    start = heading.index("folder")
    assert "a-long-name-" * 8 + "/local/seed-0" in "".join(line[start:].strip() for line in said.out.splitlines())
    assert said.out.endswith("3 finished\n")


def test_json_has_every_run_with_its_whole_folder(plures, folder):
    found = json.loads(plures("runs", folder, "--json").out)

    assert [run["method"] for run in found] == ["fedavg", "local", "fedavg"]
    for run in found:
        result = json.loads((Path(run["folder"]) / "result.json").read_text(encoding="utf-8"))
        assert run["value"] == result["metrics"][run["metric"]]["weighted"]
        assert (run["state"], run["rounds_done"], run["rounds"]) == ("finished", 2, 2)


def test_a_run_that_has_ended_leaves_no_note_of_its_process(folder):
    assert list(folder.rglob("running.json")) == []


def test_runs_looks_below_runs_by_itself(plures):
    said = plures("runs")
    assert (said.code, said.out) == (2, "")
    assert "There is no folder runs" in said.err

    Path("runs").mkdir()
    assert plures("runs").out == "There are no runs below runs.\n"
    assert json.loads(plures("runs", "--json").out) == []
