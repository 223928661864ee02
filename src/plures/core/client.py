"""The one place that says what a client does in a round; pure, so that engines may map it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor

from plures.core.errors import ClientFailed
from plures.core.method import Method, Phase, Upload, Visit
from plures.core.problem import Gradient, Problem, descend, eager_gradient
from plures.core.program import Binding
from plures.core.seeds import global_draws
from plures.core.types import SHARED_BUFFERS, Params, is_constant, select, stays, travels


class Result(NamedTuple):
    """What one client's visit gives back."""

    client: int
    state: Params
    """What stays on the client."""
    upload: Upload
    buffers: Params
    """Change of the shared running statistics, sent beside the upload."""
    losses: dict[str, Tensor]
    """Mean loss of each phase in which the client had something to do."""
    passes: float
    trained: Params
    """Everything right after local training, for evaluation before the server step."""


def run_phases(
    phases: tuple[Phase, ...],
    binding: Binding,
    visit: Visit,
    params: Params,
    gradient: Gradient = eager_gradient,
) -> tuple[Params, Params, dict[str, Tensor], float]:
    """Run phases in order; returns parameters, observed gradients, mean losses and passes."""
    binding.task.train(True)
    observed: Params = {}
    losses: dict[str, Tensor] = {}
    passes = 0.0
    for phase in phases:
        problem = Problem(phase=phase, visit=visit, binding=binding, params=params, gradient=gradient)
        with told(visit, phase.name):
            outcome = (phase.solver or descend)(problem)
        params, passes = outcome.params, passes + outcome.passes
        observed = observed | outcome.observed
        if outcome.passes:
            losses[phase.name if phase.name not in losses else f"{phase.name}.{len(losses)}"] = outcome.loss
    return params, observed, losses, passes


@contextmanager
def told(visit: Visit, phase: str) -> Iterator[None]:
    """What the network, the loss, the data or a method's own functions raise is told with client, round and phase."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise ClientFailed(
            f"{type(error).__name__}: {error}",
            client=visit.name or str(visit.client),
            round=visit.round,
            phase=phase,
            remedy="Look at this client's data, at the network and at the method.",
        ) from error


def arrival(binding: Binding, visit: Visit) -> Params:
    """All parameters as a client's work begins; buffers are copies, for layers write into them."""
    params = binding.picked(is_constant) | visit.received | visit.state
    return {name: value.clone() if name in binding.statistics else value for name, value in params.items()}


def run_client(method: Method, binding: Binding, visit: Visit, gradient: Gradient = eager_gradient) -> Result:
    """One client's whole work in one round."""
    with global_draws(visit.seed, "network", visit.round, visit.client):
        params, observed, losses, passes = run_phases(method.local, binding, visit, arrival(binding, visit), gradient)
        if method.refresh is not None:
            last = Problem(phase=method.local[-1], visit=visit, binding=binding, params=params, gradient=gradient)
            with told(visit, "refresh"):
                params = method.refresh(last, params)
    shared = select(params, binding.parts, lambda part: travels(part) and part != SHARED_BUFFERS)
    buffers = select(params, binding.parts, lambda part: part == SHARED_BUFFERS)
    with told(visit, "upload"):
        upload = method.upload(visit, shared, observed)
    return Result(
        client=visit.client,
        state=select(params, binding.parts, stays),
        upload=upload,
        buffers={name: visit.received[name] - value for name, value in buffers.items()},
        losses=losses,
        passes=passes,
        trained=params,
    )
