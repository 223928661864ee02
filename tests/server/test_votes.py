"""A vote on truth values, by sums of bits and a server step."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from plures.core.errors import InvalidConfig
from plures.core.sums import empty_sum
from plures.core.types import Facts
from plures.core.visit import Upload
from plures.server.votes import Majority, counted

FACTS = Facts(examples=7, cohort_examples=9, all_examples=9, cohort_clients=2, all_clients=2, inclusion=1.0)


def decided(bits, voters, before=None, quorum=2):
    """What the server holds after a vote; every row of `bits` and `voters` is a client's."""
    total = empty_sum()
    for mine, about in zip(bits, voters, strict=True):
        upload = Upload({"vote.w": tensor(mine) > 0, "given.w": tensor(about) > 0})
        total.add(upload, share=counted.share(FACTS), divisor=0.0, per_coordinate=False)
    nothing = torch.zeros(len(bits[0]), dtype=torch.bool)
    shared = {"vote.w": nothing, "given.w": nothing} | (before or {})
    rule = Majority(bits="vote.", voters="given.", quorum=quorum)
    counts = total.direction(divided=counted.per is not None)
    moved, kept = rule.update(counts, rule.init(shared), shared, rule.lr(1))
    assert kept == {}
    return {name: value.int().tolist() for name, value in moved.items()}


def test_more_than_half_of_the_owners_decide_and_a_tie_is_a_zero():
    """Of three owners 0, 1, 2 and 3 say one; then of two 0, 1 and 2: [mean > 1/2]."""
    bits = [[0, 1, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0]]
    voters = [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]]
    assert decided(bits, voters) == {"vote.w": [0, 0, 1, 1, 0, 0, 1], "given.w": [1] * 7}


def test_below_the_quorum_an_entry_stays_as_it_was():
    """No owner, one, and two, once before any vote and once after a vote for 0 of the middle entry."""
    bits, voters = [[0, 1, 1], [0, 0, 1]], [[0, 1, 1], [0, 0, 1]]
    assert decided(bits, voters) == {"vote.w": [0, 0, 1], "given.w": [0, 0, 1]}
    before = {"vote.w": tensor([True, False, False]), "given.w": tensor([True, True, False])}
    assert decided(bits, voters, before) == {"vote.w": [1, 0, 1], "given.w": [1, 1, 1]}


@pytest.mark.parametrize(("quorum", "given"), [(1, [1, 1, 1]), (2, [0, 1, 1]), (3, [0, 0, 1]), (4, [0, 0, 0])])
def test_the_quorum_counts_owners_and_not_ones(quorum, given):
    bits, voters = [[0, 0, 0]] * 3, [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert decided(bits, voters, quorum=quorum)["given.w"] == given


def test_forty_clients_are_counted_exactly():
    """21 of 40 are more than half, 20 are not."""
    bits = [[client < 20, client < 21] for client in range(40)]
    assert decided(bits, [[1, 1]] * 40)["vote.w"] == [0, 1]


@pytest.mark.parametrize("quorum", [0, -1, 1.5, True])
def test_a_quorum_is_a_number_of_clients(quorum):
    with pytest.raises(InvalidConfig, match="quorum"):
        Majority(bits="vote.", voters="given.", quorum=quorum)
