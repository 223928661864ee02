"""FedPer (METHODS 2.10)."""

from __future__ import annotations

import pytest
import torch

from plures.local import steps
from plures.methods import fedper
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Population,
    Product,
    assert_same_bits,
    part_of,
    play,
    toy_client,
    toy_loss,
)


def test_the_head_is_never_sent_and_not_counted():
    """Each of 2 clients sends the body's 4 * 3 + 3 = 15 values of 8 bytes, not the head's 3 * 3 + 3 = 12."""
    run = play(fedper(budget=steps(2)), 2, uniform(2))
    assert set(run.shared) == set(BODY)
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(BODY)
        assert set(result.state) == set(HEAD)
    assert [(report.bytes_up, report.bytes_down) for report in run.reports] == [(2 * 15 * 8, 2 * 15 * 8)] * 2


def test_body_and_head_move_together_from_the_old_point():
    """u = 1, v = 2 are body and head of F = (u v - 1)^2 / 2: u = 1 - 0.1 * 2 = 0.8 and v = 2 - 0.1 * 1 = 1.9.

    With the new v first, as Algorithm 2 lists it, u would be 1 - 0.1 * 0.9 * 1.9 = 0.829.
    """
    method = fedper(personal="v", lr=0.1, budget=steps(1), start="common")
    run = play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert float(run.shared["u"]) == pytest.approx(0.8, rel=1e-12)
    assert float(run.final[0]["v"]) == pytest.approx(1.9, rel=1e-12)


def test_heads_start_uniform_in_the_unit_interval_each_with_draws_of_its_own():
    states = play(fedper(budget=steps(1)), 1).states[0]
    values = torch.cat([value.flatten() for state in states.values() for value in state.values()])
    assert len(values.unique()) == 5 * 12
    assert values.min() >= 0
    assert values.max() < 1
    # The mean of 60 draws from U[0, 1) is 1/2 with standard deviation 1 / sqrt(12 * 60) = 0.037.
    assert abs(float(values.mean()) - 0.5) < 4 * 0.037


def test_adaptation_moves_the_head_alone():
    run = play(fedper(budget=steps(2), adapt=steps(3)), 2)
    own = run.adapted(2)
    assert_same_bits(part_of(own, BODY), run.shared)
    assert all(not torch.equal(own[name], run.final[2][name]) for name in HEAD)
