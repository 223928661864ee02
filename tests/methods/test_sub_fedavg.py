"""Sub-FedAvg: masks that shrink on each client, averages over those who hold a coordinate (METHODS 2.23)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import plures
from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.types import Batch
from plures.data import federate
from plures.local import adam, epochs, sgd, steps
from plures.local.masks import masks_in
from plures.methods import fedavg, sub_fedavg
from plures.participation import binomial, uniform
from plures.server.weights import uniform as equally
from tests.helpers.methods import (
    BODY,
    HEAD,
    SIZES,
    Given,
    Population,
    Product,
    assert_near,
    assert_same_bits,
    federation,
    network,
    play,
    toy_client,
    toy_loss,
)
from tests.oracles import sub_fedavg as oracle_sub_fedavg
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, settings

ALL = BODY + HEAD
WEIGHTS = ("body.weight", "head.weight")
BUDGET = epochs(2, batch=3)
EAGER = {"lr": 0.3, "budget": BUDGET, "prune_share": 0.15, "accuracy_threshold": 0.0}
"""Of 12 and 9 weights 2 each go at a time: ceil(0.15 * 11) and ceil(0.15 * 8)."""


def tiny(rounds=3, sampler=None, **options):
    return play(sub_fedavg(**EAGER | options), rounds, sampler)


@cache
def usual():
    """Ten rounds of everybody; in the end most are at the target."""
    return tiny(10)


def ones(state):
    """How many weights a client has left."""
    return sum(int(mask.sum()) for name, mask in masks_in(state).items() if name in WEIGHTS)


def history(run, client):
    return [ones(states[client]) for states in run.states]


# Against the paper


@settings
@pytest.mark.parametrize(
    ("share", "target", "distance", "accuracy"),
    [(0.15, 0.5, 1e-4, 0.0), (0.4, 0.3, 0.15, 0.0), (0.25, 0.6, 1e-4, 0.45)],
    ids=["eager", "only far", "only accurate"],
)
def test_sub_fedavg_is_its_paper(budget, sampler, share, target, distance, accuracy):
    method = sub_fedavg(
        lr=0.5,
        budget=budget,
        prune_share=share,
        target_density=target,
        distance_threshold=distance,
        accuracy_threshold=accuracy,
        server=0.9,
    )
    run = play(method, ROUNDS, sampler)
    clients = run.population.batches
    weights, masks = oracle_sub_fedavg.sub_fedavg(
        clients,
        run.servers[0].shared,
        run.cohorts,
        batches_of(clients, budget),
        lr=0.5,
        share=share,
        target=target,
        distance=distance,
        accuracy=accuracy,
        server_lr=0.9,
    )
    assert_near(run.shared, weights)
    for client, mask in masks.items():
        assert {name: value.tolist() for name, value in masks_in(run.final[client]).items()} == {
            name: (value > 0).tolist() for name, value in mask.items()
        }


def test_the_comparison_above_is_between_masks_that_did_shrink():
    runs = [tiny(ROUNDS, lr=0.5, budget=budget) for budget in (steps(3), BUDGET, steps(7, batch=2))]
    for run in runs:
        assert min(ones(state) for state in run.final.values()) < 21


# What is pruned, and when


def test_masks_only_shrink_and_end_at_the_target_to_the_weight():
    """Of 21 weights 0.5 is 10.5, so 11 stay: 21 - 4 = 17, then ceil(0.15 * 9) + ceil(0.15 * 6) = 3 less each time."""
    run = usual()
    for client in range(5):
        counts = history(run, client)
        assert counts == sorted(counts, reverse=True)
        assert set(counts) <= {21, 17, 14, 11}
        for before, after in zip(run.states, run.states[1:], strict=False):
            for name, mask in masks_in(after[client]).items():
                assert not (mask & ~masks_in(before[client])[name]).any()
    assert {counts for client in range(5) for counts in history(run, client)} == {21, 17, 14, 11}


@pytest.mark.parametrize(("target", "least"), [(0.9, 19), (0.6, 13), (0.34, 8)])
def test_the_last_step_is_cut_short_at_the_target(target, least):
    """Of 21 weights 18.9, 12.6 and 7.14, so 19, 13 and 8 stay; whole steps go to 17, 14, 11, 9 and 7."""
    run = tiny(10, target_density=target)
    for client in range(5):
        assert min(history(run, client)) >= least
    assert min(min(history(run, client)) for client in range(5)) == least


def test_biases_are_never_pruned():
    for state in usual().final.values():
        assert all(masks_in(state)[name].all() for name in ("body.bias", "head.bias"))
        assert masks_in(state).keys() == set(ALL)


@pytest.mark.parametrize(
    "options",
    [{"accuracy_threshold": 1.01}, {"distance_threshold": 1.0}, {"prune_share": 0.0}, {"lr": 0.0}],
    ids=["accuracy", "distance", "share", "rate"],
)
def test_who_never_may_prune_never_prunes(options):
    """No accuracy is above 1 and no distance either; without steps the masks of both epochs are the same."""
    run = tiny(5, **options)
    assert all(history(run, client) == [21] * 6 for client in range(5))


def test_who_is_not_good_enough_without_them_keeps_its_weights():
    """In the first round, in which all start alike, whoever prunes at some threshold does so at every lower one."""
    pruned = [
        {client for client, state in tiny(1, accuracy_threshold=bound).final.items() if ones(state) < 21}
        for bound in (0.0, 0.4, 0.6, 1.0)
    ]
    assert pruned[0] >= pruned[1] >= pruned[2] >= pruned[3] == set()
    assert pruned[0] > pruned[2]


def test_an_accuracy_that_just_meets_the_threshold_is_not_above_it():
    """With that of each client's sparse network as the threshold the client stays dense, and with a little less not."""
    eager = tiny(1)
    pruned = [(visit, result) for visit, result in eager.results if ones(result.state) < 21]
    assert pruned
    for visit, result in pruned:
        accuracy = accuracy_of(eager, result.trained | result.state, visit.data)
        assert 0 < accuracy < 1
        for threshold, left in ((accuracy, 21), (accuracy - 1e-9, ones(result.state))):
            run = tiny(1, accuracy_threshold=threshold)
            assert ones(run.final[visit.client]) == left


