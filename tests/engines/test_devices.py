"""Steps that wait for no device: nothing is taken back to the CPU, and no number is read, while a phase is stepped.

There is no GPU here: what a GPU would wait for is caught as it is dispatched.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plures.core.client import arrival
from plures.core.problem import Problem, plain_steps
from plures.engines.cached import behind
from plures.engines.fused import fused_steps
from plures.local import adam, epochs, sgd
from plures.methods import METHODS
from tests.helpers.methods import play

WAITS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")
MINI = epochs(2, batch=3)
CASES = {
    "fedavg": {"budget": MINI},
    "fedprox": {"budget": MINI, "mu": 0.1},
    "fedper": {"budget": MINI},
    "fedalt": {"budget": MINI, "clip_norm": 0.5},
    "ditto": {"budget": MINI, "personal_budget": MINI},
    "fedspa": {"budget": MINI},
    "scaffold": {"budget": MINI},
    "fedavg with momentum": {"budget": MINI, "lr": sgd(0.1, momentum=0.9)},
    "fedavg with adam": {"budget": MINI, "lr": adam(0.1)},
}


class NoWaiting(TorchDispatchMode):
    """Fails on whatever would make a GPU's queue run empty."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in WAITS, f"{name} waits for the device"
        moved = (kwargs or {}).get("device")
        assert name != "_to_copy" or moved is None or torch.device(moved).type != "cpu", "a tensor is taken to the CPU"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("stepping", [plain_steps, fused_steps], ids=["plain", "fused"])
@pytest.mark.parametrize("case", CASES)
def test_no_step_waits_for_the_device(case, stepping):
    run = play(METHODS[case.partition(" ")[0]].make(**CASES[case]), 1)
    visit, binding = run.visit(2), run.program.binding(2)
    assert visit.data.num_examples == 7  # fetched before the steps
    for phase in run.program.method.local:
        problem = Problem(phase=phase, visit=visit, binding=binding, params=arrival(binding, visit))
        problem = problem if stepping is plain_steps else behind(problem)  # found once, before the steps
        with NoWaiting():
            stepping(problem, None)


def test_the_mode_does_catch_what_waits():
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.ones(()).item()
    with pytest.raises(AssertionError, match="taken to the CPU"), NoWaiting():
        torch.ones(1, dtype=torch.float64).to("cpu", torch.float32)
