"""The batches of several clients side by side, drawn as each client draws its own, padded where they are unequal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plures.core.problem import Problem
from plures.core.seeds import generator
from plures.core.task import Augment

Places = list[Tensor | None]
"""Of each update, which examples of the client it is of; None: all of them."""


class StackedBatch(NamedTuple):
    """One batch of each client; shorter ones are filled up with examples of the same client that do not count."""

    inputs: Tensor
    targets: Tensor
    real: Tensor | None
    """Which examples count; None: all."""


def places_of(problem: Problem) -> Places:
    """As `Problem.batches` draws them."""
    visit, budget = problem.visit, problem.phase.budget
    draws = generator(visit.seed, "batches", visit.round, visit.client, budget.stream)
    return list(budget.batches(visit.data.num_examples, draws))


class StackedBatches:
    """The batches of clients that are sorted by their number of updates, the most first."""

    def __init__(self, problems: Sequence[Problem], places: Sequence[Places]) -> None:
        self.problems, self.places = problems, places
        self.inputs = [problem.visit.data.inputs for problem in problems]
        self.targets = [problem.visit.data.targets for problem in problems]
        self.device = self.targets[0].device
        self.num_updates = [len(mine) for mine in places]
        self.sizes = [[problem.visit.data.num_examples for problem in problems]]
        self.always_whole = all(indices is None for mine in places for indices in mine)
        if not self.always_whole:
            self.sizes = [self._sizes(step) for step in range(self.num_updates[0])]
        self.changes = [
            generator(p.visit.seed, "augment", p.visit.round, p.visit.client, p.phase.budget.stream) for p in problems
        ]

    def _sizes(self, step: int) -> list[int]:
        """How many examples each client has in a step."""
        active = self.num_active(step)
        found = [mine[step] for mine in self.places[:active]]
        return [
            problem.visit.data.num_examples if indices is None else len(indices)
            for problem, indices in zip(self.problems[:active], found, strict=True)
        ]

    def num_active(self, step: int) -> int:
        """How many clients have an update left."""
        return sum(step < count for count in self.num_updates)

    def num_seen(self, client: int) -> int:
        """Examples of all updates of a client."""
        if self.always_whole:
            return self.sizes[0][client] * self.num_updates[client]
        return sum(sizes[client] for sizes in self.sizes[: self.num_updates[client]])

    def take(self, step: int) -> StackedBatch:
        """The batches of one step, of the clients that are active in it."""
        augment = self.problems[0].binding.task.augment
        if augment is not None:
            return self._augmented(step, augment)
        active = self.num_active(step)
        if self.always_whole:
            inputs, targets, real = self._whole
            return StackedBatch(inputs[:active], targets[:active], None if real is None else real[:active])
        sizes = self.sizes[step]
        rows = self._table[step, :active, : max(sizes)]
        return StackedBatch(self._gathered(self.inputs, rows), self._gathered(self.targets, rows), self._real(sizes))

    def _augmented(self, step: int, augment: Augment) -> StackedBatch:
        chosen = self._chosen(step)
        sizes = [len(places) for places in chosen]
        inputs, targets = [], []
        for client, places in enumerate(chosen):
            inputs.append(filled(augment(self.inputs[client][places], self.changes[client]), max(sizes)))
            targets.append(filled(self.targets[client][places], max(sizes)))
        return StackedBatch(torch.stack(inputs), torch.stack(targets), self._real(sizes))

    def _chosen(self, step: int) -> list[Tensor]:
        found = [mine[step] for mine in self.places[: self.num_active(step)]]
        return [
            torch.arange(problem.visit.data.num_examples) if places is None else places
            for problem, places in zip(self.problems, found, strict=False)
        ]

    def _real(self, sizes: Sequence[int]) -> Tensor | None:
        if min(sizes) == max(sizes):
            return None
        counts = torch.tensor(sizes).unsqueeze(1)
        return (torch.arange(max(sizes)) < counts).to(self.device)

    @cached_property
    def _whole(self) -> StackedBatch:
        """All examples of every client: what each step of a full batch is of."""
        sizes = self.sizes[0]
        inputs = torch.stack([filled(mine, max(sizes)) for mine in self.inputs])
        targets = torch.stack([filled(mine, max(sizes)) for mine in self.targets])
        return StackedBatch(inputs, targets, self._real(sizes))

    @cached_property
    def _table(self) -> Tensor:
        """Of each step and client, which of its examples its batch is of."""
        longest = max(max(sizes) for sizes in self.sizes)
        table = torch.zeros(self.num_updates[0], len(self.problems), longest, dtype=torch.int64)
        for client, (problem, mine) in enumerate(zip(self.problems, self.places, strict=True)):
            whole = torch.arange(problem.visit.data.num_examples)
            rows = pad_sequence([whole if p is None else p for p in mine], batch_first=True, padding_value=-1)
            table[: len(mine), client] = rows[:, :1]
            table[: len(mine), client, : rows.shape[1]] = torch.where(rows < 0, rows[:, :1], rows)
        return table.to(self.device)

    def _gathered(self, examples: Sequence[Tensor], rows: Tensor) -> Tensor:
        first = examples[0]
        result = torch.empty(*rows.shape, *first.shape[1:], dtype=first.dtype, device=first.device)
        for mine, places, place in zip(examples, rows.unbind(), result.unbind(), strict=False):
            torch.index_select(mine, 0, places, out=place)
        return result


def filled(examples: Tensor, size: int) -> Tensor:
    """As many examples as that: the first one again and again below the others."""
    missing = size - len(examples)
    return torch.cat([examples, examples[:1].expand(missing, *examples.shape[1:])]) if missing else examples
