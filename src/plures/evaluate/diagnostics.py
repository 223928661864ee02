"""Numbers of the theory, measured in a run: gradients and their diversity, curvature, and what each phase gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan

import torch
from torch import Tensor

from plures.core.client import arrival, run_phases, told
from plures.core.context import Server, lone_facts, make_visit
from plures.core.method import Phase, View
from plures.core.program import Binding, Program
from plures.core.roles import Population, Store
from plures.core.seeds import global_draws
from plures.core.types import RESET_BUFFERS, Params, Part, stays, travels
from plures.core.visit import Visit
from plures.evaluate.buffers import estimated_buffers
from plures.evaluate.curvature import (
    MOST_CLIENTS,
    Curvature,
    curvature,
    curvature_numbers,
    plain_recurrence,
    spaced,
)

EXAMPLES_AT_ONCE = 512
"""Most examples in one pass; a multiple of 128, of which a gate for batches takes its means in evaluation."""
DIAGNOSTICS = "diagnostics"
"""What is going on, in errors and as the key of draws."""


class Diagnostics:
    """Measures a run at a round, over all clients or some, and leaves everything as it was."""

    def __init__(self, program: Program, clients: Population, store: Store) -> None:
        self.program = program
        self.clients = clients
        self.store = store

    def measure(self, server: Server, numbers: Sequence[int] | None = None) -> dict[str, float]:
        """Each client at the latest shared part and its own state, as the next round would find it.

        `numbers` are those of the clients to measure; a client without anything to learn from has no say.
        """
        clients = range(self.clients.num_clients) if numbers is None else numbers
        curved, gains = set(spaced(clients, MOST_CLIENTS)), Gains(self.program.method.local)
        gradients, curvatures = Gradients(), list[Curvature]()
        for client in filter(self.clients.num_examples, clients):
            looked = Look(binding=self.program.binding(client), visit=self._visit(server, client))
            with told(looked.visit, DIAGNOSTICS):
                here = looked.through(self.program.method.predict, looked.arrived())
                if here.is_void():
                    continue
                gradients.add(*here.gradients())
                curvatures += [here.curvature()] if client in curved else []
                gains.add(looked)
        return gradients.numbers() | curvature_numbers(curvatures) | gains.numbers()

    def _visit(self, server: Server, client: int) -> Visit:
        """The next round's, with everybody in its cohort."""
        facts = replace(
            lone_facts(self.clients, client),
            cohort_examples=self.clients.total_examples,
            cohort_clients=self.clients.num_clients,
        )
        return make_visit(self.program, self.clients, self.store, server, client, server.round + 1, facts)


@dataclass(frozen=True, kw_only=True)
class Look:
    """One client that is looked at."""

    binding: Binding
    visit: Visit

    def arrived(self) -> Params:
        return arrival(self.binding, self.visit)

    def through(self, view: View, params: Params) -> FullLoss:
        """Its loss at some parameters; statistics that visits forget are estimated, as for evaluation."""
        if RESET_BUFFERS in self.binding.parts.values():
            params = params | estimated_buffers(self.binding, params, view, self.visit.data)
        return FullLoss(binding=self.binding, visit=self.visit, view=view, params=params)