def accuracy_of(run, params, batch):
    return int((run.output(params, batch.inputs).argmax(dim=1) == batch.targets).sum()) / batch.num_examples


def test_the_mask_of_the_first_epoch_is_that_of_the_first_epoch():
    """FedAvg of one epoch takes the same steps up to there; the percentiles are numpy's."""
    one_epoch = play(fedavg(lr=0.3, budget=epochs(1, batch=3)), 1)
    differing = 0
    for (_, result), (_, early) in zip(tiny(1).results, one_epoch.results, strict=True):
        for name in WEIGHTS:
            expected = above_percentile(early.trained[name])
            assert torch.equal(result.trained[f"candidate.{name}"], expected)
            differing += not torch.equal(above_percentile(result.trained[name]), expected)
    assert differing > 0


def above_percentile(weight):
    return weight.abs() >= float(np.percentile(weight.abs().numpy(), 15))


def test_a_client_prunes_if_the_two_masks_differ_by_more_than_the_threshold():
    """In the first round: M1 as noted, M2 by numpy's percentiles, and the mean of the two tensors' distances."""
    for threshold in (1e-4, 0.1, 0.17, 0.2):
        run = tiny(1, distance_threshold=threshold)
        for _, result in run.results:
            apart = [result.trained[f"candidate.{name}"] != above_percentile(result.trained[name]) for name in WEIGHTS]
            distance = sum(float(some.double().mean()) for some in apart) / 2
            assert (ones(result.state) < 21) == (distance > threshold)


def test_nothing_of_the_first_epoch_is_kept_or_sent():
    run = usual()
    assert run.final[0].keys() == {f"mask.{name}" for name in ALL}
    assert run.program.initial_state(0).keys() == run.final[0].keys()
    for _, result in run.results:
        assert result.upload.values.keys() == set(ALL)
        assert result.known.keys() <= {f"mask.{name}" for name in WEIGHTS}


# What is sent, and what the server makes of it


