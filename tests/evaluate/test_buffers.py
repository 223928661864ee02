"""Running statistics under `reset`: estimated from a client's own training data, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from plures import EvaluationPlan, run
from plures.core.method import own_parameters
from plures.evaluate import scoring
from plures.evaluate.buffers import estimated_buffers
from plures.local import epochs
from plures.methods import fedavg
from tests.evaluate.helpers import NormedNetwork, by_hand, copied, evaluator_of, federation, made, same_bits

RESET = fedavg(buffers="reset", budget=epochs(1, "full"), adapt=epochs(1, "full"))


def body_outputs(params, inputs):
    return F.linear(inputs, params["body.weight"], params["body.bias"])


def estimated(train_size: int):
    """The statistics of one client, and what its batch norm saw."""
    clients = federation([(train_size, 2, 2)])
    evaluator, _, _ = evaluator_of(RESET, clients, made(NormedNetwork))
    binding = evaluator.program.binding(0)
    train = clients.client(0).train
    found = estimated_buffers(binding, binding.values, own_parameters, train)
    return found, body_outputs(binding.values, train.inputs)


@pytest.mark.parametrize("train_size", [2, 7, 5000])
def test_statistics_are_the_exact_mean_and_variance_of_the_training_data(train_size):
    found, seen = estimated(train_size)

    torch.testing.assert_close(found["norm.running_mean"], seen.mean(dim=0), rtol=1e-12, atol=1e-14)
    # torch keeps the unbiased variance, divided by one less than the number of examples
    torch.testing.assert_close(found["norm.running_var"], seen.var(dim=0, unbiased=True), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("examples_at_once", [4096, 2])
def test_statistics_do_not_depend_on_how_many_examples_are_scored_at_once(examples_at_once, monkeypatch):
    monkeypatch.setattr(scoring, "TARGETS_AT_ONCE", examples_at_once)
    clients, module = federation(), made(NormedNetwork)
    evaluator, server, _ = evaluator_of(RESET, clients, module)

    (found,) = evaluator.evaluate(server, ["global"], ["train"])

    data = clients.client(0)
    seen = body_outputs(server.shared, data.train.inputs)
    statistics = {"norm.running_mean": seen.mean(dim=0), "norm.running_var": seen.var(dim=0)}
    assert found.scores[0].loss == pytest.approx(by_hand(0, server.shared | statistics, data.train, module).loss)


def test_a_client_with_one_training_example_is_trained_and_scored_like_the_others():
    result = run(RESET, federation([(6, 2, 2), (1, 1, 1)]), made(NormedNetwork), rounds=1)

    assert [score.client for score in result.scores("global")] == [0, 1]


def test_estimation_leaves_momentum_and_mode_of_the_network_as_they_were():
    clients = federation()
    evaluator, _, _ = evaluator_of(RESET, clients, made(NormedNetwork))
    binding = evaluator.program.binding(0)
    for mode in (True, False):
        binding.task.train(mode)
        estimated_buffers(binding, binding.values, own_parameters, clients.client(0).train)
        assert binding.task.module.training is mode
        assert binding.task.module.norm.momentum == 0.1


def test_estimation_writes_into_nothing_it_was_given():
    clients = federation()
    evaluator, _, _ = evaluator_of(RESET, clients, made(NormedNetwork))
    binding = evaluator.program.binding(0)
    before = copied(binding.values)

    estimated_buffers(binding, binding.values, own_parameters, clients.client(0).train)

    assert same_bits(binding.values, before)


@pytest.mark.parametrize("model", ["global", "personal"])
def test_a_client_is_scored_with_statistics_of_its_own_training_data(model):
    clients, module = federation(), made(NormedNetwork)
    evaluator, server, _ = evaluator_of(RESET, clients, module)

    (found,) = evaluator.evaluate(server, [model], ["test"])

    for client, score in enumerate(found.scores):
        data = clients.client(client)
        seen = body_outputs(server.shared, data.train.inputs)
        statistics = {"norm.running_mean": seen.mean(dim=0), "norm.running_var": seen.var(dim=0)}
        expected = by_hand(client, server.shared | statistics, data.test, module)
        assert score.loss == pytest.approx(expected.loss, rel=1e-12)
        assert score.accuracy == expected.accuracy


def test_statistics_that_were_reset_are_neither_sent_nor_kept():
    result = run(RESET, federation(), made(NormedNetwork), rounds=1)

    assert not [name for name in result.server.shared if "running" in name]
    assert list(result.store.clients()) == []


def test_metrics_of_a_network_with_dropout_do_not_depend_on_draws_outside_the_run():
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        plan = EvaluationPlan(every=1)
        module = made(NormedNetwork, dropout=0.5)
        found.append(run(RESET, federation(), module, rounds=1, evaluation=plan).metrics["global/test/loss"])

    assert found[0] == found[1]
