"""Every file of a run is looked at, and what can be repaired is repaired, so that the run goes on as if left alone."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from plures import run, run_experiment
from plures.core.errors import RunFolderError
from plures.recipes.checkpoints import checkpoints_in
from plures.recipes.doctor import examine, repair
from plures.report import records
from plures.report.processes import started_at
from plures.report.running import running_now
from plures.stores.disk import DiskStore
from tests.recipes.doctor.helpers import (
    LAST,
    NEWEST,
    REPAIRED,
    assert_ends_as,
    diagnosis,
    interrupted,
    snapshot,
    wrong,
)
from tests.recipes.helpers import built
from tests.recipes.resuming_helpers import experiment_of


def test_all_is_fine_with_a_run_that_has_finished(copy):
    found = diagnosis(copy("alone"))
    assert {one.state for one in found.findings} == {"fine"}
    assert {one.file for one in found.findings} >= {records.RESULT, records.VISITS, records.SHARED, records.PERSONAL}
    assert (found.is_well, found.is_finished, found.resumable_from) == (True, True, None)
    assert found.verdict == "The run has finished, and can be loaded."


def test_all_is_fine_with_a_run_that_was_interrupted(copy):
    found = diagnosis(copy())
    assert {one.state for one in found.findings} == {"fine"}
    assert (found.is_well, found.is_finished, found.is_loadable, found.resumable_from) == (True, False, True, LAST)
    assert f"can be resumed from round {LAST}: plures resume" in found.verdict


def test_of_a_run_that_was_killed_it_is_told_how_to_go_on(copy):
    found = diagnosis(copy(killed=True))
    assert [one.file for one in found.findings if one.state != "fine"] == [records.RUNNING]
    assert (found.is_well, found.is_loadable, found.resumable_from) == (True, False, LAST)


def test_a_run_that_never_came_to_a_checkpoint_begins_anew(copy):
    folder = copy(killed=True)
    shutil.rmtree(folder / records.CHECKPOINTS)
    found = diagnosis(folder)
    assert found.resumable_from == 0
    assert "begins it anew" in found.verdict
    repair(folder)
    run_experiment(experiment_of("fedper"), out=folder, resume=True)


@pytest.mark.parametrize("damage", REPAIRED)
def test_damage_is_found_and_nothing_is_changed_by_looking(copy, damage):
    folder = copy()
    spoil, expected = REPAIRED[damage]
    spoil(folder)
    before = snapshot(folder)
    assert wrong(folder) == expected
    assert snapshot(folder) == before


@pytest.mark.parametrize("damage", REPAIRED)
def test_a_run_that_was_repaired_ends_as_one_that_was_left_alone(copy, made, damage):
    folder = copy()
    REPAIRED[damage][0](folder)
    repair(folder)
    found = diagnosis(folder)
    assert found.is_well
    assert found.resumable_from is not None
    again = snapshot(folder)
    assert repair(folder) == []
    assert snapshot(folder) == again
    assert_ends_as(folder, made("alone"))


def test_what_is_replaced_is_kept(copy):
    folder = copy()
    original = (folder / records.ROUNDS).read_bytes()
    (folder / records.ROUNDS).write_bytes(original + b"{")
    repair(folder)
    assert (folder / records.ROUNDS).read_bytes() == original
    assert (folder / f"{records.ROUNDS}.damaged").read_bytes() == original + b"{"
    (folder / records.ROUNDS).write_bytes(original + b"[")
    repair(folder)
    assert (folder / f"{records.ROUNDS}.damaged").read_bytes() == original + b"{"
    assert (folder / f"{records.ROUNDS}.damaged2").read_bytes() == original + b"["
    told = json.loads((folder / "doctor.json").read_text(encoding="utf-8"))["repairs"]
    assert [one["file"] for one in told] == [records.ROUNDS, records.ROUNDS]


# What else may be found


def test_where_no_checkpoint_is_whole_none_is_removed(copy):
    folder = copy()
    for path in checkpoints_in(folder):
        path.write_text("{}", encoding="utf-8")
    before = snapshot(folder)
    assert repair(folder) == []
    assert snapshot(folder) == before
    found = diagnosis(folder)
    assert (found.resumable_from, found.is_loadable) == (None, True)
    assert "no checkpoint is whole" in found.verdict


def test_checkpoints_of_a_run_that_has_finished_are_left_over(just_finished):
    folder = just_finished
    assert set(wrong(folder).values()) == {"left over"}
    repair(folder)
    assert diagnosis(folder).is_finished
    assert not (folder / records.STATES).exists()
    assert not checkpoints_in(folder)


def test_checkpoints_stay_where_the_models_of_a_finished_run_are_damaged(just_finished, made):
    folder = just_finished
    (folder / records.SHARED).write_bytes(b"")
    repair(folder)
    assert diagnosis(folder).resumable_from == LAST
    assert_ends_as(folder, made("alone"))


def test_a_run_that_goes_on_is_left_alone(copy):
    folder = copy()
    (folder / records.ROUNDS).write_bytes(b"half a li")
    parent = {"pid": os.getppid(), "process_started": started_at(os.getppid())}
    (folder / records.RUNNING).write_text(json.dumps(running_now(method="fedper") | parent), encoding="utf-8")
    found = diagnosis(folder)
    assert (found.goes_on, found.is_well) == (True, True)
    before = snapshot(folder)
    with pytest.raises(RunFolderError, match="is being run by process"):
        repair(folder)
    assert snapshot(folder) == before


def test_an_experiment_that_is_none_is_told(copy):
    folder = copy()
    (folder / records.EXPERIMENT).write_text("rounds = -1\n", encoding="utf-8")
    assert wrong(folder) == {records.EXPERIMENT: "damaged"}
    assert not diagnosis(folder).is_loadable


def test_a_run_from_code_is_resumed_in_python(tmp_path):
    made = built("fedper")
    run(made.method, made.federation, made.networks, rounds=2, out=tmp_path / "run")
    assert diagnosis(tmp_path / "run").is_finished
    interrupted(tmp_path / "cut")
    (tmp_path / "cut" / records.EXPERIMENT).unlink()
    assert "plures.run(..., resume=True)" in diagnosis(tmp_path / "cut").verdict


def test_a_checkpoint_that_goes_further_than_the_store_is_no_good(copy, made):
    folder = copy(killed=True)
    with DiskStore(folder / records.STATES) as store:
        store.roll_back(LAST - 1)
    assert wrong(folder)[NEWEST] == "damaged"
    assert diagnosis(folder).resumable_from == LAST - 1
    repair(folder)
    assert_ends_as(folder, made("alone"))


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "nowhere", tmp_path / "empty"):
        with pytest.raises(RunFolderError, match="plures runs"):
            examine(folder)


# Studies


def test_every_run_of_a_study_is_looked_at(study):
    whole, first, second = examine(study)
    assert (whole.folder, whole.is_well) == (study, True)
    assert "runs what is left of it" in whole.verdict
    assert (first.is_finished, second.resumable_from) == (True, LAST)


def test_every_run_of_a_study_is_repaired(study):
    (study / "fedper" / "seed-1" / f"{NEWEST}.json").write_text("{}", encoding="utf-8")
    (study / "fedper" / "seed-0" / f".{records.ROUNDS}.partial").write_bytes(b"")
    assert [one.is_well for one in examine(study)] == [True, False, False]
    repair(study)
    assert [one.is_well for one in examine(study)] == [True, True, True]


def test_a_run_that_a_study_names_and_that_is_gone_is_missed(study):
    shutil.rmtree(study / "fedper" / "seed-0")
    whole, _ = examine(study)
    assert [(one.file, one.state) for one in whole.findings[1:]] == [("fedper/seed-0", "missing")]


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc", ".", "fedper/../..", "a\0b", 3])
def test_a_study_that_names_a_folder_outside_of_it_is_damaged(study, name):
    told = {"runs": [{"label": "fedper", "seed": 0, "folder": name}]}
    (study / records.STUDY).write_text(json.dumps(told), encoding="utf-8")
    whole, *_ = examine(study)
    assert whole.findings[0].state == "damaged"
    assert str(name) in whole.findings[0].meaning or name in ("a\0b", 3)