def test_only_what_a_mask_keeps_goes_down_and_only_what_the_next_mask_keeps_goes_up():
    """Six biases are always sent; the server is told of masks that have changed."""
    run = usual()
    for number, report in enumerate(run.reports):
        before, after = ([ones(state) + 6 for state in run.states[at].values()] for at in (number, number + 1))
        assert (report.values_down, report.values_up) == (sum(before), sum(after))
    for visit, result in run.results:
        for name, mask in masks_in(visit.state).items():
            assert not visit.received[name][~mask].any()
            assert torch.equal(result.upload.held[name], masks_in(result.state)[name])
            assert not result.upload.values[name][~masks_in(result.state)[name]].any()


def held_after(run, number):
    """For each name how many clients of a round hold each coordinate from then on."""
    results = [result for visit, result in run.results if visit.round == number + 1]
    return {name: sum(result.upload.held[name].int() for result in results) for name in ALL}, results


def test_a_coordinate_is_the_mean_over_those_who_hold_it_from_now_on():
    """So one held by a single client is that client's value, and one that a client has just pruned is none of its."""
    run, alone, just_pruned = tiny(8, Given([(0, 1, 2)])), 0, 0
    for number in range(8):
        counts, results = held_after(run, number)
        old = held_before(run, number)
        for name in WEIGHTS:
            total = sum(result.trained[name] * result.upload.held[name] for result in results)
            some, after = counts[name] > 0, run.servers[number + 1].shared[name]
            torch.testing.assert_close(after[some], (total / counts[name])[some], rtol=1e-12, atol=1e-14)
            assert torch.equal(after[~some], run.servers[number].shared[name][~some])
            alone += int((counts[name] == 1).sum())
            just_pruned += int(((counts[name] < old[name]) & some).sum())
    assert alone > 0
    assert just_pruned > 0


def held_before(run, number):
    return {name: sum(masks_in(run.states[number][i])[name].int() for i in (0, 1, 2)) for name in ALL}


def test_what_nobody_holds_stays_bitwise_as_it_was():
    run, unheld = tiny(8, Given([(0,), (1,)]), server=sgd(1.0, momentum=0.9)), 0
    for number in range(8):
        counts, _ = held_after(run, number)
        for name in WEIGHTS:
            nobody = counts[name] == 0
            before, after = run.servers[number].shared[name], run.servers[number + 1].shared[name]
            assert torch.equal(after[nobody], before[nobody])
            unheld += int(nobody.sum())
    assert unheld > 0


def test_a_client_predicts_with_its_own_mask_and_the_latest_shared_model():
    run = usual()
    inputs = run.population.batches[1].inputs
    cut = {name: run.shared[name] * mask for name, mask in masks_in(run.final[1]).items()}
    expected = torch.tanh(inputs @ cut["body.weight"].T + cut["body.bias"]) @ cut["head.weight"].T + cut["head.bias"]
    torch.testing.assert_close(run.output(run.model(1), inputs), expected, rtol=1e-12, atol=1e-14)
    assert run.program.method.judged_by == "personal"


def test_fine_tuning_moves_only_what_the_mask_keeps_and_leaves_the_mask():
    run = usual()
    tuned = run.adapted(1)
    for name, mask in masks_in(run.final[1]).items():
        assert torch.equal(tuned[f"mask.{name}"], mask)
        assert not tuned[name][~mask].any()
        assert not torch.equal(tuned[name], run.model(1)[name])


def test_it_has_no_capacity_for_everybody_starts_dense():
    method = sub_fedavg()
    assert method.capacity is None
    assert history(tiny(0), 0) == [21]


# Where it is FedAvg


@pytest.mark.parametrize(
    "options",
    [{}, {"lr": sgd(0.1, momentum=0.9), "clip_norm": 0.5}, {"server": adam(0.05)}, {"budget": steps(5, batch=3)}],
    ids=["plain", "momentum", "server adam", "steps"],
)
@pytest.mark.parametrize("never", [{"target_density": 1.0}, {"accuracy_threshold": 2.0}], ids=["target", "accuracy"])
@pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])
def test_who_never_prunes_runs_fedavg_with_equal_weights(never, options, sampler):
    run = tiny(4, sampler, **never, **options)
    other = play(fedavg(**{"lr": 0.3, "budget": BUDGET, "weight": equally} | options), 4, sampler)
    for round in range(5):
        assert_same_bits(run.servers[round].shared, other.servers[round].shared)
    for one, two in zip(run.reports, other.reports, strict=True):
        assert (one.losses, one.network_passes) == (two.losses, two.network_passes)
        assert (one.values_up, one.values_down) == (two.values_up, two.values_down)


