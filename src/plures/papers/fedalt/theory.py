"""The coupling of shared and personal parameters: quadratic clients on which it is set, many of them drawn."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

COUPLINGS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLIENTS, SIZE, STEPS, ROUNDS = 4, 3, 3, 10
ROUNDING = 1e-9
"""What is less is no lead: without coupling both methods take the same steps."""
DRAWS = 300
"""Problems of four clients each; in a single one the order of the methods is a matter of chance."""
LEAST_CURVED = 0.2
ETAS = (0.1, 0.3)
"""Rates are eta / (L steps), and here L = 1 for both parts; the theorems ask for small ones."""
METHODS = ("FedAlt", "FedSim")


class Clients(NamedTuple):
    """|A u + B v - c|^2 / 2 on each client of a problem, or of many: arrays are by draw, if any, and by client."""

    shared: Numbers
    """A."""
    own: Numbers
    """B."""
    targets: Numbers
    """c."""


def quadratic_clients(coupling: float, draw: int = 0) -> Clients:
    """A'A and B'B have 1 as their largest eigenvalue, and A'B has `coupling`: chi of the paper, where L = 1."""
    draws = np.random.default_rng(draw)
    clients = []
    for _ in range(CLIENTS):
        basis, _ = np.linalg.qr(draws.normal(size=(2 * SIZE, 2 * SIZE)))
        first, second = basis[:, :SIZE], basis[:, SIZE:]
        curved = np.concatenate([[1.0], draws.uniform(LEAST_CURVED, 1.0, SIZE - 1)]) ** 0.5
        own = (coupling * first + np.sqrt(1 - coupling**2) * second) * curved
        clients.append((first * curved, own, draws.normal(size=2 * SIZE)))
    shared, own, targets = (np.stack(part) for part in zip(*clients, strict=True))
    return Clients(shared, own, targets)


def best_loss(clients: Clients) -> float:
    """The least mean loss over u and all v, by least squares."""
    rows = []
    for place, (shared, own) in enumerate(zip(clients.shared, clients.own, strict=True)):
        every = np.zeros((len(own), CLIENTS * SIZE))
        every[:, place * SIZE : (place + 1) * SIZE] = own
        rows.append(np.hstack([shared, every]))
    matrix, wanted = np.vstack(rows), clients.targets.reshape(-1)
    found = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    return float(0.5 * np.sum((matrix @ found - wanted) ** 2) / CLIENTS)


def residuals(clients: Clients, u: Numbers, v: Numbers) -> Numbers:
    """A u + B v - c; u and v client by client."""
    return (clients.shared @ u[..., None] + clients.own @ v[..., None])[..., 0] - clients.targets


def trained(method: str, clients: Clients, u: Numbers, v: Numbers, rate: float) -> tuple[Numbers, Numbers]:
    """A visit to every client: FedSim moves both parts in each step, FedAlt first the personal, then the shared one."""
    both = [("u", "v")] * STEPS
    for parts in both if method == "FedSim" else [("v",)] * STEPS + [("u",)] * STEPS:
        left = residuals(clients, u, v)[..., None]
        of_u, of_v = (np.swapaxes(part, -1, -2) @ left for part in (clients.shared, clients.own))
        u = u - rate * of_u[..., 0] if "u" in parts else u
        v = v - rate * of_v[..., 0] if "v" in parts else v
    return u, v


def losses(method: str, clients: Clients, eta: float) -> Numbers:
    """The mean over clients after each round: the server's u is the mean of theirs, each keeps its v."""
    u, v = (np.zeros((*clients.targets.shape[:-1], SIZE)) for _ in range(2))
    found = []
    for _ in range(ROUNDS):
        u, v = trained(method, clients, u, v, eta / STEPS)
        u = np.broadcast_to(u.mean(axis=-2, keepdims=True), u.shape)
        found.append(mean_loss(residuals(clients, u, v)))
    return np.array(found)


def mean_loss(left: Numbers) -> Numbers:
    """Of clients with these residuals."""
    loss: Numbers = 0.5 * np.sum(left**2, axis=(-1, -2)) / CLIENTS
    return loss


@cache
def problems(coupling: float) -> tuple[Clients, Numbers]:
    """All draws, and the least loss of each."""
    drawn = [quadratic_clients(coupling, draw) for draw in range(DRAWS)]
    shared, own, targets = (np.stack(part) for part in zip(*drawn, strict=True))
    return Clients(shared, own, targets), np.array([best_loss(clients) for clients in drawn])


@cache
def excesses(coupling: float, eta: float) -> dict[str, Numbers]:
    """By method and draw: how far it is above the least loss, on average over rounds, in shares of the start."""
    clients, least = problems(coupling)
    start = mean_loss(clients.targets)
    return {method: (losses(method, clients, eta).mean(axis=0) - least) / (start - least) for method in METHODS}


class Lead(NamedTuple):
    """How much nearer to the least loss FedAlt is: the mean over draws, and its standard error."""

    mean: float
    error: float
    share: float
    """Of the draws in which it is ahead."""


def lead(coupling: float, eta: float) -> Lead:
    found = excesses(coupling, eta)
    ahead = found["FedSim"] - found["FedAlt"]
    return Lead(float(ahead.mean()), float(ahead.std(ddof=1) / np.sqrt(len(ahead))), float((ahead > ROUNDING).mean()))


def grows(eta: float) -> bool:
    """Whether the lead is nothing without coupling, and more at each larger one by two standard errors."""
    ahead = [excesses(chi, eta)["FedSim"] - excesses(chi, eta)["FedAlt"] for chi in COUPLINGS]
    risen = [later - earlier for earlier, later in pairwise(ahead)]
    sure = all(one.mean() > 2 * one.std(ddof=1) / np.sqrt(len(one)) for one in risen)
    return sure and bool(np.abs(ahead[0]).max() < ROUNDING)
