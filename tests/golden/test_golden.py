"""Short loss curves of every method stand still; `make.py` says how they are written anew."""

from __future__ import annotations

import json

import pytest

from plures.methods import METHODS
from tests.golden.curves import OPTIONS, ROUNDS, curves, data
from tests.golden.make import FOLDER

STORED = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
CASES = [(method, variant) for method, variants in OPTIONS.items() for variant in variants]


def test_every_method_has_a_golden_curve():
    assert set(OPTIONS) == set(METHODS)
    assert {method: set(variants) for method, variants in OPTIONS.items()} == {
        method: set(stored["curves"]) for method, stored in STORED.items()
    }
    assert all(OPTIONS.values())


@pytest.mark.parametrize("method", STORED)
def test_the_data_are_those_the_curves_were_made_of(method):
    """If this fails, so will the curves: look at the data first."""
    assert data().fingerprint() == STORED[method]["how"]["data"]


@pytest.mark.parametrize(("method", "variant"), CASES, ids=[f"{method}: {variant}" for method, variant in CASES])
def test_the_loss_curve_stands_still(method, variant):
    stored, now = STORED[method]["curves"][variant], curves(method, variant)
    assert now.keys() == stored.keys()
    for phase, losses in stored.items():
        assert now[phase] == pytest.approx(losses, rel=1e-9), phase
    first = next(iter(stored.values()))
    assert len(first) == ROUNDS
    assert first[-1] < first[0]
