"""FedSpa: sparse local models, cut from one dense shared model by masks that move."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from plures.core.seeds import generator
from plures.core.types import Batch
from plures.local import adam, cosine, epochs, sgd, steps
from plures.methods import fedavg, fedspa
from plures.participation import uniform
from plures.server.weights import uniform as equally
from tests.helpers.methods import (
    BODY,
    HEAD,
    SEED,
    Given,
    Population,
    TinyNetwork,
    assert_near,
    assert_same_bits,
    federation,
    part_of,
    play,
)
from tests.oracles import fedspa as oracle_fedspa
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, settings

ALL = BODY + HEAD
BUDGET = epochs(2, batch=3)
COHORTS = Given([(0, 1), (1, 2), (2, 3), (0, 3)], 0.4)


def sparse(rounds=4, sampler=None, **options):
    return play(fedspa(**{"lr": 0.3, "budget": BUDGET, "density": 0.6} | options), rounds, sampler)


def masks_of(state):
    return {name: state[f"mask.{name}"] for name in ALL}


def ones(masks):
    return {name: int(mask.sum()) for name, mask in masks.items()}


def masked(weights, masks):
    return {name: torch.where(mask, weights[name], 0.0) for name, mask in masks.items()}


# The paper


def random_worth(round, client, weights):
    draws = generator(SEED, "grow", round, client)
    return {name: torch.rand(value.shape, generator=draws) for name, value in weights.items()}


DECAYED = sgd(0.3, weight_decay=0.1)


@settings
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {}),
        ({"search": "rsm"}, {"alpha": 0.0}),
        ({"same_masks": False}, {}),
        ({"same_masks": False, "per_coordinate": True}, {"by_holders": True}),
        ({"regrow": "random"}, {"worth": random_worth}),
        ({"lr": DECAYED, "density": 0.75, "prune_rate": cosine(0.8, ROUNDS)}, {"alpha": 0.8, "decay": 0.1}),
    ],
    ids=["dst", "rsm", "different masks", "per coordinate", "random regrowth", "weight decay"],
)
def test_fedspa_is_its_paper(budget, sampler, options, told):
    run = sparse(ROUNDS, sampler, budget=budget, **options)
    clients = run.population.batches
    weights, masks = oracle_fedspa.fedspa(
        clients,
        run.servers[0].shared,
        {client: masks_of(run.program.initial_state(client)) for client in range(5)},
        run.cohorts,
        batches_of(clients, budget),
        **{"rate": 0.3, "alpha": 0.5} | told,
    )
    assert_near(run.shared, weights)
    for client in range(5):
        assert_same_bits(masks_of(run.final[client]), masks[client])


class Row(nn.Module):
    """Four numbers, each times an input of its own: with inputs of one, F = |w - target|^2 / 2."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))

    def forward(self, inputs):
        return inputs * self.w


def row_client(*target):
    return Batch(torch.ones(2, 4, dtype=torch.float64), torch.tensor([target, target], dtype=torch.float64))


def test_two_rounds_by_hand():
    """From w = (1, 2, 3, 4) under the mask 1100, one step at rate 0.5 to w_i = (w + b_i) / 2 where the mask is one.

    b_0 = (0, 4, -6, 8): w_0 = (0.5, 3, 0, 0); 0.5 is dropped. The gradient w_0 - b_0 = (0.5, -1, 6, -8) is largest at
        the last: 0101.
    b_1 = (3, 2, 7, -5): w_1 = (2, 2, 0, 0); of two equal weights the first is dropped. (-1, 0, -7, 5): 0110.
    b_2 = (-1, 2, 0.5, 0): w_2 = (0, 2, 0, 0); 0 is dropped. (1, 0, -0.5, 0): the first, which comes back. 1100.
    w moves by the mean of (-0.5, 1), (1, 0) and (-1, 0): to (1 - 0.5 / 3, 2 + 1 / 3, 3, 4).
    Round 2: what is new in a mask starts from the dense w. It is the last, in which no mask moves.
    w_0 = (0, (7/3 + 4) / 2, 0, 6), w_1 = (0, (7/3 + 2) / 2, 5, 0), w_2 = (-1/12, (7/3 + 2) / 2, 0, 0);
    changes (-11/12, 5/6 - 1/6 - 1/6, 2, 2) in all; w = (5/6 - 11/36, 7/3 + 1/6, 3 + 2/3, 4 + 2/3).
    """
    method = fedspa(lr=0.5, budget=steps(1))
    given = replace(method, start=lambda beginning: {"mask.w": torch.tensor([True, True, False, False])})
    targets = Population([row_client(0, 4, -6, 8), row_client(3, 2, 7, -5), row_client(-1, 2, 0.5, 0)])
    loss = lambda output, target: ((output - target) ** 2).sum(dim=1).mean() / 2  # noqa: E731
    run = play(given, 2, population=targets, module=Row(), loss=loss)
    masks = [[state["mask.w"].int().tolist() for state in states.values()] for states in run.states]
    assert masks == [[[1, 1, 0, 0]] * 3, *[[[0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0]]] * 2]
    assert run.servers[1].shared["w"].tolist() == pytest.approx([5 / 6, 7 / 3, 3, 4], rel=1e-12)
    assert run.results[3][0].received["w"].tolist() == pytest.approx([0, 7 / 3, 0, 4], rel=1e-12)
    assert run.shared["w"].tolist() == pytest.approx([5 / 6 - 11 / 36, 2.5, 11 / 3, 14 / 3], rel=1e-12)


