"""Diagnostics: gradients against plain loops."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isnan

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.goals import next_token, squared_error
from plures.core.types import Batch, Params
from plures.evaluate import diagnostics
from plures.evaluate.diagnostics import Diagnostics, Gradients
from plures.local import steps
from plures.methods import fedalt, fedavg, fedper, fedsim
from plures.models import char_lstm
from tests.evaluate.test_curvature import SHARED, measured, on_quadratics, quadratics
from tests.helpers.methods import (
    NormedNetwork,
    Played,
    Population,
    TinyNetwork,
    federation,
    network,
    play,
)

CURVATURE = ("smoothness_shared", "smoothness_personal", "cross_smoothness", "coupling")
GRADIENTS = ("shared_gradient", "personal_gradient", "gradient_diversity", "largest_dissimilarity")


def with_own_parts(population: Population) -> Played:
    """Quadratics before round 1, each client with a `v` of its own."""
    run, draws = on_quadratics(population), torch.Generator().manual_seed(9)
    own = torch.randn(population.num_clients, 3, generator=draws, dtype=torch.float64)
    run.store.commit(1, {client: {"v": own[client]} for client in range(population.num_clients)})
    return run


def by_hand(run: Played, clients: list[int]) -> dict[str, float]:
    """With r = A u + B v - c, the gradients of |r|^2 / 2 are A^T r and B^T r."""
    shared, personal = [], []
    for client in clients:
        batch, u, v = run.population.batches[client], run.shared["u"], run.store.get(client)["v"]
        rest = batch.inputs[:, :SHARED] @ u + batch.inputs[:, SHARED:] @ v - batch.targets
        shared.append(batch.inputs[:, :SHARED].T @ rest)
        personal.append(batch.inputs[:, SHARED:].T @ rest)
    mean, each = torch.stack(shared).mean(dim=0), torch.stack(shared)
    return {
        "shared_gradient": float(mean @ mean),
        "personal_gradient": float(torch.stack(personal).square().sum(dim=1).mean()),
        "gradient_diversity": float((each - mean).square().sum(dim=1).mean()),
        "gradient_diversity_ratio": float(each.square().sum(dim=1).mean() / (mean @ mean)),
        "largest_dissimilarity": float((each - mean).abs().max()),
    }


@pytest.mark.parametrize("examples_at_once", [512, 4, 1], ids=["at once", "in chunks", "each alone"])
def test_gradients_of_quadratics_are_those_of_their_matrices(examples_at_once, monkeypatch):
    monkeypatch.setattr(diagnostics, "EXAMPLES_AT_ONCE", examples_at_once)
    run = with_own_parts(quadratics())
    expected, found = by_hand(run, [0, 1, 2, 3]), measured(run)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_some_clients_are_measured_by_their_numbers():
    run = with_own_parts(quadratics())
    expected, found = by_hand(run, [1, 3]), measured(run, [1, 3])
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("outlier", [3.0, -3.0], ids=["above", "below"])
def test_the_largest_dissimilarity_is_found_on_both_sides_of_the_mean(outlier):
    """Of 0, 0 and 3 the mean is 1: distances of 1, 1 and 2, whose squares have the mean 2."""
    gradients = Gradients()
    for value in (0.0, outlier, 0.0):
        gradients.add({"u": torch.tensor([0.0, value])}, {})
    found = gradients.numbers()
    assert found["largest_dissimilarity"] == pytest.approx(2, rel=1e-12)
    assert found["gradient_diversity"] == pytest.approx(2, rel=1e-12)


def test_one_client_has_no_diversity():
    found = measured(with_own_parts(quadratics(clients=1)))
    assert (found["gradient_diversity"], found["gradient_diversity_ratio"]) == (0.0, 1.0)
    assert found["largest_dissimilarity"] == 0.0


def test_nobody_has_no_numbers():
    found = measured(with_own_parts(quadratics()), [])
    assert found.keys() == measured(with_own_parts(quadratics())).keys()
    assert all(map(isnan, found.values()))


def test_the_order_of_clients_has_no_say():
    """Full batches, so that no draw depends on a client's number."""
    method, order = fedsim(budget=steps(2)), [3, 0, 4, 2, 1]
    run = play(method, 2)
    other = play(method, 0, population=Population([run.population.batches[client] for client in order]))
    other.store.commit(2, {place: run.final[client] for place, client in enumerate(order)})

    found = Diagnostics(other.program, other.population, other.store).measure(run.server)

    assert found == pytest.approx(measured(run), rel=1e-12)


# Losses


