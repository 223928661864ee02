"""A method without options is the method its docstring promises."""

from __future__ import annotations

import pytest

from plures.local import FULL, adam, epochs, sgd, steps
from plures.methods import fedalt, fedavg, fedper, fedsim, finetune, local, pflego
from plures.participation import uniform
from plures.server.weights import samples
from tests.helpers.methods import HEAD, assert_same_bits, federation, play

ONE_EPOCH, FIVE_EPOCHS, FIFTY_STEPS = epochs(1, batch=32), epochs(5, batch=32), steps(50, batch=FULL)
AVERAGE = {"server": sgd(1.0), "weight": samples}
PROMISED = {
    local: {"lr": 0.1, "budget": ONE_EPOCH, "adapt": FIVE_EPOCHS},
    fedavg: {"lr": 0.1, "budget": ONE_EPOCH, "adapt": FIVE_EPOCHS, **AVERAGE},
    finetune: {"lr": 0.1, "budget": ONE_EPOCH, "tune_lr": 0.1, "tune": ONE_EPOCH, "personal": "*", **AVERAGE},
    fedper: {
        "personal": list(HEAD),
        "lr": 0.007,
        "budget": FIFTY_STEPS,
        "adapt": FIFTY_STEPS,
        "start": "uniform",
        **AVERAGE,
    },
    fedsim: {
        "personal": list(HEAD),
        "lr": 0.1,
        "personal_lr": 0.1,
        "budget": ONE_EPOCH,
        "adapt": FIVE_EPOCHS,
        "start": "common",
        **AVERAGE,
    },
    fedalt: {
        "personal": list(HEAD),
        "lr": 0.1,
        "personal_lr": 0.1,
        "budget": ONE_EPOCH,
        "personal_budget": ONE_EPOCH,
        "adapt": FIVE_EPOCHS,
        "start": "common",
        **AVERAGE,
    },
    pflego: {
        # tau = 50, beta = 0.006 and rho = 0.002 are the papers' for MNIST with high personalisation.
        "personal": list(HEAD),
        "tau": 50,
        "client_lr": 0.006,
        "server": adam(0.002),
        "alpha_norm": "round",
        "alpha_in_head": False,
        "batch": FULL,
        "start": "uniform",
    },
}


@pytest.mark.parametrize(("method", "options"), PROMISED.items(), ids=[method.__name__ for method in PROMISED])
def test_the_defaults_are_those_promised(method, options):
    """On clients of 40 and 70 examples, so that batches of 32 are two and three, and the last is smaller."""
    population = federation([40, 70, 33])
    plain, told = (play(made, 2, uniform(2), population=population) for made in (method(), method(**options)))
    assert_same_bits(plain.shared, told.shared)
    for client in range(3):
        assert_same_bits(plain.final[client], told.final[client])
        assert_same_bits(plain.adapted(client), told.adapted(client))
    assert [report.network_passes for report in plain.reports] == [report.network_passes for report in told.reports]
