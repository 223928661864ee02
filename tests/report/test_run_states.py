"""How runs stand by their folders: running, ended, dead, damaged; and how one is followed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from plures.core.errors import RunFolderError
from plures.report.following import SPARKS, Followed, sparkline
from plures.report.run_states import RunState, list_runs, state_of
from plures.report.run_tables import readable_age, runs_table, shown_score
from plures.report.running import read_running, running_now
from plures.report.tables import readable_seconds
from tests.report.run_folders import write_run

FACTS = {"title": "FedAlt", "method": "fedalt", "seed": 3, "rounds": 9, "clients": 4, "shown": "personal/test/accuracy"}


def line_of(round: int, accuracy: float | None = None) -> str:
    line = {"round": round, "cohort": [0, 1], "losses": {"shared": 0.5}, "bytes_down": 10, "bytes_up": 5}
    metrics = {} if accuracy is None else {"metrics": {"personal/test/accuracy": {"weighted": accuracy}}}
    return json.dumps(line | {"seconds": 0.5 * round} | metrics) + "\n"


def write_running(folder: Path, text: str = "", *, age: float = 0.0, **process: object) -> Path:
    """A run under way, whose last line is so old."""
    folder.mkdir(parents=True)
    (folder / "rounds.jsonl").write_text(text, encoding="utf-8")
    (folder / "running.json").write_text(json.dumps(running_now(**FACTS) | process), encoding="utf-8")
    old = time.time() - age
    os.utime(folder / "rounds.jsonl", (old, old))
    return folder


GONE = {"pid": 2**22 + 1}


def test_a_run_under_way_tells_its_rounds_and_latest_score(tmp_path):
    folder = write_running(tmp_path / "run", line_of(1) + line_of(2, 0.5) + line_of(3) + '{"round": 4, "co')

    found = state_of(folder)

    assert (found.state, found.method, found.seed) == ("running", "fedalt", 3)
    assert (found.rounds_done, found.rounds, found.value) == (3, 9, 0.5)


def test_a_run_before_its_first_round_runs(tmp_path):
    found = state_of(write_running(tmp_path / "run"))

    assert (found.state, found.rounds_done, found.value) == ("running", 0, None)


def test_a_run_whose_process_is_gone_is_dead(tmp_path):
    assert state_of(write_running(tmp_path / "run", line_of(1), **GONE)).state == "dead"


def test_a_run_whose_number_another_process_has_now_is_dead(tmp_path):
    folder = write_running(tmp_path / "run", line_of(1), process_started="before the last boot")

    assert state_of(folder).state == "dead"


def test_a_run_without_any_note_of_its_process_is_dead_unless_it_has_just_begun(tmp_path):
    old, new = write_running(tmp_path / "old", age=60), write_running(tmp_path / "new")
    for folder in (old, new):
        (folder / "running.json").unlink()

    assert (state_of(old).state, state_of(new).state) == ("dead", "running")


@pytest.mark.parametrize("status", ["finished", "interrupted", "failed", "diverged"])
def test_a_run_with_a_result_has_its_status(tmp_path, status):
    folder = write_run(tmp_path / "run", {"personal/test": [0.25, 0.75]}, method="ditto", result={"status": status})

    found = state_of(folder)

    assert (found.state, found.method, found.rounds_done, found.value) == (status, "ditto", 5, 0.5)


def test_a_result_counts_more_than_a_note_of_a_process_that_is_gone(tmp_path):
    folder = write_run(tmp_path / "run", {"personal/test": [1.0]})
    (folder / "running.json").write_text(json.dumps(running_now(**FACTS) | GONE), encoding="utf-8")

    assert state_of(folder).state == "finished"


@pytest.mark.parametrize("text", ["{", "[]", '{"status": "finished"}'])
def test_a_damaged_run_is_told_and_hides_no_other(tmp_path, text):
    write_run(tmp_path / "good", {"personal/test": [1.0]})
    (write_run(tmp_path / "bad", {"personal/test": [1.0]}) / "result.json").write_text(text, encoding="utf-8")

    assert {run.folder.name: run.state for run in list_runs(tmp_path)} == {"good": "finished", "bad": "damaged"}


def test_a_damaged_note_is_none(tmp_path):
    folder = write_running(tmp_path / "run")
    for text in ("{", "[]", "{}", '{"pid": "x", "host": "y", "process_started": null, "started": "z"}'):
        (folder / "running.json").write_text(text, encoding="utf-8")
        assert read_running(folder) is None


def test_runs_are_found_below_studies_newest_first_without_hidden_folders_and_links(tmp_path):
    for number, name in enumerate(("c", "study/a/seed-0", "study/b/seed-0", ".hidden/d")):
        folder = write_run(tmp_path / name, {"personal/test": [1.0]})
        for file in ("result.json", "rounds.jsonl"):
            os.utime(folder / file, (1000 + number, 1000 + number))
    (tmp_path / "study/link").symlink_to(tmp_path)

    assert [str(run.folder.relative_to(tmp_path)) for run in list_runs(tmp_path)] == [
        "study/b/seed-0",
        "study/a/seed-0",
        "c",
    ]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RunFolderError, match="There is no folder"):
        list_runs(tmp_path / "nothing")


def test_other_metrics_than_accuracy_are_shown_by_name(tmp_path):
    folder = write_run(tmp_path / "run", {"personal/test": [2.0]}, metric="rmse")

    assert shown_score(state_of(folder)) == "rmse 2"
    assert runs_table([state_of(folder)], tmp_path).row_count == 1


def test_scores_of_validation_data_say_so(tmp_path):
    run = RunState(folder=tmp_path, state="finished", changed=0.0, metric="personal/validation/accuracy", value=0.5)
    assert shown_score(run) == "50.0% val."


def test_a_run_is_followed_from_its_first_line_to_its_end(tmp_path):
    folder = write_running(tmp_path / "run", line_of(1)[:20])
    run = Followed(folder)

    assert run.poll() == []  # half a line
    assert (run.standing, run.rounds_done, run.title) == ("running", 0, "FedAlt")
    assert run.left is None
    (folder / "rounds.jsonl").write_text(line_of(1) + line_of(2, 0.5), encoding="utf-8")
    assert len(run.poll()) == 2
    assert (run.rounds_done, run.scores, run.num_bytes, run.clients) == (2, [(2, 0.5)], 30, 4)
    assert run.rate == 4.0  # four clients in the one second of two rounds
    with (folder / "rounds.jsonl").open("a", encoding="utf-8") as file:
        file.write(line_of(3, 0.75))
    result = write_run(tmp_path / "other", {"personal/test": [0.75]}, method="fedalt") / "result.json"
    (folder / "result.json").write_bytes(result.read_bytes())
    (folder / "running.json").unlink()
    assert len(run.poll()) == 1
    assert (run.standing, run.state, run.value, run.title) == ("ended", "finished", 0.75, "FedAlt")


def test_the_time_that_is_left_is_by_the_rounds_so_far(tmp_path):
    folder = write_running(tmp_path / "run", line_of(1) + line_of(2) + line_of(3), started="2020-01-01T00:00:00+00:00")
    began = read_running(folder).started.timestamp()
    os.utime(folder / "rounds.jsonl", (began + 30, began + 30))
    run = Followed(folder)
    run.poll()

    assert run.left == 0.0  # 6 rounds of 10 s would have ended years ago


def test_a_line_that_is_no_json_is_told_with_its_file(tmp_path):
    folder = write_running(tmp_path / "run", "nonsense\n")

    with pytest.raises(RunFolderError, match=r"rounds\.jsonl is damaged"):
        Followed(folder).poll()


def test_a_sparkline_goes_from_the_lowest_to_the_highest():
    assert sparkline([0.0, 1.0], 10) == SPARKS[0] + SPARKS[-1]
    assert sparkline([0.5, 0.5], 10) == SPARKS[0] * 2
    assert sparkline([], 10) == ""
    assert len(sparkline([float(number) for number in range(100)], 10)) == 10
    assert sparkline([float(number) for number in range(100)], 10)[-1] == SPARKS[-1]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_in_the_largest_unit(seconds, text):
    assert readable_age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(7, "0:07"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03"), (259_200, "3 days")]
)
def test_times_are_as_clocks_show_them(seconds, text):
    assert readable_seconds(seconds) == text
