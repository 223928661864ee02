"""From a model and a client's examples to the client's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from plures.core.context import Server
from plures.core.goals import Goal
from plures.core.layout import output_by_channels
from plures.core.method import View, own_parameters
from plures.core.products import faster_products
from plures.core.program import Program
from plures.core.roles import Population
from plures.core.task import Loss
from plures.core.types import RESET_BUFFERS, Batch, Params, aligned, is_constant
from plures.evaluate.buffers import estimated_buffers
from plures.evaluate.forgetting import forgetting
from plures.evaluate.scores import SMALLER_IS_BETTER, ClientScore, SplitName

TARGETS_AT_ONCE = 1024
"""Most targets in one pass, examples or tokens; clients that share weights are put together up to it."""


class HasSplits(Protocol):
    @property
    def train(self) -> Batch: ...

    @property
    def splits(self) -> Mapping[str, Batch]: ...

    @property
    def targets(self) -> Mapping[str, Tensor]: ...


class Clients(Population, Protocol):
    """What evaluation needs of a federation: the splits of each client."""

    def client(self, client: int) -> HasSplits: ...


class Answers(NamedTuple):
    """What a model says to a client's examples, and what is right."""

    output: Tensor
    targets: Tensor


class Group(NamedTuple):
    """Clients that are put to one model together."""

    round: int
    shared: Params
    clients: tuple[int, ...]
    split: SplitName


class Scorer:
    """Puts models to clients' examples."""

    def __init__(
        self, program: Program, clients: Clients, goal: Goal, *, forgetting: bool = False, loss: Loss | None = None
    ) -> None:
        self.program, self.clients, self.goal = program, clients, goal
        self.loss = loss or program.loss
        """By default that of training."""
        self.forgetting = forgetting
        """Whether accuracy is also told apart for classes that the client has trained on and others."""

    def whole(self, client: int, params: Params, view: View) -> Params:
        """Parameters with the running statistics that a client has to estimate, if it is so agreed."""
        binding = self.program.binding(client)
        if RESET_BUFFERS not in binding.parts.values():
            return params
        return params | estimated_buffers(binding, params, view, self.clients.client(client).train)

    def shared_model(self, client: int, shared: Params) -> Params:
        """The global model as this client has it."""
        return self.whole(client, self.program.binding(client).picked(is_constant) | shared, own_parameters)

    def answers(self, client: int, params: Params, split: SplitName, view: View) -> Answers | None:
        """None where there is nothing to be scored."""
        parts = list(self._in_parts(client, params, split, view))
        return Answers(*map(torch.cat, zip(*parts, strict=True))) if len(parts) > 1 else next(iter(parts), None)

    def score(self, client: int, params: Params, split: SplitName, view: View) -> ClientScore | None:
        if self.goal.items is None or self.loss is not self.goal.loss or self.forgetting:
            answers = self.answers(client, params, split, view)
            return None if answers is None else self._scored(client, answers)
        parts = self._in_parts(client, params, split, view)
        found = [(self._scored(client, some), self.goal.items(some.targets)) for some in parts]
        return together(found) if found else None

    def _in_parts(self, client: int, params: Params, split: SplitName, view: View) -> Iterator[Answers]:
        """As many examples as go through the network at once; nothing where there is nothing to be scored."""
        batch = self.program.binding(client).task.place(self.clients.client(client).splits[split])
        if batch.num_examples == 0 or self.goal.count(batch.targets) == 0:
            return
        size = at_once(batch.targets)
        for inputs, targets in zip(torch.split(batch.inputs, size), torch.split(batch.targets, size), strict=True):
            yield Answers(self._output(client, params, inputs, view), targets)

    def groups(self, server: Server, numbers: Sequence[int], split: SplitName) -> Iterator[Group]:
        """Clients that share weights, as many together as go through the network at once."""
        group = partial(Group, server.round, server.shared)
        clients: list[int] = []
        total = 0
        for client in numbers:
            size = self.clients.client(client).targets[split].numel()
            if clients and total + size > TARGETS_AT_ONCE:
                yield group(tuple(clients), split)
                clients, total = [], 0
            if size:
                clients.append(client)
                total += size
        if clients:
            yield group(tuple(clients), split)

    def score_group(self, group: Group) -> list[ClientScore]:
        """The global model on some clients, in one pass."""
        first = group.clients[0]
        binding, params = self.program.binding(first), self.program.binding(0).picked(is_constant) | group.shared
        if len(group.clients) == 1:  # may have more than goes through the network at once
            found = self.score(first, params, group.split, own_parameters)
            return [] if found is None else [found]
        batches = [self.clients.client(client).splits[group.split] for client in group.clients]
        inputs = torch.cat([batch.inputs for batch in batches])
        batch = binding.task.place(Batch(inputs, torch.cat([batch.targets for batch in batches])))
        sizes = [part.num_examples for part in batches]
        outputs = torch.split(self._output(first, params, batch.inputs, own_parameters), sizes)
        answers = zip(group.clients, outputs, torch.split(batch.targets, sizes), strict=True)
        return [self._scored(client, Answers(*own)) for client, *own in answers if self.goal.count(own[1])]

    def _output(self, client: int, params: Params, inputs: Tensor, view: View) -> Tensor:
        task = self.program.binding(client).task
        task.train(False)
        with torch.inference_mode(), faster_products(task.module):
            placed = {name: aligned(value) for name, value in params.items()}
            return output_by_channels(task, view(placed, inputs), inputs)

    def _scored(self, client: int, answers: Answers) -> ClientScore:
        with torch.inference_mode():
            values = {name: metric(*answers) for name, metric in self.goal.metrics.items()}
            values["loss"] = float(self.loss(*answers))
            values = {name: counted(name, value) for name, value in values.items()}
            if self.forgetting:
                values |= forgetting(*answers, self.clients.client(client).targets["train"])
            return ClientScore(client=client, examples=self.goal.count(answers.targets), values=values)


def together(parts: Sequence[tuple[ClientScore, Mapping[str, int]]]) -> ClientScore:
    """One score of a client's parts, each with the items that its metrics are means over."""
    first = parts[0][0]
    if len(parts) == 1:
        return first
    values: dict[str, float] = {}
    for name in first.values:
        told = [(score.values[name], items[name]) for score, items in parts if items[name]]
        total = sum(number for _, number in told)
        values[name] = sum(value * number for value, number in told) / total if total else first.values[name]
    return replace(first, examples=sum(score.examples for score, _ in parts), values=values)


def at_once(targets: Tensor) -> int:
    """Most examples in one pass."""
    return max(1, TARGETS_AT_ONCE * len(targets) // targets.numel())


def counted(metric: str, value: float) -> float:
    """An error that is no number is the worst there is: a model that overflows does not drop out of the mean."""
    return math.inf if math.isnan(value) and metric in SMALLER_IS_BETTER else value
