"""plures watch: a run that goes on, has ended, is dead, or is one of a study."""

from __future__ import annotations

import io
import json
import subprocess
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from plures import make_experiment, run_experiment, run_study
from plures.cli.watch import follow_run, follow_study
from plures.cli.watch_views import JsonView, LineView, LiveView
from plures.report.running import running_now
from tests.cli.helpers import PLURES, environment, widest

TABLE = {"method": "fedavg", "rounds": 2, "data": {"clients": 5}, "evaluation": {"every": 1}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    run_experiment(make_experiment(TABLE), out=folder / "run")
    run_study(make_experiment(TABLE), out=folder / "study", seeds=2)
    return folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("plures.cli.watch.POLL_SECONDS", 0.02)


def copied(runs: Path, folder: Path, *, lines: int, **note: object) -> Path:
    """The run as it was after so many rounds, with a note of the process that runs it."""
    folder.mkdir(parents=True)
    text = (runs / "run/rounds.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(text[:lines]), encoding="utf-8")
    facts = {"title": "FedAvg", "method": "fedavg", "seed": 0, "rounds": 2, "shown": "global/test/accuracy"}
    (folder / "running.json").write_text(json.dumps(running_now(**facts) | note), encoding="utf-8")
    return folder


def finish(runs: Path, folder: Path) -> None:
    for name in ("rounds.jsonl", "result.json"):
        (folder / name).write_bytes((runs / "run" / name).read_bytes())
    (folder / "running.json").unlink()


def test_a_finished_run_is_shown_to_its_end(plures, runs):
    said = plures("watch", runs / "run")

    accuracy = json.loads((runs / "run/result.json").read_text(encoding="utf-8"))["metrics"]["global/test/accuracy"]
    assert (said.code, said.err) == (0, "")
    first, *rounds, last = said.out.splitlines()
    assert first == "fedavg, seed 0"
    assert [line.split("  ")[0] for line in rounds] == ["fedavg 1/2", "fedavg 2/2"]
    assert last.startswith(f"finished: 2 of 2 rounds, global/test/accuracy {100 * accuracy['weighted']:.1f}%. Results:")
    assert "\x1b" not in said.out


def test_json_passes_the_lines_through(plures, runs):
    said = plures("watch", runs / "run", "--json")

    assert said.code == 0
    assert said.out == (runs / "run/rounds.jsonl").read_text(encoding="utf-8")


def test_the_lines_of_a_study_say_of_which_run_they_are(runs, tmp_path, capsys):
    folder = copied(runs, tmp_path / "study/a", lines=1)
    later = threading.Timer(0.1, finish, (runs, folder))
    later.start()

    assert follow_study(tmp_path / "study", JsonView())

    later.join()
    *found, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["run"], line["round"]) for line in found] == [(str(folder), 1), (str(folder), 2)]
    assert (last["folder"], last["state"]) == (str(folder), "finished")


def test_json_of_a_study_that_has_ended_tells_how_its_runs_stand(plures, runs, tmp_path):
    finish(runs, copied(runs, tmp_path / "study/a", lines=1))

    said = plures("watch", tmp_path / "study", "--json")

    (line,) = map(json.loads, said.out.splitlines())
    assert (line["state"], line["rounds_done"]) == ("finished", 2)


def test_a_study_whose_process_is_gone_did_not_finish(plures, runs, tmp_path):
    finish(runs, copied(runs, tmp_path / "study/a", lines=1))
    (tmp_path / "study/running.json").write_text(json.dumps(running_now(runs=2) | {"pid": 2**22 + 1}), encoding="utf-8")

    assert plures("watch", tmp_path / "study").code == 1


@pytest.mark.parametrize("status", ["interrupted", "failed", "diverged"])
def test_a_run_that_ended_otherwise_has_code_1(plures, runs, tmp_path, status):
    folder = copied(runs, tmp_path / "run", lines=1)
    finish(runs, folder)
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    (folder / "result.json").write_text(json.dumps(result | {"status": status}), encoding="utf-8")

    said = plures("watch", folder)

    assert said.code == 1
    assert said.out.splitlines()[-1] == f"{status} after 2 of 2 rounds. The whole rounds are kept in {folder}"


