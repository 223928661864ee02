"""Where numbers lie in memory: what comes from files and messages is put where torch would have put it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from plures.core.client import arrival, run_client
from plures.core.types import ALIGNED, Batch, aligned
from plures.local import FULL, steps
from plures.methods import fedavg, fedper
from tests.helpers.methods import play


def elsewhere(value: torch.Tensor) -> torch.Tensor:
    """The same numbers, a place further than a multiple of 64 bytes."""
    room = torch.empty(value.numel() + 1, dtype=value.dtype)
    room[1:] = value.flatten()
    return room[1:].view(value.shape)


def is_aligned(value: torch.Tensor) -> bool:
    return value.data_ptr() % ALIGNED == 0


def test_only_what_lies_elsewhere_is_copied():
    here = torch.randn(5, 3)
    assert aligned(here) is here
    there = elsewhere(here)
    assert not is_aligned(there)
    assert is_aligned(aligned(there))
    assert torch.equal(aligned(there), here)


@pytest.mark.parametrize("method", [fedavg(budget=steps(3, FULL)), fedper(budget=steps(3, FULL))])
def test_a_visit_gives_the_same_bits_wherever_its_numbers_lie(method):
    run = play(method, 1)
    binding, visit = run.program.binding(0), run.visit(0)
    moved = replace(
        visit,
        received={name: elsewhere(value) for name, value in visit.received.items()},
        state={name: elsewhere(value) for name, value in visit.state.items()},
        data=binding.task.place(Batch(elsewhere(visit.data.inputs), visit.data.targets)),
    )

    assert all(map(is_aligned, arrival(binding, moved).values()))
    assert is_aligned(moved.data.inputs)
    here, there = (run_client(method, binding, one) for one in (visit, moved))
    assert here.upload.values.keys() == there.upload.values.keys()
    for name, value in here.upload.values.items():
        assert torch.equal(value, there.upload.values[name])
