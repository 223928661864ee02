"""What a node keeps: private, atomic, by round, and never another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from plures.core.errors import RunFolderError
from plures.deploy import keeping
from plures.deploy.keeping import ROUNDS_KEPT, BrokenState, RunStates

RUN = "0123456789abcdef"


def state(number: float) -> dict[str, torch.Tensor]:
    return {"head.weight": torch.full((2, 2), number)}


def trained(states: RunStates, round: int, counted: int | None) -> None:
    states.read(counted)
    states.keep(round, state(round), counted)


def test_folders_are_for_the_operator_alone(tmp_path: Path) -> None:
    states = RunStates(tmp_path / "state", RUN)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert states.path.stat().st_mode & 0o777 == 0o700
    os.chmod(tmp_path / "state", 0o755)
    with pytest.raises(BrokenState, match="chmod 700"):
        RunStates(tmp_path / "state", RUN)


def test_what_did_not_count_never_was(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    states = RunStates(tmp_path, RUN)
    trained(states, 1, None)
    trained(states, 2, 1)
    trained(states, 3, 1)  # round 2 did not count
    for counted in (1, 2, 3):
        found = states.read(counted)
        assert found is not None
        assert torch.equal(found["head.weight"], state(3 if counted == 3 else 1)["head.weight"])


def test_a_server_may_go_back_some_rounds(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    states = RunStates(tmp_path, RUN)
    trained(states, 1, None)
    for round in range(2, 30):
        trained(states, round, round - 1)
    for counted in (29, 28, 28 - ROUNDS_KEPT):
        found = states.read(counted)
        assert found is not None
        assert torch.equal(found["head.weight"], state(counted)["head.weight"])
    with pytest.raises(RunFolderError, match="are gone"):
        states.read(3)


def test_a_state_that_the_server_counts_on_and_is_not_there_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    states = RunStates(tmp_path, RUN)
    with pytest.raises(BrokenState, match="no state of round 4"):
        states.read(4)
    trained(states, 1, None)
    with pytest.raises(RunFolderError, match="round 4"):
        states.read(4)
    (states.path / keeping.STATES).write_bytes(b"SQLite format 3\x00 and then nothing of the kind")
    with pytest.raises(RunFolderError, match="damaged"):
        states.read(1)


def test_an_answer_is_given_again_only_to_the_same_order(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    states = RunStates(tmp_path, RUN)
    states.note((5, 2), b"order", b"reply")
    assert states.answered(b"order") == b"reply"
    assert states.answered(b"other") is None
    assert states.is_past((5, 1))
    assert states.is_past((4, 9))
    assert not states.is_past((5, 2))
    assert not states.is_past((6, 1))
    (states.path / keeping.REPLY).write_bytes(b"another")
    assert states.answered(b"order") is None
    (states.path / keeping.LAST).write_text("{")
    with pytest.raises(BrokenState, match="cannot be read"):
        states.last()


def test_runs_without_end_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(keeping, "MOST_RUNS", 3)
    for number in range(3):
        RunStates(tmp_path, f"{number:016x}")
    RunStates(tmp_path, f"{1:016x}")
    with pytest.raises(BrokenState, match="3 runs"):
        RunStates(tmp_path, f"{9:016x}")
