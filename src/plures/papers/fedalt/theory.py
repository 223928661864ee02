"""The coupling of shared and personal parameters: quadratic clients on which it is set, run by the library itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import plures
from plures.core.method import Method
from plures.core.types import Batch
from plures.data import Federation
from plures.local import steps
from plures.methods import fedalt, fedsim
from plures.recipes.plan import EvaluationPlan

Client = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Rows and targets."""

COUPLINGS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLIENTS, SIZE, STEPS, ROUNDS, SEED = 4, 3, 3, 10, 0
LEAST_CURVED = 0.2
ETAS = (0.1, 0.3)
"""Rates are eta / (L steps), and here L = 1 for both parts; the theorems ask for small ones."""


class Coupled(nn.Module):
    """A u + B v: an example is a row of A and of B beside each other."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.zeros(size, 1, dtype=torch.float64))
        self.v = nn.Parameter(torch.zeros(size, 1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        own, shared = inputs[:, self.u.shape[0] :], inputs[:, : self.u.shape[0]]
        return shared @ self.u + own @ self.v


def half_square(output: Tensor, targets: Tensor) -> Tensor:
    """|A u + B v - c|^2 / 2, of rows that were scaled for a mean."""
    return 0.5 * (output.flatten() - targets.flatten()).square().mean()


def quadratic_clients(coupling: float) -> list[Client]:
    """A'A and B'B have 1 as their largest eigenvalue, and A'B has `coupling`: chi of the paper, where L = 1."""
    draws = np.random.default_rng(SEED)
    clients = []
    for _ in range(CLIENTS):
        basis, _ = np.linalg.qr(draws.normal(size=(2 * SIZE, 2 * SIZE)))
        first, second = basis[:, :SIZE], basis[:, SIZE:]
        curved = np.concatenate([[1.0], draws.uniform(LEAST_CURVED, 1.0, SIZE - 1)]) ** 0.5
        own = (coupling * first + np.sqrt(1 - coupling**2) * second) * curved
        shared = first * curved
        targets = draws.normal(size=2 * SIZE)
        scale = np.sqrt(2 * SIZE)
        clients.append((np.hstack([shared, own]) * scale, targets * scale))
    return clients


def best_loss(clients: Sequence[Client]) -> float:
    """The least mean loss over u and all v, by least squares."""
    rows, targets = [], []
    for place, (inputs, wanted) in enumerate(clients):
        own = np.zeros((len(inputs), CLIENTS * SIZE))
        own[:, place * SIZE : (place + 1) * SIZE] = inputs[:, SIZE:]
        rows.append(np.hstack([inputs[:, :SIZE], own]))
        targets.append(wanted)
    matrix, wanted = np.vstack(rows), np.concatenate(targets)
    found = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    return float(0.5 * np.mean((matrix @ found - wanted) ** 2))


def federation_of(clients: Sequence[Client]) -> Federation:
    """Every client is scored on what it trains on."""
    batches = [Batch(torch.from_numpy(inputs), torch.from_numpy(targets)) for inputs, targets in clients]
    return plures.data.federate([(batch, batch) for batch in batches], goal="regression")


@cache
def excess(coupling: float, eta: float) -> dict[str, float]:
    """By method: how far it is above the least loss, on average over rounds as in the theorems."""
    clients = quadratic_clients(coupling)
    federation, least = federation_of(clients), best_loss(clients)
    made = {"FedAlt": fedalt, "FedSim": fedsim}
    options: dict[str, Any] = {"personal": "v", "lr": eta / STEPS, "budget": steps(STEPS)}
    return {name: gap_of(make(**options), federation, least) for name, make in made.items()}


def gap_of(method: Method, federation: Federation, least: float) -> float:
    """The mean over rounds, in shares of the distance at the start."""
    plan = EvaluationPlan(every=1, models=("personal",), splits=("test",))
    result = plures.run(
        method,
        federation,
        lambda: Coupled(SIZE),
        rounds=ROUNDS,
        engine="sequential",
        loss=half_square,
        evaluation=plan,
    )
    errors = [line["metrics"]["personal/test/rmse"]["weighted"] for line in result.history]
    start = half_square_at_start(federation)
    return float(np.mean([(0.5 * error**2 - least) / (start - least) for error in errors]))


def half_square_at_start(federation: Federation) -> float:
    """Where u = v = 0."""
    targets = torch.cat([federation.client(client).train.targets for client in range(federation.num_clients)])
    return 0.5 * float(targets.square().mean())


def advantages(eta: float) -> dict[float, float]:
    """By coupling: how much nearer to the least loss FedAlt is."""
    found = {coupling: excess(coupling, eta) for coupling in COUPLINGS}
    return {coupling: one["FedSim"] - one["FedAlt"] for coupling, one in found.items()}