@dataclass(frozen=True, kw_only=True)
class FullLoss:
    """The loss of all training examples of a client at one point, in evaluation mode and without penalty.

    The network sees some examples at a time, but the loss all outputs at once: only the loss knows what it divides by,
    such as the number of tokens that are no padding.
    """

    binding: Binding
    visit: Visit
    view: View
    params: Params

    @cached_property
    def outputs(self) -> Tensor:
        with torch.no_grad(), self._looking():
            return torch.cat([self._output(self.params, inputs) for inputs in self._chunks()])

    def value(self) -> float:
        return float(self._loss(self.outputs))

    def is_void(self) -> bool:
        """Whether there is nothing to learn, as from padding alone: then not even outputs of zero have a loss."""
        tried = (self._loss(outputs).isnan() for outputs in (self.outputs, torch.zeros_like(self.outputs)))
        return all(map(bool, tried))

    def gradients(self) -> tuple[Params, Params]:
        """By the shared and by the personal parameters; zero where the loss does not depend on them."""
        shared, personal = self._trainable(travels), self._trainable(stays)
        leaves = {name: self.params[name].detach().requires_grad_() for name in shared + personal}
        total = {name: torch.zeros_like(value) for name, value in leaves.items()}
        for inputs, pull in zip(self._chunks(), self._pulls(), strict=True):
            with self._looking():
                output = self._output(self.params | leaves, inputs)
            if output.requires_grad:
                grads = torch.autograd.grad(output, list(leaves.values()), pull, materialize_grads=True)
                total = {name: total[name] + grad for name, grad in zip(leaves, grads, strict=True)}
        return {name: total[name] for name in shared}, {name: total[name] for name in personal}

    def curvature(self) -> Curvature:
        names = self._trainable(travels), self._trainable(stays)
        with self._looking():
            return curvature(self.binding, self.view, self.params, self.visit.data, names, self.visit.seed)

    def _trainable(self, accept: Callable[[Part], bool]) -> list[str]:
        """Real numbers that are no buffers; what a server keeps for itself is not among the parameters at all."""
        binding = self.binding
        buffers = binding.statistics | binding.task.buffers.keys()
        values = {n: value for n, value in self.params.items() if accept(binding.parts[n]) and n not in buffers}
        return [name for name, value in values.items() if value.is_floating_point() and value.numel()]

    def _chunks(self) -> tuple[Tensor, ...]:
        return torch.split(self.visit.data.inputs, EXAMPLES_AT_ONCE)

    def _output(self, params: Params, inputs: Tensor) -> Tensor:
        return self.binding.predict(self.view, params, inputs)

    def _loss(self, outputs: Tensor) -> Tensor:
        return self.binding.task.loss_function(outputs, self.visit.data.targets)

    def _pulls(self) -> tuple[Tensor, ...]:
        """The gradient of the loss by the outputs, chunk by chunk."""
        outputs = self.outputs.detach().requires_grad_()
        (pull,) = torch.autograd.grad(self._loss(outputs), outputs)
        return torch.split(pull, EXAMPLES_AT_ONCE)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        task, visit = self.binding.task, self.visit
        task.train(False)
        with global_draws(visit.seed, DIAGNOSTICS, visit.round, visit.client), plain_recurrence(task.module):
            yield


class Gradients:
    """Clients' gradients, added one at a time in double precision; what it holds does not grow with their number."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Params = {}
        self.lowest: Params = {}
        self.highest: Params = {}
        self.apart = 0.0
        """Sum of the squared distances from the mean."""
        self.personal = 0.0

    def add(self, shared: Params, personal: Params) -> None:
        self.count += 1
        self.personal += squared_norm(personal)
        for name, grad in shared.items():
            new = grad.double()
            mean = self.mean.get(name, torch.zeros_like(new))
            # Welford's update: no difference of large sums.
            self.mean[name] = mean + (new - mean) / self.count
            self.apart += float(((new - mean) * (new - self.mean[name])).sum())
            self.lowest[name] = torch.minimum(self.lowest.get(name, new), new)
            self.highest[name] = torch.maximum(self.highest.get(name, new), new)

    def numbers(self) -> dict[str, float]:
        if not self.count:
            return dict.fromkeys(GRADIENT_NUMBERS, nan)
        squared, diversity = squared_norm(self.mean), self.apart / self.count
        ratio = 1 + diversity / squared if squared else nan
        values = squared, self.personal / self.count, diversity, ratio, self._largest()
        return dict(zip(GRADIENT_NUMBERS, values, strict=True))

    def _largest(self) -> float:
        """Of all distances from the mean, coordinate by coordinate."""
        tops = [torch.maximum(self.highest[n] - mean, mean - self.lowest[n]).max() for n, mean in self.mean.items()]
        return float(torch.stack(tops).max()) if tops else 0.0


GRADIENT_NUMBERS = (
    "shared_gradient",
    "personal_gradient",
    "gradient_diversity",
    "gradient_diversity_ratio",
    "largest_dissimilarity",
)


def squared_norm(params: Params) -> float:
    return sum(float(value.double().square().sum()) for value in params.values())


class Gains:
    """How much each phase lowers the loss, by its own view: a mean over clients."""

    def __init__(self, phases: tuple[Phase, ...]) -> None:
        self.phases = phases
        self.count = 0
        self.drops = [0.0 for _ in phases]

    def add(self, looked: Look) -> None:
        """The client's work in a round, on a copy, with the draws that it would have there."""
        self.count += 1
        binding, visit = looked.binding, looked.visit
        with global_draws(visit.seed, "network", visit.round, visit.client):
            params = looked.arrived()
            for number, phase in enumerate(self.phases):
                before = looked.through(phase.view, params).value()
                params = run_phases((phase,), binding, visit, params).params
                self.drops[number] += before - looked.through(phase.view, params).value()

    def numbers(self) -> dict[str, float]:
        means = [drop / self.count if self.count else nan for drop in self.drops]
        return {f"loss_drop/{name}": mean for name, mean in zip(phase_names(self.phases), means, strict=True)}


def phase_names(phases: tuple[Phase, ...]) -> list[str]:
    """Each name once, as a report of a round has them where every phase has something to do."""
    names: list[str] = []
    for phase in phases:
        names.append(phase.name if phase.name not in names else f"{phase.name}.{len(names)}")
    return names
