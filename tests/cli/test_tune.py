"""`plures tune` as a user has it: what is shown, what is kept when it is killed, and what comes next."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from plures import load_experiment
from plures.cli.tune import with_number
from plures.recipes import tune
from tests.cli.helpers import PLURES, environment, widest

FILE = """
method = "fedalt"
rounds = 3
[data]
clients = 4
classes_per_client = 5
[evaluation]
every = 1
[tune]
trials = 9
[tune.search]
"method_options.lr" = {low = 1e-5, high = 3.0, log = true}
"method_options.budget.epochs" = [1, 2]
"server.lr" = [0.5, 1.0]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "search.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def rows(folder: Path) -> list[dict[str, str]]:
    """The trials of a search, without how long they took."""
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as table:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(table)]


def test_a_search_shows_trials_the_best_and_what_to_run_next(plures, file):
    said = plures("tune", file, "--trials", "4", "--refit", "2")
    assert said.code == 0, said.err
    assert widest(said.out) <= 80
    assert widest(said.err) <= 80
    assert "4 of 4 trials: 4 finished." in said.out
    assert "validation data left to choose a round by" in " ".join(said.out.split())
    assert "  plures run runs/tune-search/best.toml" in said.out
    assert said.err.count("best ") == 4
    assert " left" in said.err
    best = plures("run", "runs/tune-search/best.toml", "--out", "best", "--set", "rounds=1")
    assert best.code == 0, best.err
    compared = plures("compare", "runs/tune-search/refit")
    assert "fedalt" in compared.out


def test_the_same_command_goes_on_with_more_trials_and_json_is_for_programs(plures, file):
    first = plures("tune", file, "--trials", "2", "--json")
    again = plures("tune", file, "--trials", "3", "--json")
    told = json.loads(again.out)
    assert told["trials"][:2] == json.loads(first.out)["trials"]
    assert told["planned"] == 3
    assert told["refit"] is None
    assert "2 of 3 trials are there already; going on with trial 2" in again.err
    assert json.loads(Path("runs/tune-search/tuning.json").read_text(encoding="utf-8")) == told


def test_an_earlier_refit_is_kept_and_a_search_that_goes_on_after_it_is_warned_of(plures, file):
    def refit_told() -> dict:
        return json.loads(Path("runs/tune-search/tuning.json").read_text(encoding="utf-8"))["refit"]

    first = plures("tune", file, "--trials", "3", "--refit", "2")
    assert "test data of this search were looked at" not in first.err
    before = refit_told()
    assert (before["of_best"], before["seeds"]) == (True, [0, 1])
    again = plures("tune", file, "--trials", "3")
    assert refit_told() == before
    assert "Test data were not looked at" not in again.out
    assert "Test data were looked at before: runs/tune-search/refit has a refit of the best (" in said_in(again.out)
    assert "warning" not in again.err
    more = plures("tune", file, "--trials", "4")
    assert "warning: test data of this search were looked at by an earlier --refit" in more.err
    assert widest(more.out + more.err) <= 80


def said_in(text: str) -> str:
    return " ".join(text.split())


def test_fewer_trials_than_there_are_add_none(plures, file):
    plures("tune", file, "--trials", "3")
    said = plures("tune", file, "--trials", "2")
    assert "3 trials are there already, more than 2: none is added" in said.err
    assert "3 of 3 trials: 3 finished." in said.out
    assert said.code == 0


def test_trials_are_compared_and_looked_into_on_validation_data(plures, file):
    plures("tune", file, "--trials", "2", "--seeds", "2", "--out", "found")
    assert plures("compare", "found/trials/0000", "--split", "validation").code == 0
    assert plures("clients", "found/trials/0000/seed-0", "--split", "validation").code == 0


def test_ctrl_c_keeps_what_is_there_and_says_how_to_go_on(plures, file, monkeypatch):
    def interrupt(*told, **given) -> None:
        raise KeyboardInterrupt

    assert plures("tune", file, "--trials", "2", "--out", "found").code == 0
    monkeypatch.setattr("plures.cli.search_progress.SearchProgress.round_done", interrupt)
    said = plures("tune", file, "--trials", "4", "--out", "found", "--set", "tune.seed=0")
    assert said.code == 130
    assert "whole trials are kept in found" in said.err
    assert "--set tune.seed=0 --trials 4 --out found" in said.err
    assert len(rows(Path("found"))) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("method_options.lrr=[1, 2]", "has no option 'lrr'"),
        ("rounds=[]", "empty list"),
    ],
)
def test_what_is_wrong_is_one_message_and_nothing_is_written(plures, file, change, says):
    key, _, value = change.partition("=")
    file.write_text(f'{FILE}"{key}" = {value}\n', encoding="utf-8")
    said = plures("tune", file)
    assert said.code == 2
    assert says in said.err
    assert "Traceback" not in said.err
    assert not Path("runs").exists()


def test_a_changed_file_in_the_same_folder_is_refused(plures, file):
    plures("tune", file, "--trials", "1")
    said = plures("tune", file, "--trials", "1", "--set", "rounds=2")
    assert said.code == 2
    assert "experiment.rounds = 3, which is 2 now" in said.err


def test_a_search_without_a_finished_trial_says_why(plures, file):
    space = "tune.search.method_options.lr=[1e30, 1e31]"
    said = plures("tune", file, "--trials", "2", "--set", space, "--out", "folder {of} 100% odd? #signs")
    assert said.code == 1
    assert "2 of 2 trials: 2 diverged." in said.out
    assert "No trial has finished; the last: " in said.out


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["f", "--refit"], ["f", "--refit", "3"]),
        (["--refit", "f"], ["--refit", "3", "f"]),
        (["f", "--refit", "5", "--json"], ["f", "--refit", "5", "--json"]),
        (["f", "--json"], ["f", "--json"]),
    ],
)
def test_refit_needs_no_number(args, expected):
    assert with_number(args) == expected


def test_a_search_that_was_killed_goes_on_and_finds_the_same(file, tmp_path):
    command = [str(PLURES), "tune", str(file), "--trials", "6", "--out", str(tmp_path / "killed")]
    killed = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    under_way = tmp_path / "killed/trials/0003/rounds.jsonl"
    for _ in range(6000):
        if under_way.exists() or killed.poll() is not None:
            break
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    kept = rows(tmp_path / "killed")
    assert 3 <= len(kept) < 6
    result = tmp_path / "killed/trials/0001/result.json"
    before = result.stat().st_mtime_ns

    again = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=False)

    assert again.returncode == 0, again.stderr
    assert result.stat().st_mtime_ns == before
    tune(load_experiment(file), out=tmp_path / "whole", trials=6)
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
