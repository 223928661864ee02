"""Scores of frozen weights: what a mask shows, how scores learn, follow votes, and are pruned once."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from plures.core.errors import InvalidModel
from plures.core.problem import eager_gradient
from plures.local import steps
from plures.local.scores import ScoreTraining, ThroughScores, Units, highest, own_votes, pruned, voted, with_scores

INPUTS = torch.zeros(1)
WEIGHTS = tensor([[2.0, -3.0], [5.0, 7.0]], dtype=torch.float64)


def state(scores, owned=None, vote=None, given=None):
    """The parameter w with scores, owned as a whole and without votes unless said otherwise."""
    scores = tensor(scores, dtype=torch.float64)
    nothing = torch.zeros_like(scores, dtype=torch.bool)
    return {
        "w": WEIGHTS[: len(scores)],
        "score.w": scores,
        "owned.w": ~nothing if owned is None else tensor(owned),
        "vote.w": nothing if vote is None else tensor(vote),
        "given.w": nothing if given is None else tensor(given),
    }


def training(units=None, **options):
    return ScoreTraining(first_budget=steps(1), first_score=0.01, pruning=lambda *_: units, **options)


# What the network sees


@pytest.mark.parametrize("how", ["sigmoid", "identity"])
def test_a_bit_is_one_where_a_score_is_positive_exactly(how):
    params = state([[0.3, -1e-300], [0.0, 1e-300]])
    assert torch.equal(
        ThroughScores(straight_through=how)(params, INPUTS)["w"], tensor([[2.0, 0.0], [0.0, 7.0]]).double()
    )


@pytest.mark.parametrize("how", ["sigmoid", "identity"])
def test_all_ones_show_the_weights_bit_for_bit(how):
    params = state([[0.3, 1e3], [0.7, 1e-9]])
    assert torch.equal(ThroughScores(straight_through=how)(params, INPUTS)["w"], WEIGHTS)
    assert torch.equal(voted(params, INPUTS)["w"], WEIGHTS)


def test_the_gradient_goes_straight_through():
    """F = sum of c * w * b: dF/dr = c w sigmoid'(r), or c w; nothing where an entry is not owned.

    With c = 10 and r = 0, ln 3, -ln 3: sigmoid'(0) = 1/4 and sigmoid'(+-ln 3) = 3/4 * 1/4 = 3/16, also where the bit
    is 0. So 10 * 2 / 4 = 5, -10 * 3 * 3/16 = -5.625, 10 * 5 * 3/16 = 9.375.
    """
    params = state([[0.0, math.log(3)], [-math.log(3), 1.0]], owned=[[True, True], [True, False]])
    slopes = {"sigmoid": [[5.0, -5.625], [9.375, 0.0]], "identity": [[20.0, -30.0], [50.0, 0.0]]}
    for how, expected in slopes.items():
        view = ThroughScores(straight_through=how)
        grads, value = eager_gradient(
            lambda point, view=view: 10 * view(params | point, INPUTS)["w"].sum(), {"score.w": params["score.w"]}
        )
        torch.testing.assert_close(grads["score.w"], tensor(expected).double(), rtol=1e-14, atol=0.0)
        assert float(value) == -30.0, "only the entry of score ln 3 has a bit of 1"


def test_votes_stand_before_scores_in_a_clients_model_and_nothing_else_is_seen():
    """Entry by entry: a vote for 1 against a score below 0, a vote for 0, no vote, and a vote on what is not owned."""
    params = state(
        [[-0.5, 0.5], [0.5, 0.5]],
        owned=[[True, True], [True, False]],
        vote=[[True, False], [False, True]],
        given=[[True, True], [False, True]],
    )
    assert torch.equal(voted(params, INPUTS)["w"], tensor([[2.0, 0.0], [5.0, 0.0]]).double())


# How scores follow votes


def test_a_voted_bit_turns_the_sign_of_a_score_and_leaves_its_size():
    """From (0.5, -0.25) by votes 0 and 1: (-0.5, 0.25); where nothing was voted, or is not owned, they stay."""
    params = state(
        [[0.5, -0.25], [0.5, -0.25]],
        owned=[[True, True], [True, False]],
        vote=[[False, True], [False, True]],
        given=[[True, True], [False, True]],
    )
    followed = training().obeying(params)["score.w"]
    assert torch.equal(followed, tensor([[-0.5, 0.25], [0.5, -0.25]]).double())


def test_a_score_of_zero_that_is_voted_on_gets_the_size_of_the_start():
    params = state([[0.0, 0.0], [0.0, 1.0]], vote=[[True, False], [True, True]], given=[[True, True], [False, True]])
    assert training().obeying(params)["score.w"].tolist() == [[0.01, -0.01], [0.0, 1.0]]


# One-shot pruning


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (Units(0, 1, 2), [[False, False], [True, True]]),  # means of rows: 0.5 and 1
        (Units(1, 1, 2), [[True, False], [True, False]]),  # means of columns: 1 and 0.5
        (Units(None, 3, 4), [[True, False], [True, True]]),
        (Units(None, 1, 4), [[False, False], [True, False]]),  # of the equal ones the first would come next
        (Units(None, 2, 4), [[True, False], [True, False]]),
        (Units(0, 2, 2), [[True, True], [True, True]]),
    ],
)
def test_pruning_keeps_the_units_of_the_highest_mean_scores(units, expected):
    score = tensor([[0.75, 0.25], [1.25, 0.75]], dtype=torch.float64)
    assert highest(score, units).tolist() == expected


def test_filters_are_units_too():
    score = torch.zeros(3, 2, 2, 2)
    score[1] += 1.0
    assert highest(score, Units(0, 1, 3)).sum((1, 2, 3)).tolist() == [0, 8, 0]
    assert highest(score, Units(1, 1, 2)).sum((0, 2, 3)).tolist() == [12, 0]


def test_what_is_pruned_has_no_score_any_more():
    after = pruned(state([[-0.5, 0.5], [2.0, 1.0]]), {"w": Units(0, 1, 2)})
    assert after["owned.w"].tolist() == [[False, False], [True, True]]
    assert after["score.w"].tolist() == [[0.0, 0.0], [2.0, 1.0]]
    assert not after["score.w"].signbit().any()


# What is added and sent


def test_everybody_starts_with_the_same_positive_scores_owns_all_and_knows_of_no_vote():
    added = with_scores({"w": WEIGHTS, "other": WEIGHTS}, ["w"], 0.01)
    assert {part: list(params) for part, params in added.items()} == {
        "scores": ["score.w"],
        "known": ["owned.w"],
        "shared": ["vote.w", "given.w"],
    }
    assert torch.equal(added["scores"]["score.w"], torch.full_like(WEIGHTS, 0.01))
    assert added["known"]["owned.w"].all()
    assert not any(value.any() for value in added["shared"].values())


@pytest.mark.parametrize("taken", ["score.w", "owned.w", "vote.w", "given.w"])
def test_a_model_with_such_a_name_is_told_to_rename_it(taken):
    word = taken.partition(".")[0]
    with pytest.raises(InvalidModel, match=rf"'{taken}', but '{word}\.' names scores and votes\. Rename"):
        with_scores({"w": WEIGHTS, taken: WEIGHTS}, ["w"], 0.01)


def test_a_client_receives_votes_on_its_own_entries_only_and_statistics_as_they_are():
    shared = {
        "vote.w": tensor([True, True, False]),
        "given.w": tensor([True, True, True]),
        "norm.running_mean": tensor([1.0]),
    }
    values, held = own_votes(shared, {"owned.w": tensor([True, False, True])})
    assert held is None
    assert {name: value.tolist() for name, value in values.items()} == {
        "vote.w": [True, False, False],
        "given.w": [True, False, True],
        "norm.running_mean": [1.0],
    }
