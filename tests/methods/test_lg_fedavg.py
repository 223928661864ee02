"""LG-FedAvg (METHODS 2.14)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig
from plures.core.types import PERSONAL, SHARED, Batch
from plures.local import epochs, steps
from plures.methods import fedavg, lg_fedavg
from plures.models import mlp
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    NormedNetwork,
    Population,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
    same_bits,
)

BUDGET = epochs(2, batch=3)


def conv_net(*top):
    """Two convolutions, the second with a norm, and what is put on top of them; for images of 4 by 4."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 2), nn.GroupNorm(1, 2), nn.Flatten(1), *top)


def personal_names(module, **options):
    parts = lg_fedavg(**options).split.resolve(module)
    assert set(parts.values()) <= {PERSONAL, SHARED}
    return {name for name, part in parts.items() if part == PERSONAL}


# Which layers are lower


def test_of_a_network_with_convolutions_these_are_personal_and_the_linear_layers_shared():
    """With the norm of the last convolution; METHODS 2.14: personal convs, shared fc layers."""
    module = conv_net(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))
    lower = {f"{place}.{name}" for place in (0, 2, 3) for name in ("weight", "bias")}
    assert personal_names(module) == lower
    assert {name for name, _ in module.named_parameters()} - lower == {"5.weight", "5.bias", "7.weight", "7.bias"}


def test_of_an_mlp_all_but_the_head_is_personal():
    module = mlp(shape=(4,), hidden=(3, 2), classes=2)
    assert personal_names(module) == {name for name, _ in module.named_parameters()} - {"head.weight", "head.bias"}


def test_a_classifier_that_is_a_convolution_itself_is_shared():
    """Otherwise nothing would be, and the method would be Local."""
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 3, 2), nn.Flatten(1))
    assert personal_names(module) == {"0.weight", "0.bias"}


def test_the_lower_layers_are_the_users_choice():
    assert personal_names(network(), personal="body.bias") == {"body.bias"}
    assert personal_names(network(), personal="head") == set(HEAD)


# What is shared


def test_after_a_round_the_upper_layers_of_all_are_equal_and_the_lower_ones_of_those_who_took_part_differ():
    run = play(lg_fedavg(lr=0.3, budget=BUDGET), 3)
    models = [run.model(client) for client in range(5)]
    trained = [result.trained for visit, result in run.results if visit.round == 3]
    for one, other in zip(range(5), (1, 2, 3, 4, 0), strict=True):
        assert_same_bits(part_of(models[one], HEAD), part_of(models[other], HEAD))
        assert all(not torch.equal(models[one][name], models[other][name]) for name in BODY)
        # Before the server's average the upper ones differed too.
        assert all(not torch.equal(trained[one][name], trained[other][name]) for name in HEAD)


def test_the_upper_layers_are_averaged_by_examples():
    run = play(lg_fedavg(lr=0.3, budget=BUDGET), 1)
    average = {
        name: sum(visit.facts.examples * result.trained[name] for visit, result in run.results) / 28 for name in HEAD
    }
    assert_near(run.shared, average)


def test_the_lower_layers_are_never_sent_and_not_counted():
    """Each of 2 clients sends the head's 3 * 3 + 3 = 12 values of 8 bytes."""
    run = play(lg_fedavg(budget=BUDGET), 2, uniform(2))
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(HEAD)
        assert set(result.state) == set(BODY)
    assert [(report.bytes_up, report.bytes_down) for report in run.reports] == [(2 * 12 * 8, 2 * 12 * 8)] * 2


def test_it_trains_a_network_with_convolutions():
    draws = torch.Generator().manual_seed(0)
    images = [torch.randn(6, 1, 5, 5, generator=draws, dtype=torch.float64) for _ in range(3)]
    clients = Population([Batch(image, torch.arange(6) % 3) for image in images])
    module = network(lambda: conv_net(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)))
    run = play(lg_fedavg(lr=0.1, budget=steps(3)), 4, population=clients, module=module)
    assert set(run.shared) == {"5.weight", "5.bias", "7.weight", "7.bias"}
    assert all(not torch.equal(run.shared[name], run.servers[0].shared[name]) for name in run.shared)
    assert all(not same_bits(run.final[client], run.states[0][client]) for client in range(3))
    assert run.reports[-1].losses["shared+personal"] < run.reports[0].losses["shared+personal"]


def test_it_may_start_from_a_model_of_fedavg():
    """As the original does: every client's lower layers are then those of that model."""
    trained = network()
    trained.load_state_dict(play(fedavg(lr=0.3, budget=BUDGET), 3).shared)
    run = play(lg_fedavg(budget=BUDGET), 1, uniform(2), module=trained)
    values = dict(trained.named_parameters())
    for client in range(5):
        assert_same_bits(run.states[0][client], part_of(values, BODY))
    assert_same_bits(run.servers[0].shared, part_of(values, HEAD))


def test_running_statistics_belong_to_the_lower_layers_unless_asked_otherwise():
    run = play(lg_fedavg(budget=steps(2)), 2, module=network(NormedNetwork))
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert set(run.final[0]) == {"body.weight", "norm.weight", "norm.bias"} | statistics
    assert not torch.equal(run.final[0]["norm.running_mean"], run.final[1]["norm.running_mean"])
    common = play(lg_fedavg(budget=steps(2), buffers="shared"), 2, module=network(NormedNetwork))
    assert set(common.shared) == set(HEAD) | statistics


def test_adaptation_moves_the_lower_layers_alone():
    run = play(lg_fedavg(lr=0.3, budget=BUDGET, adapt=steps(3)), 2)
    own = run.adapted(2)
    assert_same_bits(part_of(own, HEAD), run.shared)
    assert all(not torch.equal(own[name], run.final[2][name]) for name in BODY)


def test_a_stateless_client_begins_each_visit_with_the_first_lower_layers():
    run = play(lg_fedavg(lr=0.3, budget=BUDGET, stateful=False), 3, population=federation([6, 8]))
    first = run.program.initial_state(0)
    for visit, result in run.results:
        assert_same_bits(visit.state, first)
        assert not same_bits(result.state, first)


@pytest.mark.parametrize("wrong", [{"buffers": "own"}, {"lr": -1.0}, {"clip_norm": -1.0}], ids=str)
def test_an_option_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidConfig, match=r"buffers|rate|clip_norm"):
        lg_fedavg(**wrong)
