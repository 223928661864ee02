"""The one place that says what a client does in a round; pure, so that engines may map it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from plures.core.errors import ClientFailed
from plures.core.method import Method, Phase, own_parameters
from plures.core.problem import Gradient, Problem, Stepping, descend, eager_gradient
from plures.core.products import faster_products
from plures.core.program import Binding
from plures.core.seeds import global_draws
from plures.core.types import SHARED_BUFFERS, Params, aligned, is_constant, is_known, select, stays, travels
from plures.core.visit import Trained, Upload, Visit
from plures.core.wire import NOTHING_SENT, Message, Sent

REFRESH = "refresh"
"""What comes after the phases, in errors and times."""
EXAMPLES_SEEN = 128
"""Of a client's examples, so many choose what it is said to use, where inputs have a say in that."""


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
    """Everything right after the phases, for evaluation before the server step."""
    known: Params = MappingProxyType({})  # type: ignore[assignment]
    """What the server is newly told of the client's state."""
    used: Mapping[str, int] = MappingProxyType({})
    """Nonzero coordinates of each parameter of the client's model; empty: it is dense."""
    seconds: Mapping[str, float] = MappingProxyType({})
    """Time of each phase, and of what came after them."""
    up: Sent = NOTHING_SENT
    """What the upload took."""
    forward_passes: float = 0.0
    """Of the passes, those that went no way back."""
    whole_passes: float = 0.0
    """Of the passes, those through the whole network, before a sparse model was cut from it."""
    searched: tuple[int, ...] = ()
    """Of each gradient that was taken after the phases, for new masks, how many examples it was of."""

    def message(self) -> Message:
        """All that the client sends."""
        return Message(self.upload, {**self.buffers, **self.known})


class Work(NamedTuple):
    """What phases leave behind."""

    params: Params
    observed: Params
    losses: dict[str, Tensor]
    passes: float
    seconds: dict[str, float]
    forward_passes: float = 0.0
    whole_passes: float = 0.0


def run_phases(
    phases: tuple[Phase, ...],
    binding: Binding,
    visit: Visit,
    params: Params,
    gradient: Gradient = eager_gradient,
    stepping: Stepping | None = None,
) -> Work:
    """Run phases in order."""
    binding.task.train(True)
    observed: Params = {}
    losses: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    passes, forward_passes, whole_passes = 0.0, 0.0, 0.0
    for phase in phases:
        began = time.perf_counter()
        problem = Problem(
            phase=phase, visit=visit, binding=binding, params=params, gradient=gradient, stepping=stepping
        )
        with told(visit, phase.name), nullcontext() if stepping is None else faster_products(binding.task.module):
            outcome = (phase.solver or descend)(problem)
        params, passes = outcome.params, passes + outcome.passes
        forward_passes += outcome.forward_passes
        whole_passes += outcome.whole_passes
        observed = observed | outcome.observed
        if outcome.passes:
            name = phase.name if phase.name not in losses else f"{phase.name}.{len(losses)}"
            losses[name], seconds[name] = outcome.loss, time.perf_counter() - began
    return Work(params, observed, losses, passes, seconds, forward_passes, whole_passes)


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
    return {name: value.clone() if name in binding.statistics else aligned(value) for name, value in params.items()}


def run_client(
    method: Method,
    binding: Binding,
    visit: Visit,
    gradient: Gradient = eager_gradient,
    stepping: Stepping | None = None,
) -> Result:
    """One client's whole work in one round; `stepping` is how an engine takes the steps."""
    with own_draws(visit):
        work = run_phases(method.local, binding, visit, arrival(binding, visit), gradient, stepping)
        return conclude(method, binding, visit, work, gradient)


def own_draws(visit: Visit) -> AbstractContextManager[None]:
    """What a network draws while a client works, such as dropout, is the client's and the round's."""
    return global_draws(visit.seed, "network", visit.round, visit.client)


def conclude(method: Method, binding: Binding, visit: Visit, work: Work, gradient: Gradient = eager_gradient) -> Result:
    """What comes after the phases: the refresh, what is sent and what stays."""
    params, seconds, began, searched = work.params, work.seconds, time.perf_counter(), list[int]()
    if method.refresh is not None:
        last = Problem(phase=method.local[-1], visit=visit, binding=binding, params=params, gradient=gradient)
        with told(visit, REFRESH):
            params, searched = method.refresh(last, params), last.taken
        seconds = seconds | {REFRESH: time.perf_counter() - began}
    state, known = select(params, binding.parts, stays), select(params, binding.parts, is_known)
    shared = select(params, binding.parts, lambda part: travels(part) and part != SHARED_BUFFERS)
    buffers = select(params, binding.parts, lambda part: part == SHARED_BUFFERS)
    with told(visit, "upload"):
        upload = method.upload(visit, Trained(shared, work.observed, known))
    return Result(
        client=visit.client,
        state=state,
        upload=upload,
        buffers={name: visit.received[name] - value for name, value in buffers.items()},
        losses=work.losses,
        passes=work.passes,
        forward_passes=work.forward_passes,
        whole_passes=work.whole_passes,
        searched=tuple(searched),
        trained=work.params,
        known=news(known, visit.state),
        used=nonzeros(method, binding, work.params, visit),
        seconds=seconds,
    )


def news(known: Params, before: Params) -> Params:
    """What the server does not know yet."""
    return {name: value for name, value in known.items() if not torch.equal(value, before[name])}


def some_of(inputs: Tensor) -> Tensor:
    """A few examples from all over, for data may be sorted."""
    return inputs[:: max(1, len(inputs) // EXAMPLES_SEEN)][:EXAMPLES_SEEN]


def nonzeros(method: Method, binding: Binding, params: Params, visit: Visit) -> dict[str, int]:
    """How many coordinates of its parameters a client's model really uses; {} of a method whose models are dense.

    Where it has a capacity, training is looked at too, and what uses more counts.
    """
    views = {method.predict} if method.capacity is None else {method.predict, *(phase.view for phase in method.local)}
    if views == {own_parameters} and method.wrap is None:
        return {}
    with torch.inference_mode():
        inputs = some_of(visit.data.inputs)
        binding.task.train(False)
        shown = [binding.task.seen(view(params, inputs), inputs) for view in views]
        counts = [{name: int(torch.count_nonzero(seen[name])) for name in binding.task.parameters} for seen in shown]
    return max(counts, key=lambda count: sum(count.values()))