class Words(nn.Module):
    """Scores of the next token of 6, from the one before alone."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Embedding(6, 3), nn.Linear(3, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(tokens))).transpose(1, 2)


def texts(*lengths: int) -> Batch:
    """Sequences of 4 tokens, of which the last are padding."""
    draws = torch.Generator().manual_seed(len(lengths))
    tokens = torch.randint(1, 6, (len(lengths), 5), generator=draws)
    for row, length in enumerate(lengths):
        tokens[row, length:] = 0
    return Batch(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("examples_at_once", [512, 1], ids=["at once", "each alone"])
def test_tokens_count_alike_whichever_sequence_they_are_in(examples_at_once, monkeypatch):
    """The loss divides by all tokens that are no padding; a mean over chunks would not."""
    monkeypatch.setattr(diagnostics, "EXAMPLES_AT_ONCE", examples_at_once)
    population = Population([texts(5, 2, 3), texts(1, 5)])  # the fourth sequence is all padding, after its first token
    run = play(fedavg(), 0, population=population, module=network(Words), loss=next_token().loss)
    grads = [gradient_by_hand(run.shared, batch, network(Words), ignore_index=0) for batch in population.batches]
    mean = sum(grads) / 2
    assert measured(run)["shared_gradient"] == pytest.approx(float(mean @ mean), rel=1e-12)


def gradient_by_hand(params: Params, batch: Batch, module: nn.Module, **options: int) -> Tensor:
    """By all parameters of the module, as one vector; statistics hold still."""
    names = [name for name, _ in module.named_parameters()]
    leaves = {name: params[name].clone().requires_grad_() for name in names}
    loss = F.cross_entropy(functional_call(module.eval(), params | leaves, (batch.inputs,)), batch.targets, **options)
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(leaves.values()))])


def test_a_client_with_nothing_to_learn_from_has_no_say():
    some = [texts(5, 2, 3), texts(4, 5)]
    empty = Batch(some[0].inputs[:0], some[0].targets[:0])
    found = [
        measured(play(fedavg(budget=steps(1)), 0, population=clients, module=network(Words), loss=next_token().loss))
        for clients in (Population(some), Population([*some, texts(1, 1), empty]))
    ]
    assert found[0]["shared_gradient"] > 0
    assert found[1] == pytest.approx(found[0], rel=1e-12, nan_ok=True)


def test_a_model_that_has_diverged_is_seen_in_the_numbers():
    run = play(fedper(), 0)
    lost = {name: torch.full_like(value, torch.nan) for name, value in run.shared.items()}
    found = Diagnostics(run.program, run.population, run.store).measure(replace(run.server, shared=lost))
    assert all(map(isnan, found.values()))


def test_numbers_of_a_regression_by_hand():
    """Of x = (1, 2) and y = (3, 1), the mean of (w x - y)^2 has at w = 0 the gradient -5 and the curvature 5."""
    line = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(line.weight)
    numbers = torch.tensor([1.0, 2.0], dtype=torch.float64)
    client = Batch(numbers[:, None], torch.tensor([3.0, 1.0], dtype=torch.float64))
    found = measured(play(fedavg(), 0, population=Population([client]), module=line, loss=squared_error))
    assert found["shared_gradient"] == pytest.approx(25, rel=1e-12)
    assert found["smoothness_shared"] == pytest.approx(5, rel=1e-6)


def test_a_recurrent_network_over_tokens_is_measured():
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 7, (3, 4, 6), generator=draws)
    population = Population([Batch(client[:, :-1], client[:, 1:]) for client in tokens])
    module = char_lstm(shape=(5,), classes=7, embedding=3, hidden=4, depth=1)
    found = measured(play(fedalt(budget=steps(1)), 1, population=population, module=module, loss=next_token().loss))
    assert all(map(isfinite, found.values()))
    assert found["coupling"] > 0


def test_numbers_of_single_precision_are_near_those_of_double():
    population = federation()
    double = measured(play(fedalt(budget=steps(2)), 2, population=population))
    single = measured(play(fedalt(budget=steps(2)), 2, population=population, module=network().float()))
    assert single == pytest.approx(double, rel=1e-3)


# Modes of the network


class Dropping(TinyNetwork):
    """Drops half of its inputs while it is trained."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(F.dropout(inputs, 0.5, self.training))


def test_nothing_is_dropped_while_gradients_are_taken():
    found = [measured(play(fedper(), 0, module=network(module))) for module in (TinyNetwork, Dropping)]
    same = (*GRADIENTS, *CURVATURE)
    assert [found[1][name] for name in same] == [found[0][name] for name in same]


@pytest.mark.parametrize("buffers", ["shared", "personal", "reset"])
def test_running_statistics_hold_still_and_those_that_were_forgotten_are_estimated(buffers):
    run = play(fedavg(buffers=buffers, budget=steps(2)), 2, module=network(NormedNetwork))
    grads = []
    for client, batch in enumerate(run.population.batches):
        params = run.model(client)
        if buffers == "reset":
            seen = batch.inputs @ params["body.weight"].T
            params = params | {"norm.running_mean": seen.mean(dim=0), "norm.running_var": seen.var(dim=0)}
        grads.append(gradient_by_hand(params, batch, network(NormedNetwork)))
    mean = torch.stack(grads).mean(dim=0)
    assert measured(run)["shared_gradient"] == pytest.approx(float(mean @ mean), rel=1e-12)


class Counting(TinyNetwork):
    """Notes how many examples come at once while it is not trained."""

    sizes: list[int]

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            self.sizes.append(len(inputs))
        return super().forward(inputs)


def test_a_large_client_goes_through_the_network_in_chunks(monkeypatch):
    monkeypatch.setattr(diagnostics, "EXAMPLES_AT_ONCE", 40)
    monkeypatch.setattr("plures.evaluate.curvature.MOST_EXAMPLES", 30)
    monkeypatch.setattr(Counting, "sizes", [], raising=False)
    measured(play(fedavg(budget=steps(1)), 0, population=federation([100]), module=network(Counting)))
    assert set(Counting.sizes) == {40, 20, 30}
