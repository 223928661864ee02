"""SCAFFOLD's control variates: what a client's gradient differs from everybody's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plures.core.errors import InvalidModel
from plures.core.networks import Network
from plures.core.problem import Problem
from plures.core.types import SHARED, Params, Part
from plures.core.visit import Visit

__all__ = ["CONTROL", "correction", "refreshed_controls", "with_controls"]

CONTROL: Part = "shared.control"
OWN_CONTROL: Part = "control"


def everybodys(name: str) -> str:
    return f"control.{name}"


def own(name: str) -> str:
    return f"own_control.{name}"


def with_controls(network: Network) -> Mapping[Part, Params]:
    """Control variates of all that is trained, zero at the start: one set for everybody and one for the client."""
    params = network.params
    trained = {name: value for name, value in params.items() if network.parts[name] == SHARED}
    taken = [given for name in trained for given in (everybodys(name), own(name)) if given in params]
    if taken:
        raise InvalidModel(f"the model has a parameter '{taken[0]}', but that names a control. Rename that module.")
    return {
        CONTROL: {everybodys(name): torch.zeros_like(value) for name, value in trained.items()},
        OWN_CONTROL: {own(name): torch.zeros_like(value) for name, value in trained.items()},
    }


def correction(params: Params, visit: Visit) -> Tensor:
    """The linear term whose gradient is c - c_i."""
    names = [name for name in params if own(name) in params]
    terms = [((params[everybodys(name)] - params[own(name)]) * params[name]).sum() for name in names]
    return torch.stack(terms).sum()


def refreshed_controls(problem: Problem, params: Params) -> Params:
    """After K steps: c_i' of the client, and c moved by the cohort's share of c_i' - c_i, for the upload to tell of."""
    ((rule, names),), visit = problem.optimizers(), problem.visit
    length = rule.lr(visit.round) * sum(1 for _ in problem.batches())
    if not length:  # nothing was learnt of the client's gradient
        return params
    share = visit.facts.cohort_clients / visit.facts.all_clients
    drift = {name: (visit.received[name] - params[name]) / length for name in names}
    changes = {name: value - params[everybodys(name)] for name, value in drift.items()}
    client = {own(name): params[own(name)] + change for name, change in changes.items()}
    shared = {everybodys(name): params[everybodys(name)] + share * change for name, change in changes.items()}
    return params | client | shared
