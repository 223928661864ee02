"""FedBABU (METHODS 2.13)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.evaluate import Evaluator
from plures.local import epochs, steps
from plures.methods import fedbabu
from plures.models import mlp
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Population,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
)
from tests.oracles.common import client_loss, gradient, step

BUDGET = epochs(2, batch=3)


def babu(rounds=3, sampler=None, **options):
    return play(fedbabu(**{"lr": 0.3, "budget": BUDGET} | options), rounds, sampler or uniform(3))


# The fixed head


@pytest.mark.parametrize("orthonormal", [False, True])
def test_the_head_is_bitwise_constant_over_training(orthonormal):
    run = babu(4, orthonormal=orthonormal)
    head = part_of(run.program.binding(0).values, HEAD)
    for _, result in run.results:
        assert_same_bits(part_of(result.trained, HEAD), head)
        assert all(not torch.equal(result.trained[name], run.servers[0].shared[name]) for name in BODY)
    for client in range(5):
        assert_same_bits(part_of(run.model(client), HEAD), head)


def test_the_head_is_the_networks_own_unless_it_is_made_orthonormal():
    own = part_of(dict(network().named_parameters()), HEAD)
    assert_same_bits(part_of(babu().program.binding(0).values, HEAD), own)
    orthonormal = babu(orthonormal=True)
    assert all(not torch.equal(orthonormal.program.binding(0).values[name], own[name]) for name in HEAD)
    assert_same_bits(orthonormal.servers[0].shared, part_of(dict(network().named_parameters()), BODY))


def test_the_head_is_neither_sent_nor_kept_nor_counted():
    """Each of 3 clients sends the body's 4 * 3 + 3 = 15 values of 8 bytes."""
    run = babu(2)
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(BODY)
        assert result.state == {}
    assert [(report.bytes_up, report.bytes_down) for report in run.reports] == [(3 * 15 * 8, 3 * 15 * 8)] * 2


# Orthonormal heads


def stacked(values, prefix="head"):
    """[weight, bias] with the bias as the last column."""
    return torch.cat([values[f"{prefix}.weight"], values[f"{prefix}.bias"][:, None]], dim=1)


def initial_values(module, **options):
    method = fedbabu(orthonormal=True, **options)
    return Program(method, OneNetwork(module=module), loss=nn.functional.cross_entropy, seed=1).binding(0).values


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_an_orthonormal_head_has_orthonormal_rows_with_the_bias_as_last_column(precision):
    """H H^T = I to 1e-6, for the shape of the demo: 10 classes, 64 features."""
    head = stacked(initial_values(mlp().to(precision)))
    assert head.dtype == precision
    torch.testing.assert_close(head @ head.T, torch.eye(10, dtype=precision), rtol=0, atol=1e-6)


def test_an_orthonormal_head_is_the_nearest_to_the_networks_own():
    """M = U S V^T and H = U V^T give M H^T = U S U^T: symmetric, and positive, which holds for no other such H."""
    module = mlp().double()
    head, own = stacked(initial_values(module)), stacked(dict(module.named_parameters()))
    product = (own @ head.T).detach()
    torch.testing.assert_close(product, product.T, rtol=0, atol=1e-12)
    assert torch.linalg.eigvalsh(product).min() > 0


def test_with_more_classes_than_features_the_columns_of_the_head_are_orthonormal():
    """10 rows of 4 + 1 values cannot be orthonormal, its 5 columns can."""
    head = stacked(initial_values(mlp(hidden=(4,)).double()))
    torch.testing.assert_close(head.T @ head, torch.eye(5).double(), rtol=0, atol=1e-12)


def test_an_orthonormal_head_needs_no_bias():
    weight = initial_values(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3, bias=False)).double())["1.weight"]
    torch.testing.assert_close(weight @ weight.T, torch.eye(3).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("personal", ["*", (), "head.bias"])
def test_only_a_head_of_one_linear_layer_can_be_orthonormal(personal):
    with pytest.raises(InvalidModel, match="one linear layer"):
        initial_values(network(), personal=personal)


# Fine-tuning


@pytest.mark.parametrize(("part", "moved"), [("body", BODY), ("head", HEAD), ("both", BODY + HEAD)])
def test_tuning_moves_the_chosen_part_and_nothing_else(part, moved):
    run = babu(finetune_part=part, tune=epochs(2, batch=3))
    for client in range(5):
        before, after = run.model(client), run.adapted(client)
        still = [name for name in BODY + HEAD if name not in moved]
        assert_same_bits(part_of(after, still), part_of(before, still))
        assert all(not torch.equal(after[name], before[name]) for name in moved)


def test_one_tuning_step_goes_down_the_clients_own_loss_at_the_tuning_rate():
    run = babu(tune=steps(1), tune_lr=0.7)
    start = run.model(3)
    assert_near(run.adapted(3), step(start, gradient(client_loss, start, run.population.batches[3]), 0.7))


def test_tuning_takes_the_training_rate_unless_it_has_its_own():
    run = babu(tune=steps(1))
    start = run.model(3)
    assert_near(run.adapted(3), step(start, gradient(client_loss, start, run.population.batches[3]), 0.3))


@pytest.mark.parametrize("part", ["body", "head"])
def test_the_federated_rounds_do_not_depend_on_the_tuning(part):
    assert_same_bits(babu(finetune_part=part, tune_lr=0.9).shared, babu().shared)


class Scored(Population):
    """Every client is also tested on its training examples."""

    def client(self, client):
        batch = self.batches[client]
        both = {"train": batch, "test": batch}
        return SimpleNamespace(train=batch, splits=both, targets={split: one.targets for split, one in both.items()})


@pytest.mark.parametrize("part", ["body", "head", "both"])
def test_without_tuning_the_tuned_models_score_as_the_global_one(part):
    """k = 0: E4 is E1, client by client."""
    clients = Scored(federation().batches)

    def scores(tune):
        run = play(fedbabu(lr=0.3, budget=BUDGET, tune=tune, finetune_part=part), 3, population=clients)
        judge = Evaluator(run.program, clients, run.store)
        common, own = judge.evaluate(run.server, ["global", "finetuned"], ["test"])
        return [score.loss for score in common.scores], [score.loss for score in own.scores]

    common, own = scores(epochs(0))
    assert own == pytest.approx(common, rel=1e-12)
    common, own = scores(epochs(1, batch=3))
    assert all(tuned != before for tuned, before in zip(own, common, strict=True))


def test_it_is_judged_after_tuning():
    assert fedbabu().judged_by == "finetuned"


@pytest.mark.parametrize(
    "wrong",
    [{"finetune_part": "haed"}, {"buffers": "common"}, {"lr": -0.1}, {"tune_lr": float("nan")}, {"clip_norm": 0.0}],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidConfig, match=next(iter(wrong)) if "lr" not in str(wrong) else "rate"):
        fedbabu(**wrong)
