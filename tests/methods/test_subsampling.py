"""Subsampling: FedAvg with randomly masked uploads (METHODS 2.24)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig
from plures.core.seeds import generator
from plures.core.visit import Trained
from plures.local import adam, epochs, sgd
from plures.local.subsampling import SubsampledDelta
from plures.methods import fedavg, subsampling
from plures.participation import binomial, uniform
from plures.server.weights import samples
from plures.server.weights import uniform as equally
from tests.helpers.methods import (
    CLASSES,
    INPUTS,
    SEED,
    Given,
    NormedNetwork,
    assert_near,
    assert_same_bits,
    network,
    part_of,
    play,
)
from tests.oracles import subsampling as oracle_subsampling
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, settings

BUDGET = epochs(2, batch=3)
SIZE = 27
"""Values of the tiny network: 12 + 3 + 9 + 3."""


def tiny(rounds=3, sampler=None, **options):
    return play(subsampling(**{"lr": 0.3, "budget": BUDGET} | options), rounds, sampler)


def flat(params):
    return torch.cat([value.flatten() for value in params.values()])


# Against the paper


def ten_of_27(round, client):
    """The same keyed draws as in Plures: only these, and the batches, are common."""
    order = torch.randperm(SIZE, generator=generator(SEED, "subsample", round, client))
    return torch.zeros(SIZE, dtype=torch.float64).index_fill(0, order[:10], 1.0)


@settings
@pytest.mark.parametrize("rescale", [False, True], ids=["as they are", "rescaled"])
def test_subsampling_is_its_paper(budget, sampler, rescale):
    """Of 27 values a share of 0.37 is 9.99, so 10; where that is made up for, the factor is 27 / 10."""
    run = play(subsampling(lr=0.3, budget=budget, keep=0.37, rescale=rescale, server=0.7), ROUNDS, sampler)
    clients = run.population.batches
    weights = oracle_subsampling.subsampling(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        ten_of_27,
        lr=0.3,
        factor=2.7 if rescale else 1.0,
        server_lr=0.7,
    )
    assert_near(run.shared, weights)
    assert not any(run.final.values())


# What is sent


@pytest.fixture
def vector():
    """(visit, trained) of a client whose four shared values moved by 1, 2, 3 and 4."""
    visit, _ = tiny(1).results[0]
    trained = Trained({"w": -torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)}, {}, {})
    return replace(visit, received={"w": torch.zeros(4, dtype=torch.float64)}), trained


@pytest.mark.parametrize("rescale", [False, True])
def test_over_all_masks_of_two_among_four_the_mean_is_half_the_update_or_all_of_it(vector, monkeypatch, rescale):
    """Each value is in 3 of the 6 masks with two ones: the mean is 3 / 6 of it, and with the factor 2, all of it."""
    sent = []
    for chosen in combinations(range(4), 2):
        order = torch.tensor([*chosen, *(place for place in range(4) if place not in chosen)])
        monkeypatch.setattr(torch, "randperm", lambda size, generator, order=order: order)
        upload = SubsampledDelta(keep=0.5, exact=True, rescale=rescale)(*vector)
        assert upload.held["w"].nonzero().flatten().tolist() == list(chosen)
        sent.append(upload.values["w"])
    mean = torch.stack(sent).mean(0).tolist()
    assert mean == pytest.approx([1, 2, 3, 4] if rescale else [0.5, 1, 1.5, 2], rel=1e-15)


@pytest.mark.parametrize("rescale", [False, True])
def test_over_all_masks_weighed_by_their_probability_coins_give_the_same_mean(vector, monkeypatch, rescale):
    """A mask with k ones has probability 0.25^k 0.75^(4-k); a value is sent where its draw is below 0.25."""
    mean = torch.zeros(4, dtype=torch.float64)
    for ones in product([True, False], repeat=4):
        draws = torch.tensor([0.1 if one else 0.9 for one in ones])
        monkeypatch.setattr(torch, "rand", lambda size, generator, draws=draws: draws)
        upload = SubsampledDelta(keep=0.25, exact=False, rescale=rescale)(*vector)
        mean += 0.25 ** sum(ones) * 0.75 ** (4 - sum(ones)) * upload.values["w"]
    assert mean.tolist() == pytest.approx([1, 2, 3, 4] if rescale else [0.25, 0.5, 0.75, 1], rel=1e-15)


@pytest.mark.parametrize(("keep", "count"), [(0.5, 14), (0.1, 3), (0.99, 27), (0.01, 1)])
def test_exactly_that_share_of_all_values_is_sent_and_one_at_least(keep, count):
    """13.5 is rounded to the even 14, 2.7 to 3, 26.73 to 27; 0.27 would be none. Two clients send in each round."""
    run = tiny(3, uniform(2), keep=keep)
    assert [report.values_up for report in run.reports] == [2 * count] * 3
    assert [report.values_down for report in run.reports] == [2 * SIZE] * 3
    for _, result in run.results:
        assert sum(int(mask.sum()) for mask in result.upload.held.values()) == count


def test_by_coin_about_that_share_is_sent():
    """200 visits of 27 values: 0.3 of 5400 is 1620, with a standard deviation of sqrt(5400 * 0.3 * 0.7) = 34."""
    run = tiny(40, keep=0.3, exact=False, budget=epochs(1))
    sent = sum(report.values_up for report in run.reports)
    assert 1620 - 4 * 34 < sent < 1620 + 4 * 34
    assert len({report.values_up for report in run.reports}) > 1


def test_at_half_it_costs_three_quarters_of_what_fedavg_costs():
    """(1 + 0.5) / 2, counted in values."""
    module = nn.Linear(INPUTS, CLASSES, bias=False).double()  # 12 values, of which 6 are sent
    half = play(subsampling(keep=0.5), 2, module=module).reports
    whole = play(fedavg(), 2, module=module).reports
    for some, all_of_it in zip(half, whole, strict=True):
        down_and_up = all_of_it.values_down + all_of_it.values_up
        assert some.values_down + some.values_up == 0.75 * down_and_up > 0


def test_what_is_sent_is_the_change_where_the_mask_is_one_and_plain_zero_elsewhere():
    for visit, result in tiny(1, keep=0.4).results:
        for name, value in result.upload.values.items():
            held, change = result.upload.held[name], visit.received[name] - result.trained[name]
            assert torch.equal(value[held], change[held])
            assert not torch.signbit(value[~held]).any()
            assert not value[~held].any()


def test_masks_are_drawn_anew_for_every_round_and_client_and_seed():
    runs = [play(subsampling(budget=BUDGET), 3, seed=seed) for seed in (1, 2)]
    masks = [flat(result.upload.held) for run in runs for _, result in run.results]
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks) == 2 * 3 * 5


def test_every_value_has_the_same_chance_whatever_tensor_it_is_in():
    """300 visits, each with 14 of 27: 155.6 for each value, with a standard deviation of 8.7."""
    run = tiny(60, budget=epochs(1))
    counts = sum(flat(result.upload.held).int() for _, result in run.results)
    assert int(counts.sum()) == 300 * 14
    assert 155.6 - 4.5 * 8.7 < int(counts.min()) <= int(counts.max()) < 155.6 + 4.5 * 8.7


# What the server does


def test_the_server_divides_by_the_cohort_and_leaves_what_nobody_sent():
    """By hand from the uploads of round 1: a value that k of 5 clients sent moves by the sum of k changes over 5."""
    run = tiny(1, keep=0.2)
    total = sum(flat(result.upload.values) for _, result in run.results)
    senders = sum(flat(result.upload.held).int() for _, result in run.results)
    before, after = flat(run.servers[0].shared), flat(run.shared)
    torch.testing.assert_close(after, before - total / 5, rtol=1e-13, atol=1e-15)
    assert torch.equal(after[senders == 0], before[senders == 0])
    assert {0, 1, 2} <= set(senders.tolist())


def test_what_nobody_sent_stays_whatever_the_server_remembers():
    run = tiny(4, Given([(0,), (1,), (2,), (3,)]), keep=0.3, server=sgd(1.0, momentum=0.9))
    for number, (_, result) in enumerate(run.results):
        held = result.upload.held
        for name, value in run.servers[number].shared.items():
            after = run.servers[number + 1].shared[name]
            assert torch.equal(after[~held[name]], value[~held[name]])
            assert not torch.equal(after, value) or not held[name].any()


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "by coin"])
@pytest.mark.parametrize(
    "options",
    [{}, {"rescale": True}, {"lr": sgd(0.1, momentum=0.9), "clip_norm": 0.5}, {"server": adam(0.05)}],
    ids=["plain", "rescaled", "momentum", "server adam"],
)
@pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])
def test_who_sends_everything_runs_fedavg_with_equal_weights(exact, options, sampler):
    run = tiny(4, sampler, keep=1.0, exact=exact, **options)
    plain = {name: value for name, value in options.items() if name != "rescale"}
    other = play(fedavg(**{"lr": 0.3, "budget": BUDGET, "weight": equally} | plain), 4, sampler)
    for round in range(5):
        assert_same_bits(run.servers[round].shared, other.servers[round].shared)
    for one, two in zip(run.reports, other.reports, strict=True):
        assert (one.losses, one.network_passes) == (two.losses, two.network_passes)
        assert (one.values_up, one.values_down) == (two.values_up, two.values_down)


def test_weights_may_go_by_examples():
    """One round of everything sent is FedAvg's by examples, and differs from that with equal weights."""
    run, other = tiny(1, keep=1.0, weight=samples), play(fedavg(lr=0.3, budget=BUDGET), 1)
    assert_same_bits(run.shared, other.shared)
    assert not torch.equal(flat(run.shared), flat(tiny(1, keep=1.0).shared))


def test_running_statistics_are_sent_whole_and_it_is_judged_by_the_shared_model():
    run = play(subsampling(buffers="shared", budget=BUDGET), 1, module=network(NormedNetwork))
    names = [name for name in run.shared if name.startswith("norm.running")]
    for _, result in run.results:
        assert part_of(result.buffers, names).keys() == set(names)
        assert all(value.all() for value in part_of(result.buffers, names).values())
    assert run.program.method.judged_by == "global"
    assert list(run.store.clients()) == []


# What is refused


@pytest.mark.parametrize(
    "options",
    [
        {"keep": 0.0},
        {"keep": -0.5},
        {"keep": 1.01},
        {"keep": float("nan")},
        {"keep": "0.5"},
        {"keep": True},
        {"lr": -0.1},
        {"clip_norm": 0.0},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        subsampling(**options)
