"""Curvature: operator norms of the Hessian's blocks, against closed forms and against the whole Hessian."""

from __future__ import annotations

from math import isnan, nan, sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.types import Batch
from plures.evaluate import curvature, diagnostics
from plures.evaluate.curvature import Curvature, curvature_numbers, power_iteration, spaced
from plures.evaluate.diagnostics import Diagnostics
from plures.methods import fedalt, fedavg
from tests.helpers.methods import BODY, HEAD, Played, Population, federation, network, play

SHARED, PERSONAL = 4, 3


class Affine(nn.Module):
    """A u + B v, where each example brings its rows of A and B."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.linspace(-1, 1, SHARED, dtype=torch.float64))
        self.v = nn.Parameter(torch.linspace(1, 2, PERSONAL, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ torch.cat([self.u, self.v])


def half_square(output: Tensor, targets: Tensor) -> Tensor:
    """|output - targets|^2 / 2: a sum, not a mean."""
    return ((output - targets) ** 2).sum() / 2


def quadratics(clients: int = 4, rows: int = 6, scale: float = 1.0) -> Population:
    draws = torch.Generator().manual_seed(5)
    shape = (rows, SHARED + PERSONAL)
    return Population(
        [
            Batch(
                scale * torch.randn(shape, generator=draws, dtype=torch.float64),
                torch.randn(rows, generator=draws, dtype=torch.float64),
            )
            for _ in range(clients)
        ]
    )


def on_quadratics(population: Population) -> Played:
    return play(fedalt(personal="v"), 0, population=population, module=Affine(), loss=half_square)


def measured(run: Played, numbers=None) -> dict[str, float]:
    return Diagnostics(run.program, run.population, run.store).measure(run.server, numbers)


def norm_of(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, ord=2))


def by_hand(batches) -> dict[str, float]:
    """The Hessian of |A u + B v - c|^2 / 2 has the blocks A^T A, B^T B and A^T B, wherever u and v are."""
    pairs = [(batch.inputs[:, :SHARED], batch.inputs[:, SHARED:]) for batch in batches]
    shared, personal = (max(norm_of(pair[side]) ** 2 for pair in pairs) for side in (0, 1))
    cross = max(norm_of(a.T @ b) for a, b in pairs)
    return {
        "smoothness_shared": shared,
        "smoothness_personal": personal,
        "cross_smoothness": cross,
        "coupling": cross / sqrt(shared * personal),
    }


def assert_curved(found: dict[str, float], expected: dict[str, float]) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_curvature_of_quadratics_is_that_of_their_matrices():
    run = on_quadratics(quadratics())
    assert_curved(measured(run), by_hand(run.population.batches))


def test_blocks_of_a_network_are_those_of_its_whole_hessian():
    """One client: the whole Hessian is taken by all numbers of the network in one vector, first those of the body."""
    population = federation([9])
    run = play(fedalt(), 2, population=population)
    params, (batch,) = run.model(0), population.batches
    names, size = (*BODY, *HEAD), sum(params[name].numel() for name in BODY)

    def loss(numbers: Tensor) -> Tensor:
        parts = torch.split(numbers, [params[name].numel() for name in names])
        shown = {name: part.view_as(params[name]) for name, part in zip(names, parts, strict=True)}
        return F.cross_entropy(functional_call(network(), shown, (batch.inputs,)), batch.targets)

    whole = hessian(loss, torch.cat([params[name].flatten() for name in names]))

    expected = {
        "smoothness_shared": norm_of(whole[:size, :size]),
        "smoothness_personal": norm_of(whole[size:, size:]),
        "cross_smoothness": norm_of(whole[:size, size:]),
    }
    assert_curved(measured(run), expected)


def test_only_clients_evenly_spaced_are_looked_at(monkeypatch):
    monkeypatch.setattr(diagnostics, "MOST_CLIENTS", 3)
    population = quadratics(clients=7)
    batches = population.batches
    chosen = [batches[0], batches[3], batches[6]]
    assert by_hand(chosen) != pytest.approx(by_hand(batches), rel=1e-3)
    assert_curved(measured(on_quadratics(population)), by_hand(chosen))


def test_only_examples_evenly_spaced_are_looked_at(monkeypatch):
    monkeypatch.setattr(curvature, "MOST_EXAMPLES", 3)
    population = quadratics(clients=2, rows=7)
    some = [Batch(batch.inputs[::3], batch.targets[::3]) for batch in population.batches]
    assert_curved(measured(on_quadratics(population)), by_hand(some))


def test_items_are_evenly_spaced_from_the_first_to_the_last():
    assert spaced(range(5), 5) == [0, 1, 2, 3, 4]
    assert spaced([7, 8, 9, 10, 11], 3) == [7, 9, 11]
    assert spaced([], 3) == []


def test_power_iteration_stands_eigenvalues_of_both_signs():
    """diag(2, -2, 1) turns the direction round for ever, but lengthens it by 2."""
    values = torch.tensor([2.0, -2.0, 1.0], dtype=torch.float64)
    assert power_iteration([lambda way: [values * way[0]]], [torch.ones(3).double()]) == pytest.approx(2, rel=1e-6)


def test_power_iteration_takes_two_transposes_in_turn():
    """Singular values 3 and 1 of a matrix that is not square."""
    matrix = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    products = [lambda way: [matrix @ way[0]], lambda way: [matrix.T @ way[0]]]
    assert power_iteration(products, [torch.ones(2).double()]) == pytest.approx(3, rel=1e-6)


def test_power_iteration_ends_early_and_in_any_case(monkeypatch):
    monkeypatch.setattr(curvature, "MOST_ITERATIONS", 7)
    taken = []

    def noted(values: Tensor):
        def product(way):
            taken.append(values)
            return [values * way[0]]

        return product

    power_iteration([noted(torch.tensor([5.0, 5.0]))], [torch.ones(2)])
    assert len(taken) == 2  # the second iteration finds what the first one has found
    taken.clear()
    power_iteration([noted(torch.tensor([1.0, 0.9]))], [torch.tensor([0.3, 1.0])])
    assert len(taken) == 7


def test_a_loss_that_is_no_number_has_no_curvature():
    assert isnan(power_iteration([lambda way: [nan * way[0]]], [torch.ones(2)]))
    assert isnan(curvature_numbers([Curvature(1.0, 2.0, 1.0), Curvature(nan, nan, nan)])["smoothness_shared"])


def test_a_linear_loss_is_flat_and_has_no_coupling():
    run = play(
        fedalt(personal="v"),
        0,
        population=quadratics(),
        module=Affine(),
        loss=lambda output, targets: (output * targets).sum(),
    )
    found = measured(run)
    assert (found["smoothness_shared"], found["smoothness_personal"], found["cross_smoothness"]) == (0, 0, 0)
    assert isnan(found["coupling"])


def test_a_part_that_is_empty_has_no_smoothness():
    found = measured(play(fedavg(), 1))
    assert found["smoothness_shared"] > 0
    assert all(isnan(found[name]) for name in ("smoothness_personal", "cross_smoothness", "coupling"))


class Once(torch.autograd.Function):
    """Leaves its input as it is, and can be differentiated once."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad


class OnceNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(Once.apply(torch.tanh(self.body(inputs))))


class Attending(OnceNetwork):
    """Each example attends to its own four numbers, by torch's own attention."""

    def forward(self, inputs: Tensor) -> Tensor:
        keys = inputs[:, None, :, None] * self.body.weight[0]
        return self.head(F.scaled_dot_product_attention(keys, keys, keys).mean(dim=(1, 2))[:, :3])


def test_a_network_without_second_derivative_has_gradients_and_no_curvature():
    found = measured(play(fedalt(), 1, module=network(OnceNetwork)))
    assert found["shared_gradient"] > 0
    assert all(isnan(found[name]) for name in by_hand(quadratics().batches))


def test_torchs_own_attention_has_curvature():
    found = measured(play(fedalt(), 1, module=network(Attending)))
    assert found["smoothness_shared"] > 0
    assert found["coupling"] > 0


def test_recurrent_layers_do_without_cudnn_while_they_are_looked_at():
    recurrent, plain = nn.LSTM(2, 2), nn.Linear(2, 2)
    before = torch.backends.cudnn.enabled
    with curvature.plain_recurrence(recurrent):
        assert not torch.backends.cudnn.enabled
    with curvature.plain_recurrence(plain):
        assert torch.backends.cudnn.enabled == before
    assert torch.backends.cudnn.enabled == before
