"""A cohort as one computation: clients of the same kind take their steps together, on stacks of parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import torch

from plures.core.client import Result, Work, arrival, conclude, own_draws, run_client, run_phases, told
from plures.core.losses import Lost, attempted
from plures.core.method import Phase
from plures.core.problem import Stepping
from plures.core.program import Binding, Program
from plures.core.task import Task
from plures.core.types import Params
from plures.core.visit import Visit
from plures.engines.lockstep import lockstep
from plures.engines.vectorisable import FAILURES, why_not

BLOCK = 32
"""Clients that are looked at together, so that memory is bounded."""


class Vectorised:
    """Runs blocks of the cohort in this process: in lockstep what can be, one client after another what cannot."""

    name = "vectorised"

    def __init__(self, *, block: int = BLOCK, stepping: Stepping | None = None) -> None:
        self.block = block
        self.stepping = stepping
        """How a client takes the steps of a phase that it takes by itself."""
        self._reasons: WeakKeyDictionary[Task, list[str | None]] = WeakKeyDictionary()

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result | Lost]:
        waiting = iter(visits)
        while block := list(islice(waiting, self.block)):
            yield from self._block(program, block)

    def map(self, work: Callable[[Visit], Any], visits: Iterable[Visit]) -> Iterator[Any]:
        return map(work, visits)

    def reasons(self, program: Program, visit: Visit) -> list[str | None]:
        """Of each phase, why clients of this visit's kind take it one after another; None: they do not."""
        task = program.binding(visit.client).task
        if task not in self._reasons:
            self._reasons[task] = [why_not(program, phase, visit) for phase in program.method.local]
        return self._reasons[task]

    def _block(self, program: Program, visits: Sequence[Visit]) -> Iterator[Result | Lost]:
        groups: dict[Hashable, list[int]] = {}
        found: dict[int, Result | Lost] = {}
        for place, visit in enumerate(visits):
            kind = attempted(visit, partial(kind_of, program.binding(visit.client), visit))
            if isinstance(kind, Lost):
                found[place] = kind
            else:
                groups.setdefault(kind, []).append(place)
        for places in groups.values():
            found |= zip(places, self._group(program, [visits[place] for place in places]), strict=True)
        return (found.pop(place) for place in range(len(visits)))

    def _group(self, program: Program, visits: Sequence[Visit]) -> list[Result | Lost]:
        """Clients of one kind."""
        method, binding = program.method, program.binding(visits[0].client)
        together = len(visits) > 1 and visits[0].data.num_examples > 0
        reasons = self.reasons(program, visits[0]) if together else []
        if None not in reasons:
            return [
                attempted(visit, partial(run_client, method, binding, visit, stepping=self.stepping))
                for visit in visits
            ]
        group = [AtWork(visit, binding) for visit in visits]
        for phase, reason in zip(method.local, reasons, strict=True):
            going_on = [one for one in group if one.lost is None]
            if reason is not None or not in_lockstep(phase, binding, going_on):
                for one in going_on:
                    one.take(phase, self.stepping)
        return [attempted(one.visit, partial(one.conclude, program)) if one.lost is None else one.lost for one in group]


def kind_of(binding: Binding, visit: Visit) -> Hashable:
    """Clients of the same kind can be stacked."""
    with told(visit, "data"):
        inputs, targets = visit.data.inputs, visit.data.targets
    shapes = tuple((name, value.shape, value.dtype) for name, value in (visit.received | visit.state).items())
    data = (inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype, len(targets) > 0)
    return id(binding.task), visit.round, visit.seed, shapes, data


class AtWork:
    """One client between its phases."""

    def __init__(self, visit: Visit, binding: Binding) -> None:
        self.visit, self.binding = visit, binding
        self.work = Work(arrival(binding, visit), {}, {}, 0.0, {})
        self.lost: Lost | None = None
        self._drawn: torch.Tensor | None = None

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """The client's own draws, from where it left off: phases in lockstep draw nothing."""
        with own_draws(self.visit):
            if self._drawn is not None:
                torch.set_rng_state(self._drawn)
            yield
            self._drawn = torch.get_rng_state()

    def take(self, phase: Phase, stepping: Stepping | None) -> None:
        """A phase by itself; who fails at it is lost."""
        run = partial(run_phases, (phase,), self.binding, self.visit, self.work.params, stepping=stepping)
        with self.drawing():
            done = attempted(self.visit, run)
        if isinstance(done, Lost):
            self.lost = done
        else:
            self.add(done)

    def add(self, done: Work) -> None:
        """What one more phase has left behind; a second phase of the same name is numbered."""
        before = self.work
        names = {name: name if name not in before.losses else f"{name}.{len(before.losses)}" for name in done.losses}
        self.work = Work(
            params=done.params,
            observed=before.observed | done.observed,
            losses=before.losses | {names[name]: loss for name, loss in done.losses.items()},
            passes=before.passes + done.passes,
            seconds=before.seconds | {names[name]: taken for name, taken in done.seconds.items()},
            forward_passes=before.forward_passes + done.forward_passes,
            whole_passes=before.whole_passes + done.whole_passes,
        )

    def conclude(self, program: Program) -> Result:
        self.binding.task.train(True)  # as the phases left it; who was concluded before has changed it
        with self.drawing():
            return conclude(program.method, self.binding, self.visit, self.work)


def in_lockstep(phase: Phase, binding: Binding, group: Sequence[AtWork]) -> bool:
    """Whether all took the phase together; else nobody did, and the one it fails on will be known by itself."""
    began = time.perf_counter()
    params: list[Params] = [one.work.params for one in group]
    if not group:
        return True
    try:
        outcomes = lockstep(phase, binding, [one.visit for one in group], params)
    except FAILURES:
        return False
    taken, passes = time.perf_counter() - began, sum(outcome.passes for outcome in outcomes)
    for one, outcome in zip(group, outcomes, strict=True):
        share = outcome.passes / passes * taken if passes else 0.0
        losses, seconds = ({phase.name: outcome.loss}, {phase.name: share}) if outcome.passes else ({}, {})
        one.add(Work(outcome.params, outcome.observed, losses, outcome.passes, seconds))
    return True