def test_a_dead_run_is_told_with_what_to_do(plures, runs, tmp_path):
    folder = copied(runs, tmp_path / "run", lines=1, pid=2**22 + 1)
    (folder / "experiment.toml").touch()

    said = plures("watch", folder)

    assert said.code == 1
    last = said.out.splitlines()[-1]
    assert last.startswith(f"dead after 1 of 2 rounds: its process ({2**22 + 1} on ")
    assert last.endswith(f"to repeat it: plures run {folder}/experiment.toml")


def test_a_run_is_followed_from_before_its_first_round_to_its_end(runs, tmp_path):
    folder = copied(runs, tmp_path / "run", lines=0)
    file = io.StringIO()
    later = threading.Timer(0.2, finish, (runs, folder))
    later.start()

    finished = follow_run(folder, LineView(Console(file=file, width=80)))

    later.join()
    assert finished
    first, *rounds, last = file.getvalue().splitlines()
    assert first == "FedAvg, seed 0"
    assert [line.split("  ")[0] for line in rounds] == ["FedAvg 1/2", "FedAvg 2/2"]
    assert last.startswith("finished: 2 of 2 rounds")


def test_a_terminal_gets_a_picture_with_a_curve_within_80_columns(runs, tmp_path):
    folder = copied(runs, tmp_path / "run", lines=1)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None, _environ={})
    later = threading.Timer(0.2, finish, (runs, folder))
    later.start()

    assert follow_run(folder, LiveView(console), " (run 1 of 3)")

    later.join()
    shown = file.getvalue()
    assert "FedAvg, seed 0 (run 1 of 3): running, round 1 of 2" in shown
    assert "FedAvg, seed 0 (run 1 of 3): finished, round 2 of 2" in shown
    assert "global/test/accuracy" in shown
    assert "loss: shared" in shown
    assert "clients/s" in shown
    assert "left" in shown


def test_a_study_is_followed_run_by_run_and_ends_with_a_table(runs, tmp_path):
    study = tmp_path / "study"
    study.mkdir()
    (study / "running.json").write_text(json.dumps(running_now(runs=2)), encoding="utf-8")

    def goes_on() -> None:
        for seed in (0, 1):
            folder = copied(runs, study / f"seed-{seed}", lines=1)
            time.sleep(0.1)
            finish(runs, folder)
        (study / "running.json").unlink()

    file = io.StringIO()
    later = threading.Timer(0.1, goes_on)
    later.start()

    finished = follow_study(study, LineView(Console(file=file, width=80)))

    later.join()
    assert finished
    assert "(run 1 of 2)" in file.getvalue()
    assert "(run 2 of 2)" in file.getvalue()
    assert file.getvalue().count("finished: 2 of 2 rounds") == 2
    assert [line.split()[0] for line in file.getvalue().splitlines()[-3:]] == ["state", "finished", "finished"]


def test_a_study_that_has_ended_is_a_table(plures, runs):
    said = plures("watch", runs / "study")

    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()] == ["state", "finished", "finished"]
    assert widest(said.out) <= 80


@pytest.mark.parametrize(("name", "says"), [("nothing", "There is no folder"), ("other", "has no run in it")])
def test_a_folder_without_a_run_is_told(plures, tmp_path, name, says):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").touch()

    said = plures("watch", tmp_path / name)

    assert (said.code, said.out) == (2, "")
    assert says in said.err


def test_ctrl_c_ends_the_watching_with_130_and_leaves_the_run_alone(runs, tmp_path):
    folder = copied(runs, tmp_path / "run", lines=1)
    watching = subprocess.Popen(
        [PLURES, "watch", folder], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(2)
        _, err = watching.communicate(timeout=60)
    finally:
        watching.kill()

    assert (watching.returncode, err) == (130, "")
    assert (folder / "running.json").is_file()
