"""Clients whose states are lost: nobody gets an older one, and nobody begins anew unless that is asked for."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from plures import load_run, run_experiment
from plures.core.errors import RunFolderError
from plures.recipes.checkpoints import checkpoints_in
from plures.recipes.doctor import repair
from plures.report import records
from plures.stores.disk import DiskStore
from plures.stores.faults import DamagedState
from plures.stores.state_file import StateFile
from tests.recipes.doctor.helpers import (
    LAST,
    REPAIRED,
    assert_ends_as,
    diagnosis,
    finding,
    interrupted,
    leave_journal,
    repair_in_a_child,
    snapshot,
    spoil_states,
    wrong,
)
from tests.recipes.helpers import same_bits
from tests.recipes.resuming_helpers import experiment_of


def test_where_a_state_is_lost_the_run_goes_back_to_where_nobody_is(copy, made):
    folder = copy(killed=True)
    spoil_states(folder, [2], [LAST])
    found = diagnosis(folder)
    assert found.resumable_from is None
    assert "client 2 is damaged" in finding(folder, records.STATES).meaning
    assert f"back to round {LAST - 1}" in finding(folder, records.STATES).remedy
    ((_, done),) = repair(folder)
    assert (done.round, done.clients) == (LAST - 1, ())
    assert diagnosis(folder).resumable_from == LAST - 1
    assert_ends_as(folder, made("alone"))


def test_nobody_is_forgotten_unless_that_is_asked_for(copy):
    folder = copy(killed=True)
    spoil_states(folder, [1, 2], [LAST - 1, LAST])
    before = snapshot(folder)
    assert repair(folder) == []
    assert snapshot(folder) == before
    assert finding(folder, records.STATES).forgets == (1, 2)
    assert not diagnosis(folder).is_well


def test_those_that_are_forgotten_are_told_of_and_the_others_keep_their_states(copy, made):
    folder = copy(killed=True)
    spoil_states(folder, [1, 2], [LAST - 1, LAST])
    ((_, done),) = repair(folder, forget_clients=True)
    assert done.clients == (1, 2)
    (told,) = json.loads((folder / "doctor.json").read_text(encoding="utf-8"))["repairs"]
    assert (told["clients"], told["round"]) == ([1, 2], LAST)
    assert told["when"].startswith("20")
    assert "clients 1, 2 began anew" in finding(folder, "doctor.json").meaning
    with (
        DiskStore(folder / records.STATES, read_only=True) as left,
        DiskStore(made("cut") / records.STATES, read_only=True) as whole,
    ):
        assert list(left.clients()) == [0, 3]
        assert all(same_bits(left.get(client), whole.get(client)) for client in (0, 3))
    assert diagnosis(folder).resumable_from == LAST
    result = run_experiment(experiment_of("fedper"), out=folder, resume=True)
    assert result.status == "finished"


def test_an_older_state_does_not_take_the_place_of_a_lost_one(copy):
    """Client 1 is lost at both checkpoints, client 2 at the last alone: then it, too, is lost there."""
    folder = copy(killed=True)
    spoil_states(folder, [1], [LAST - 1, LAST])
    spoil_states(folder, [2], [LAST])
    assert finding(folder, records.STATES).forgets == (1, 2)
    repair(folder, forget_clients=True)
    with DiskStore(folder / records.STATES, read_only=True) as left:
        assert list(left.clients()) == [0, 3]


def test_where_nothing_can_be_saved_all_may_begin_anew(copy):
    folder = copy(killed=True)
    (folder / records.STATES).write_bytes(b"no database" * 500)
    assert repair(folder) == []
    assert finding(folder, records.STATES).forgets == ()
    ((_, done),) = repair(folder, forget_clients=True)
    assert "all clients begin anew" in done.what
    assert (folder / f"{records.STATES}.damaged").read_bytes() == b"no database" * 500
    assert run_experiment(experiment_of("fedper"), out=folder, resume=True).status == "finished"


def test_a_disk_that_fails_meanwhile_forgets_nobody(copy, monkeypatch):
    folder = copy(killed=True)
    spoil_states(folder, [2], [LAST])
    before = snapshot(folder)

    def full(file):
        raise RunFolderError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(StateFile, "commit", full)
        with pytest.raises(RunFolderError, match="the disk is full"):
            repair(folder)
    assert {name: content for name, content in snapshot(folder).items() if ".partial" not in name} == before


def test_what_a_killed_process_left_half_written_is_only_taken_back_by_a_repair(copy, made, tmp_path):
    folder = copy(killed=True)
    leave_journal(folder, tmp_path / "journal")
    before = snapshot(folder)
    assert before[records.STATES] != (made("cut") / records.STATES).read_bytes()
    assert wrong(folder)[f"{records.STATES}-journal"] == "left over"
    assert finding(folder, records.STATES).state == "fine"
    assert snapshot(folder) == before
    repair(folder)
    assert (folder / records.STATES).read_bytes() == (made("cut") / records.STATES).read_bytes()
    assert_ends_as(folder, made("alone"))


def test_the_journal_of_a_store_that_cannot_be_used_is_not_put_into_the_new_one(copy, tmp_path):
    folder = copy(killed=True)
    connection = sqlite3.connect(folder / records.STATES)
    connection.execute("PRAGMA application_id = 5")
    connection.close()
    leave_journal(folder, tmp_path / "journal")
    repair(folder, forget_clients=True)
    assert not (folder / f"{records.STATES}-journal").exists()
    assert (folder / f"{records.STATES}.damaged-journal").exists()
    assert diagnosis(folder).is_well


# Runs that have ended and keep their states in the store


def test_all_is_fine_with_a_run_whose_states_are_in_the_store(large):
    assert wrong(large) == {}
    assert diagnosis(large).is_finished


def test_one_lost_client_of_many_can_be_given_up_and_the_run_be_loaded_again(large):
    spoil_states(large, [2], [5])
    with pytest.raises(DamagedState, match=r"client 2 in .*clients\.sqlite"):
        load_run(large)
    assert wrong(large) == {records.STATES: "damaged"}
    assert (diagnosis(large).is_loadable, diagnosis(large).resumable_from) == (False, None)
    assert repair(large) == []
    repair(large, forget_clients=True)
    assert diagnosis(large).is_finished
    result = load_run(large)
    assert result.facts["forgotten_clients"] == [2]
    assert list(result.store.clients()) == [0, 1, 3]


def test_a_finished_run_whose_store_is_damaged_goes_on_from_a_checkpoint_that_is_left(tmp_path, made, monkeypatch):
    """It was killed when it had finished; what its last round left of client 2 is lost, and a round is done again."""
    folder = tmp_path / "run"
    interrupted(folder)
    shutil.copytree(folder / records.CHECKPOINTS, tmp_path / "checkpoints")
    with monkeypatch.context() as patched:
        patched.setattr("plures.recipes.states.MOST_PORTABLE_BYTES", 0)
        run_experiment(experiment_of("fedper"), out=folder, resume=True)
    shutil.copytree(tmp_path / "checkpoints", folder / records.CHECKPOINTS)
    spoil_states(folder, [2], [5])
    repair(folder)
    found = diagnosis(folder)
    assert (found.is_well, found.is_loadable, found.resumable_from) == (True, False, LAST)
    assert_ends_as(folder, made("alone"))


def test_more_damage_than_was_seen_leaves_the_old_file(copy, monkeypatch):
    folder = copy(killed=True)
    spoil_states(folder, [2], [LAST])
    before = (folder / records.STATES).read_bytes()
    monkeypatch.setattr("plures.recipes.doctor_states.rescued", lambda path, into, as_of: [0, 2])
    with pytest.raises(RunFolderError, match=r"More of .* is damaged"):
        repair(folder, forget_clients=True)
    assert (folder / records.STATES).read_bytes() == before
    assert len(checkpoints_in(folder)) == 2


def test_a_shared_part_of_another_run_is_noticed(large, copy):
    shutil.copy(copy() / records.SHARED, large / records.SHARED)
    assert wrong(large) == {records.SHARED: "damaged"}


# Repairs that are cut off


@pytest.mark.parametrize("name", ["replace", "link", "unlink", "fsync"])
def test_a_repair_that_is_killed_at_any_step_can_be_made_again(copy, made, tmp_path, name):
    damaged = copy(killed=True)
    for damage in ("a line that was cut", "a table that was cut", "a checkpoint that was being written"):
        REPAIRED[damage][0](damaged)
    spoil_states(damaged, [2], [LAST])
    number, ended = 0, False
    while not ended:
        number += 1
        folder = Path(shutil.copytree(damaged, tmp_path / f"{name}{number}"))
        ended = repair_in_a_child(folder, name, number)
        repair(folder)
        assert diagnosis(folder).is_well
        assert diagnosis(folder).resumable_from == LAST - 1
    assert number > 1
    assert_ends_as(folder, made("alone"))


def test_forgetting_in_a_run_that_has_ended_can_be_made_again_when_it_was_killed(large, tmp_path):
    spoil_states(large, [2], [5])
    number, ended = 0, False
    while not ended:
        number += 1
        folder = Path(shutil.copytree(large, tmp_path / f"again{number}"))
        ended = repair_in_a_child(folder, "replace", number, forget_clients=True)
        repair(folder, forget_clients=True)
        assert diagnosis(folder).is_finished
        assert load_run(folder).facts["forgotten_clients"] == [2]
    assert number > 1