# Whole channels


class Convolutional(nn.Module):
    """Pictures of 6 x 6: two convolutions, the first with a norm; 54 + 216 + 288 + 24 = 582 weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 4, 3, padding=1)
        self.hidden = nn.Linear(4 * 3 * 3, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs):
        maps = torch.relu(self.norm(self.first(inputs)))
        maps = nn.functional.max_pool2d(torch.relu(self.second(maps)), 2)
        return self.head(torch.relu(self.hidden(maps.flatten(1))))


CONVOLUTIONAL = ("first.weight", "second.weight", "hidden.weight", "head.weight")


@cache
def hybrid(target=0.5):
    draws = torch.Generator().manual_seed(5)
    clients = [
        Batch(
            torch.randn(size, 1, 6, 6, generator=draws, dtype=torch.float64),
            torch.randint(3, (size,), generator=draws),
        )
        for size in (8, 10, 12)
    ]
    method = sub_fedavg(
        target_density=target,
        prune_share=0.2,
        accuracy_threshold=0.0,
        variant="hybrid",
        lr=0.2,
        budget=epochs(3, batch=4),
        buffers="personal",
    )
    return play(method, 10, population=Population(clients), module=network(Convolutional))


def channels_left(masks):
    return [masks[name].flatten(1).any(1) for name in ("first.weight", "second.weight")]


def test_hybrid_prunes_whole_channels_with_all_that_belongs_to_them():
    """A filter with its bias and norm, and what the next layer would make of it: 9 places in the linear layer each."""
    for states in hybrid().states:
        for state in states.values():
            masks = masks_in(state)
            first, second = channels_left(masks)
            assert torch.equal(masks["first.weight"], first.view(6, 1, 1, 1).expand(6, 1, 3, 3))
            assert torch.equal(masks["second.weight"], (second[:, None] & first).view(4, 6, 1, 1).expand(4, 6, 3, 3))
            for name in ("first.bias", "norm.weight", "norm.bias"):
                assert torch.equal(masks[name], first)
            assert torch.equal(masks["second.bias"], second)
            assert not masks["hidden.weight"].view(8, 4, 9)[:, ~second].any()
            assert masks["hidden.bias"].all()
            assert masks["head.bias"].all()


def test_hybrid_prunes_channels_first_and_weights_of_linear_layers_as_well():
    """Of 6 and 4 channels one each at a time, ceil(0.2 * 5) and ceil(0.2 * 3); of linear weights about a fifth."""
    run = hybrid()
    firsts = [masks_in(next(s for s in history if ones_of(s) < 582)) for history in histories(run)]
    for masks in firsts:
        first, second = channels_left(masks)
        assert (int(first.sum()), int(second.sum())) == (5, 3)
        assert int(masks["hidden.weight"].sum()) == 8 * 27 - 43  # of 3 channels with 9 places; ceil(0.2 * 215)
        assert int(masks["head.weight"].sum()) == 24 - 5  # ceil(0.2 * 23)


def histories(run):
    return [[states[client] for states in run.states] for client in range(3)]


def ones_of(state):
    return sum(int(masks_in(state)[name].sum()) for name in CONVOLUTIONAL)


def test_hybrid_never_goes_below_the_target_and_reaches_it():
    """Of 582 weights 291 stay."""
    counts = [[ones_of(state) for state in history] for history in histories(hybrid())]
    for own in counts:
        assert own == sorted(own, reverse=True)
        assert own[0] == 582
        assert own[-1] >= 291
    assert min(own[-1] for own in counts) == 291


def test_weights_take_what_room_channels_have_left():
    """Of 582 weights 524 stay, so 58 may go. A channel of the first convolution takes 9 + 36 with it; one of the second
    would take 45 + 72, and stays; of linear layers 63 would go, ceil(0.2 * 287) + ceil(0.2 * 23), but only 13 may.
    """
    for history in histories(hybrid(0.9)):
        masks = masks_in(history[-1])
        assert {ones_of(state) for state in history} == {582, 524}
        assert [int(left.sum()) for left in channels_left(masks)] == [5, 4]
        assert int(masks["hidden.weight"].sum() + masks["head.weight"].sum()) == 312 - 13


def test_what_is_pruned_with_a_channel_would_have_multiplied_zeros():
    """The network with filters, biases and norms pruned, but the next layers whole, gives the same outputs."""
    run = hybrid()
    run.program.binding(0).task.train(False)
    for client in range(3):
        params, inputs = run.model(client), run.population.batches[client].inputs
        masks = masks_in(params)
        first, second = channels_left(masks)
        assert not first.all()
        whole = params | {
            "mask.second.weight": second.view(4, 1, 1, 1).expand(4, 6, 3, 3),
            "mask.hidden.weight": (masks["hidden.weight"].view(8, 4, 9) | ~second.view(1, 4, 1)).view(8, 36),
        }
        noise = {name: params[name] + (params[name] == 0) for name in ("second.weight", "hidden.weight")}
        torch.testing.assert_close(run.output(whole | noise, inputs), run.output(params, inputs))


def test_hybrid_counts_what_is_sent_by_the_masks_of_all_parameters():
    run = hybrid()
    for number, report in enumerate(run.reports):
        masks = [masks_in(state) for state in run.states[number + 1].values()]
        assert report.values_up == sum(int(mask.sum()) for own in masks for mask in own.values())
    assert run.reports[-1].values_up < 0.6 * run.reports[0].values_down


# What is refused


def test_real_numbers_as_targets_are_refused_before_training():
    numbers = Batch(torch.randn(20, 4), torch.randn(20))
    data, model = federate([(numbers, numbers)] * 2, goal="regression"), nn.Linear(4, 1)
    with pytest.raises(InvalidConfig, match="accuracy_threshold = 0"):
        plures.run(sub_fedavg(), data, model, rounds=1)
    result = plures.run(sub_fedavg(accuracy_threshold=0.0), data, model, rounds=1)
    assert result.status == "finished"


def test_they_are_refused_by_the_engine_as_well():
    module = nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 1).double(), nn.Flatten(0))
    with pytest.raises(InvalidConfig, match="there is no accuracy"):
        play(sub_fedavg(), 1, population=Population([toy_client()]), module=module, loss=toy_loss)


def test_a_network_with_nothing_to_prune_is_refused():
    with pytest.raises(InvalidModel, match="no convolution and no linear layer"):
        play(sub_fedavg(), 0, population=federation([3]), module=Product())


def test_a_network_with_the_name_of_a_mask_to_be_is_told_to_rename_it():
    module = nn.Sequential()
    module.add_module("candidate", nn.Linear(4, 3))
    with pytest.raises(InvalidModel, match=r"'candidate\.weight', but 'candidate\.' names masks to be"):
        play(sub_fedavg(), 0, population=federation(SIZES), module=module)


@pytest.mark.parametrize("count", [0, 1])
def test_a_budget_of_less_than_two_epochs_is_refused_where_there_is_something_to_prune(count):
    with pytest.raises(InvalidConfig, match="Give two epochs or more"):
        sub_fedavg(budget=epochs(count))
    assert sub_fedavg(budget=epochs(count), target_density=1.0).name == "sub_fedavg"


@pytest.mark.parametrize(
    "options",
    [
        {"target_density": 0.0},
        {"target_density": 1.5},
        {"target_density": float("nan")},
        {"target_density": "0.5"},
        {"prune_share": 1.0},
        {"prune_share": -0.1},
        {"prune_share": float("nan")},
        {"distance_threshold": -1e-4},
        {"distance_threshold": float("inf")},
        {"accuracy_threshold": -0.5},
        {"accuracy_threshold": float("nan")},
        {"variant": "structured"},
        {"lr": -0.1},
        {"clip_norm": 0.0},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        sub_fedavg(**options)
