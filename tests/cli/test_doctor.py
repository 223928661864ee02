"""plures doctor: a table of files with their states, exit codes, and repairs that have to be asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from plures import make_experiment, run_experiment, run_study
from plures.recipes.watching import Silence
from plures.report import records
from tests.cli.helpers import widest

TABLE = {"method": "fedper", "rounds": 3, "data": {"clients": 5}, "checkpoint": {"every": 1}}


class CutAfter(Silence):
    """Ctrl-C after the second round."""

    def round_done(self, report, metrics) -> None:
        if report.round == 2:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def cut(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("doctor") / "cut"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(make_experiment(TABLE), out=folder, watcher=CutAfter())
    return folder


@pytest.fixture
def run(cut, tmp_path) -> Path:
    return Path(shutil.copytree(cut, tmp_path / "run"))


def rows(out: str) -> dict[str, str]:
    """The state of each file; two blanks part the columns."""
    lines = [line.split("  ") for line in out.split("\n\n")[0].splitlines() if line and line[0] not in " f"]
    return {cells[0].strip(): next(cell.strip() for cell in cells[1:] if cell.strip()) for cells in lines}


def test_every_file_has_a_row_and_the_last_sentence_says_how_to_go_on(plures, run):
    said = plures("doctor", run)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0].split("  ")[0] == "file"
    assert rows(said.out) == dict.fromkeys(rows(said.out), "fine")
    assert {"experiment.toml", "rounds.jsonl", "clients.sqlite", "checkpoints/00000002"} <= set(rows(said.out))
    assert f"can be resumed from round 2: plures resume {run}" in " ".join(said.out.split())
    assert widest(said.out) <= 80


def test_damage_is_code_1_until_it_is_repaired(plures, run):
    (run / records.CHECKPOINTS / "00000002.json").write_text("{}", encoding="utf-8")
    with (run / records.ROUNDS).open("a", encoding="utf-8") as file:
        file.write('{"round": 3')
    said = plures("doctor", run)
    assert said.code == 1
    assert "--repair would" in said.out.splitlines()[0]
    assert rows(said.out)["checkpoints/00000002"] == "damaged"
    assert rows(said.out)["rounds.jsonl"] == "cut"
    assert "Nothing was changed" in said.out
    assert widest(said.out) <= 80
    said = plures("doctor", run, "--repair")
    assert said.code == 0
    assert "Repaired rounds.jsonl: left out 11 bytes" in said.out
    assert "can be resumed from round 1" in said.out
    assert plures("doctor", run).code == 0


def test_what_cannot_be_repaired_is_code_1_still(plures, run):
    (run / records.EXPERIMENT).write_text("method = 3\n", encoding="utf-8")
    assert plures("doctor", run).code == 1
    said = plures("doctor", run, "--repair")
    assert said.code == 1
    assert "Repaired" not in said.out


def test_json_has_the_same(plures, run):
    (run / f".{records.RESULT}.partial").write_text("{", encoding="utf-8")
    told = json.loads(plures("doctor", run, "--json").out)
    assert (told["well"], told["repaired"]) == (False, [])
    (one,) = told["runs"]
    assert (one["folder"], one["resumable_from"], one["loadable"]) == (str(run), 2, True)
    assert {file["file"]: file["repair"] for file in one["files"]}[f".{records.RESULT}.partial"] == "remove it"
    told = json.loads(plures("doctor", run, "--repair", "--json").out)
    assert told["well"]


def test_clients_are_forgotten_only_together_with_a_repair(plures, run):
    said = plures("doctor", run, "--forget-clients")
    assert (said.code, said.out) == (2, "")
    assert "--forget-clients is for --repair" in said.err


def test_a_folder_that_is_no_run_is_an_error_of_one_line(plures, tmp_path):
    said = plures("doctor", tmp_path / "nowhere")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: There is no folder")


def test_of_a_study_only_what_is_not_fine_is_listed(plures, tmp_path):
    folder = tmp_path / "study"
    run_study(make_experiment(TABLE | {"rounds": 1}), out=folder, seeds=2)
    said = plures("doctor", folder)
    assert said.code == 0
    assert "All runs that the study planned have finished." in said.out
    assert said.out.count("The run has finished, and can be loaded.") == 2
    assert records.SHARED not in said.out
    (folder / "fedper" / "seed-1" / records.SHARED).unlink()
    said = plures("doctor", folder)
    assert said.code == 1
    assert said.out.count(records.SHARED) == 1
    assert "fedper/seed-1" in said.out
    assert widest(said.out) <= 80
