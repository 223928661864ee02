"""plures run --track: other programs are told the numbers of a run."""

from __future__ import annotations

from pathlib import Path


def test_a_tracker_is_asked_for_by_name(plures, experiment):
    said = plures("run", experiment, "--track", "tensorboard", "--out", "results")

    assert said.code == 0
    assert len(list(Path("results/tensorboard").glob("events.out.*"))) == 1


def test_every_run_of_a_study_is_tracked_in_its_own_folder(plures, experiment):
    said = plures("run", experiment, "--set", "rounds=1", "--seeds", "2", "--track", "tensorboard", "--out", "study")

    assert said.code == 0
    assert len(list(Path("study").glob("fedavg/seed-*/tensorboard/events.out.*"))) == 2


def test_an_unknown_tracker_is_one_message_and_leaves_no_folder(plures, experiment):
    said = plures("run", experiment, "--track", "tensorbord", "--out", "results")

    assert (said.code, said.out) == (2, "")
    assert said.err == "error: There is no tracker 'tensorbord'. Did you mean 'tensorboard'?\n"
    assert not Path("results").exists()
