"""HeteroFL: the widths of one model, averaged where they overlap."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from plures.core.types import Batch
from plures.local import adam, epochs, sgd, steps
from plures.methods import fedavg, heterofl
from plures.participation import binomial, uniform
from plures.server.weights import uniform as equally
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    NormedNetwork,
    Population,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
)
from tests.oracles import heterofl as oracle_heterofl
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, settings

ALL = BODY + HEAD
BUDGET = epochs(2, batch=3)
WIDTHS = (1.0, 0.5, 0.5, 1.0, 0.3)
"""3, 2, 2, 3 and 1 of the 3 hidden units: ceil(0.5 * 3) = 2, ceil(0.3 * 3) = 1."""
BARE = {"scaler": False, "mask_logits": False, "clip_norm": None}


def mixed(rounds=3, sampler=None, widths=WIDTHS, **options):
    """A run of clients with these widths."""
    own = {key: options.pop(key) for key in ("population", "module", "loss") if key in options}
    method = heterofl(**{"lr": 0.3, "budget": BUDGET} | options)
    return play(method, rounds, sampler, capacity_of=lambda client: widths[client], **own)


def masks_of(state):
    return {name: state[f"mask.{name}"] for name in ALL}


# The paper


@settings
@pytest.mark.parametrize(
    ("scaler", "mask", "clip"), [(True, True, 0.3), (True, False, math.inf), (False, True, math.inf)]
)
def test_heterofl_is_its_paper(budget, sampler, scaler, mask, clip):
    """Client 0 has no example of class 1 and client 4 none of class 0; most gradients are longer than 0.3."""
    limit = None if math.isinf(clip) else clip
    run = mixed(ROUNDS, sampler, budget=budget, scaler=scaler, mask_logits=mask, clip_norm=limit)
    clients = run.population.batches
    weights = oracle_heterofl.heterofl(
        clients,
        run.servers[0].shared,
        WIDTHS,
        run.cohorts,
        batches_of(clients, budget),
        lr=0.3,
        scaler=scaler,
        mask=mask,
        clip=clip,
    )
    assert_near(run.shared, weights)


@pytest.mark.parametrize("options", [{"scaler": False}, {"mask_logits": False}, {"clip_norm": None}])
def test_each_extra_of_the_paper_has_an_effect(options):
    usual, without = mixed(1, clip_norm=0.3), mixed(1, **{"clip_norm": 0.3} | options)
    assert all(not torch.equal(usual.shared[name], without.shared[name]) for name in ALL)


# FedAvg is the case of width 1


@pytest.mark.parametrize("sampler", [uniform(3), binomial(0.25)], ids=["three", "by coin"])
@pytest.mark.parametrize("server", [1.0, adam(0.05)], ids=["average", "adam"])
def test_at_width_one_without_extras_it_is_fedavg_with_equal_weights(sampler, server):
    run = mixed(4, sampler, widths=[1.0] * 5, server=server, **BARE)
    plain = play(fedavg(lr=0.3, budget=BUDGET, server=server, weight=equally), 4, sampler)
    for round in range(5):
        assert_same_bits(run.servers[round].shared, plain.servers[round].shared)
    for client in range(5):
        assert_same_bits(part_of(run.adapted(client), ALL), plain.adapted(client))
    assert [report.losses for report in run.reports] == [report.losses for report in plain.reports]
    assert [report.values_up for report in run.reports] == [report.values_up for report in plain.reports]


def test_a_client_of_width_one_that_has_all_classes_sees_nothing_of_scaler_and_masks():
    everybody = Given([(1, 2, 3)], 0.6)  # these have all classes
    run, bare = (mixed(2, everybody, widths=[1.0] * 5, **extra) for extra in ({"clip_norm": None}, BARE))
    assert_same_bits(run.shared, bare.shared)


def test_at_width_one_it_is_fedavg_with_batch_norms_too():
    options = {"lr": 0.3, "budget": steps(3), "buffers": "shared"}
    run = mixed(3, widths=[1.0] * 5, module=network(NormedNetwork), **options, **BARE)
    plain = play(fedavg(**options, weight=equally), 3, module=network(NormedNetwork))
    assert_same_bits(run.shared, plain.shared)


# What is sent, and what is averaged


def test_a_slice_that_is_put_back_is_what_it_was_taken_from():
    run = mixed(2)
    for visit, _ in run.results:
        shared, masks = run.servers[visit.round - 1].shared, masks_of(visit.state)
        back = {name: torch.where(masks[name], visit.received[name], shared[name]) for name in ALL}
        assert_same_bits(back, shared)
        outside = {name: visit.received[name][~masks[name]] for name in ALL}
        assert_same_bits(outside, {name: torch.zeros_like(value) for name, value in outside.items()})


def test_only_slices_are_sent():
    """Slices have 27, 19, 19, 27 and 11 values. Of the head, 0 and 4 lack one class: 3 + 1 and 1 + 1 values less."""
    run = mixed(1)
    assert [visit.down.num_values for visit, _ in run.results] == [27, 19, 19, 27, 11]
    assert [result.up.num_values for _, result in run.results] == [23, 19, 19, 27, 9]
    assert (run.reports[0].values_down, run.reports[0].values_up) == (103, 97)
    whole = mixed(1, mask_logits=False)
    assert (whole.reports[0].values_down, whole.reports[0].values_up) == (103, 103)
    assert run.reports[0].used == 1.0


@pytest.mark.parametrize("server", [1.0, sgd(1.0, momentum=0.9), adam(0.1)], ids=["average", "momentum", "adam"])
def test_what_nobody_in_the_cohort_holds_stays_whatever_the_server_remembers(server):
    """In round 1 all of the model moves; then clients with two of three hidden units come."""
    run = mixed(2, Given([(3,), (1, 2)]), server=server)
    masks, (_, before, after) = masks_of(run.final[1]), (each.shared for each in run.servers)
    for name in ALL:
        assert (run.servers[0].shared[name] != before[name]).all()
        assert_same_bits({name: after[name][~masks[name]]}, {name: before[name][~masks[name]]})
        assert (after[name] != before[name])[masks[name]].all()


def test_a_coordinate_is_the_mean_over_those_who_hold_it():
    run = mixed(1, mask_logits=False, server=1.0)
    trained = {visit.client: result.trained for visit, result in run.results}
    for unit, holders in enumerate([(0, 1, 2, 3, 4), (0, 1, 2, 3), (0, 3)]):
        mean = torch.stack([trained[client]["body.weight"][unit] for client in holders]).mean(dim=0)
        assert_near({"": run.shared["body.weight"][unit]}, {"": mean})


def test_the_row_of_a_class_is_averaged_over_those_who_have_it():
    """Client 0 has classes 0 and 2, client 4 has 1 and 2; by weight decay all rows move on both."""
    run = mixed(1, Given([(0, 4)]), widths=[1.0] * 5, lr=sgd(0.3, weight_decay=0.1))
    first, second = (part_of(result.trained, HEAD) for _, result in run.results)
    for name in HEAD:
        rows = torch.stack([first[name][0], second[name][1], (first[name][2] + second[name][2]) / 2])
        assert_near({name: run.shared[name]}, {name: rows})
        assert all((model[name] != run.servers[0].shared[name]).all() for model in (first, second))


@pytest.mark.parametrize("server", [1.0, adam(0.1)], ids=["average", "adam"])
def test_the_row_of_a_class_that_nobody_has_stays(server):
    run = mixed(2, Given([(1, 2, 3), (0,)]), widths=[1.0] * 5, server=server, lr=sgd(0.3, weight_decay=0.1))
    (_, before, after) = (each.shared for each in run.servers)
    for name in HEAD:
        assert_same_bits({name: after[name][1]}, {name: before[name][1]})
        assert all((after[name] != before[name])[row].all() for row in (0, 2))


# The model of a client


def test_prediction_is_without_the_scaler_and_over_all_classes():
    run = mixed(2, lr=0.5)
    for client in (0, 4):
        inputs, model = run.population.batches[client].inputs, run.model(client)
        place = oracle_heterofl.slice_of(WIDTHS[client])
        own = {name: run.shared[name][place[name]] for name in ALL}
        hidden = torch.tanh(inputs @ own["body.weight"].T + own["body.bias"])
        logits = hidden @ own["head.weight"].T + own["head.bias"]
        assert_near({"": run.output(model, inputs)}, {"": logits})


def test_finetuning_is_that_of_the_slice_as_it_predicts():
    """Neither scaler nor masks of classes, which are for what is averaged; the server stands still here."""
    still = {"server": 0.0, "adapt": BUDGET, "clip_norm": 0.3}
    tuned, plain = mixed(1, **still), mixed(1, scaler=False, mask_logits=False, **still)
    for client in range(5):
        model, masks = part_of(tuned.adapted(client), ALL), masks_of(tuned.final[client])
        assert all(not model[name][~mask].any() for name, mask in masks.items())
        assert all((model[name] != tuned.shared[name])[mask].any() for name, mask in masks.items())
        assert_same_bits(model, part_of(plain.adapted(client), ALL))
    assert tuned.program.method.judged_by == "personal"


def test_running_statistics_are_forgotten_unless_told_otherwise():
    run = mixed(1, module=network(NormedNetwork), budget=steps(2))
    parts = run.program.binding(0).parts
    assert {part for name, part in parts.items() if name.startswith("norm.running")} == {"reset.buffers"}
    assert not any("running" in name for name in [*run.shared, *run.final[0]])


def test_targets_that_are_no_classes_are_never_masked():
    population = Population([Batch(batch.inputs, batch.inputs[:, :3]) for batch in federation().batches])
    options = {"population": population, "loss": F.mse_loss}
    assert_same_bits(mixed(2, **options).shared, mixed(2, mask_logits=False, **options).shared)