# Equivalences


@pytest.mark.parametrize("sampler", [None, uniform(2)], ids=["everybody", "two"])
@pytest.mark.parametrize("options", [{}, {"server": adam(0.1)}, {"lr": sgd(0.2, momentum=0.9, weight_decay=0.1)}])
@pytest.mark.parametrize("own", [{}, {"per_coordinate": True}, {"search": "rsm"}, {"regrow": "random"}])
def test_without_sparsity_it_is_fedavg_with_equal_weights(sampler, options, own):
    run = sparse(4, sampler, density=1.0, **options, **own)
    plain = play(fedavg(**{"lr": 0.3, "budget": BUDGET, "weight": equally} | options), 4, sampler)
    for one, other in zip(run.servers, plain.servers, strict=True):
        assert_same_bits(one.shared, other.shared)
    assert all(mask.all() for state in run.final.values() for mask in state.values())
    assert [report.losses for report in run.reports] == [report.losses for report in plain.reports]
    assert not torch.equal(run.shared["head.weight"], run.servers[0].shared["head.weight"])


@pytest.mark.parametrize("sampler", [None, uniform(2)], ids=["everybody", "two"])
def test_a_prune_rate_of_zero_is_the_random_static_mask(sampler):
    run, still = sparse(4, sampler, prune_rate=0.0), sparse(4, sampler, search="rsm")
    for one, other in zip(run.servers, still.servers, strict=True):
        assert_same_bits(one.shared, other.shared)
    for client in range(5):
        assert_same_bits(run.final[client], still.final[client])
        assert_same_bits(run.final[client], still.states[0][client])


class SubNetwork(nn.Module):
    """The tiny network with zeros for good where a mask is zero: its parameters are the others alone."""

    def __init__(self, weights, masks) -> None:
        super().__init__()
        self.masks, self.dense = masks, [TinyNetwork().double()]
        self.active = nn.ParameterDict({name.replace(".", "_"): weights[name][mask] for name, mask in masks.items()})

    def forward(self, inputs):
        whole = {
            name: torch.zeros_like(mask, dtype=inputs.dtype).masked_scatter(mask, self.active[name.replace(".", "_")])
            for name, mask in self.masks.items()
        }
        return torch.func.functional_call(self.dense[0], whole, (inputs,))


@pytest.mark.parametrize("sampler", [None, uniform(2)], ids=["everybody", "two"])
def test_static_masks_are_fedavg_with_equal_weights_on_the_sub_network(sampler):
    run = sparse(4, sampler, search="rsm", density=0.5)
    start, masks = run.servers[0].shared, masks_of(run.states[0][0])
    module = SubNetwork(start, masks)
    alone = play(fedavg(lr=0.3, budget=BUDGET, weight=equally), 4, sampler, module=module)
    for one, other in zip(run.servers, alone.servers, strict=True):
        held = {f"active.{name.replace('.', '_')}": one.shared[name][mask] for name, mask in masks.items()}
        assert_near(held, other.shared)
        assert all(torch.equal(one.shared[name][~mask], start[name][~mask]) for name, mask in masks.items())
    assert sum(value.numel() for value in alone.shared.values()) == sum(ones(masks).values()) < 27


def test_the_annealed_rate_is_a_cosine_schedule_over_the_run():
    run, told = sparse(4), sparse(4, prune_rate=cosine(0.5, 4))
    assert_same_bits(run.shared, told.shared)
    assert_same_bits(run.final[3], told.final[3])
    assert any(not torch.equal(run.final[3][name], run.states[0][3][name]) for name in run.final[3])


def test_the_defaults_are_those_of_the_paper_but_for_the_length_of_training():
    population = federation([40, 70, 33])
    plain = play(fedspa(), 3, uniform(2), population=population)
    promised = {"density": 0.5, "densities": "erk", "search": "dst", "regrow": "gradient", "prune_rate": cosine(0.5, 3)}
    others = {"lr": 0.1, "budget": epochs(1, batch=32), "weight": equally, "server": sgd(1.0), "same_masks": True}
    told = play(fedspa(**promised, **others), 3, uniform(2), population=population)
    assert_same_bits(plain.shared, told.shared)
    for client in range(3):
        assert_same_bits(plain.final[client], told.final[client])
        assert_same_bits(plain.adapted(client), told.adapted(client))
    assert plain.program.method.judged_by == "personal"


# Models


def test_a_client_is_judged_by_its_new_mask_on_the_new_dense_model():
    run = sparse(2, COHORTS, prune_rate=0.5)
    assert any(not torch.equal(run.final[1][name], run.states[1][1][name]) for name in run.final[1])
    for client in range(5):
        assert_same_bits(part_of(run.model(client), ALL), masked(run.shared, masks_of(run.final[client])))


def test_finetuning_keeps_to_the_mask_and_moves_all_that_it_keeps():
    run = sparse(3)
    for client in range(5):
        before, after = run.model(client), run.adapted(client)
        for name, mask in masks_of(run.final[client]).items():
            assert torch.equal(after[f"mask.{name}"], mask)
            assert not after[name][~mask].any()
            assert (after[name] != before[name]).any()
