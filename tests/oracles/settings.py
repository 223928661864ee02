"""How long clients train and who takes part, for all comparisons with oracles."""

from __future__ import annotations

from itertools import product

import pytest

from plures.local import epochs, steps
from plures.participation import all_clients, binomial, random_size, uniform

ROUNDS = 4
BUDGETS = {"full batch": steps(3), "epochs of three": epochs(2, batch=3), "seven steps of two": steps(7, batch=2)}
SAMPLERS = {
    "everybody": all_clients(),
    "two of five": uniform(2),
    "by coin": binomial(0.25),
    "one to three": random_size(1, 3),
}
FAST = {
    ("full batch", "everybody"),
    ("full batch", "two of five"),
    ("epochs of three", "two of five"),
    ("seven steps of two", "by coin"),
}
settings = pytest.mark.parametrize(
    ("budget", "sampler"),
    [
        pytest.param(budget, sampler, id=f"{length}-{who}", marks=[] if (length, who) in FAST else pytest.mark.slow)
        for (length, budget), (who, sampler) in product(BUDGETS.items(), SAMPLERS.items())
    ],
)
