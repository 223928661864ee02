"""Protocols E1 to E4: which model is put to which client's examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from plures.core.client import Result, run_phases
from plures.core.client import arrival as params_at_arrival
from plures.core.context import Population, Server, Store, lone_facts, make_visit
from plures.core.goals import CLASSIFICATION, Goal
from plures.core.method import View, Visit, own_parameters
from plures.core.program import Program
from plures.core.seeds import global_draws
from plures.core.types import RESET_BUFFERS, Batch, Params, is_constant, stays
from plures.evaluate.buffers import estimated_buffers
from plures.evaluate.scores import ClientScore, Evaluation, ModelKind, SplitName

EXAMPLES_AT_ONCE = 4096
"""Most examples in one pass; clients that share weights are put together up to it."""


class Clients(Population, Protocol):
    """What evaluation needs of a federation: the splits of each client."""

    def client(self, client: int) -> HasSplits: ...


class HasSplits(Protocol):
    @property
    def train(self) -> Batch: ...

    @property
    def splits(self) -> Mapping[str, Batch]: ...


class Evaluator:
    """Scores the models of a run, client by client, on any split."""

    def __init__(self, program: Program, clients: Clients, store: Store, goal: Goal = CLASSIFICATION) -> None:
        self.program = program
        self.goal = goal
        self.clients = clients
        self.store = store

    def evaluate(
        self,
        server: Server,
        models: Sequence[ModelKind],
        splits: Sequence[SplitName],
        on_tuned: Callable[[int, Params], None] | None = None,
    ) -> list[Evaluation]:
        """Every model asked for on every split, over all clients; `on_tuned` sees each fine-tuned one."""
        found: list[Evaluation] = []
        for model in models:
            if model == "global" or (model == "personal" and self._nothing_is_personal()):
                found += [self._pooled(server, model, split) for split in splits]
            else:
                found += self._one_by_one(server, model, splits, on_tuned)
        return found

    def model_of(self, server: Server, client: int, model: ModelKind) -> Params:
        """What a client's network is given when that kind of model is scored: parameters and statistics."""
        binding, data = self.program.binding(client), self.clients.client(client)
        view = own_parameters if model == "global" else self.program.method.predict
        if model == "global":
            params = binding.picked(is_constant) | server.shared
        else:
            params = self._own_model(server, client, tuned=model == "finetuned")
        if RESET_BUFFERS in binding.parts.values():
            params = params | estimated_buffers(binding, params, view, data.train)
        return view(params, binding.task.place(data.train).inputs)

    def after_training(self, result: Result, splits: Sequence[SplitName]) -> dict[SplitName, ClientScore | None]:
        """E3: a client's own model right after its local work, before the server step."""
        return {split: self._score(result.client, result.trained, split) for split in splits}

    def _nothing_is_personal(self) -> bool:
        binding = self.program.binding(0)
        personal = any(stays(part) or part == RESET_BUFFERS for part in binding.parts.values())
        return not personal and self.program.has_global_model() and self.program.method.predict is own_parameters

    def _pooled(self, server: Server, model: ModelKind, split: SplitName) -> Evaluation:
        """Clients that share weights go through the network together."""
        binding = self.program.binding(0)
        scores: list[ClientScore] = []
        if RESET_BUFFERS in binding.parts.values():
            constants = binding.picked(is_constant)
            for client in range(self.clients.num_clients):
                score = self._score(client, constants | server.shared, split, own_parameters)
                scores += [] if score is None else [score]
        else:
            params = binding.picked(is_constant) | server.shared
            for group in self._groups(split):
                scores += self._score_group(params, group)
        return Evaluation(model=model, split=split, scores=tuple(scores))

    def _groups(self, split: SplitName) -> Iterator[list[tuple[int, Batch]]]:
        group: list[tuple[int, Batch]] = []
        total = 0
        for client in range(self.clients.num_clients):
            batch = self.clients.client(client).splits[split]
            if group and total + batch.num_examples > EXAMPLES_AT_ONCE:
                yield group
                group, total = [], 0
            if batch.num_examples:
                group.append((client, batch))
                total += batch.num_examples
        if group:
            yield group

    def _score_group(self, params: Params, group: list[tuple[int, Batch]]) -> Iterator[ClientScore]:
        task = self.program.binding(group[0][0]).task
        inputs = torch.cat([batch.inputs for _, batch in group])
        targets = torch.cat([batch.targets for _, batch in group])
        batch = task.place(Batch(inputs, targets))
        output = self._output(group[0][0], params, batch.inputs, own_parameters)
        sizes = [part.num_examples for _, part in group]
        outputs, wanted = torch.split(output, sizes), torch.split(batch.targets, sizes)
        for (client, _), its_output, its_targets in zip(group, outputs, wanted, strict=True):
            if self.goal.count(its_targets):
                yield self._scored(client, its_output, its_targets)

    def _one_by_one(
        self,
        server: Server,
        model: ModelKind,
        splits: Sequence[SplitName],
        on_tuned: Callable[[int, Params], None] | None,
    ) -> list[Evaluation]:
        scores: dict[SplitName, list[ClientScore]] = {split: [] for split in splits}
        for client in range(self.clients.num_clients):
            params = self._own_model(server, client, tuned=model == "finetuned")
            if on_tuned is not None and model == "finetuned":
                on_tuned(client, params)
            for split in splits:
                score = self._score(client, params, split)
                scores[split] += [] if score is None else [score]
        return [Evaluation(model=model, split=split, scores=tuple(scores[split])) for split in splits]

    def _own_model(self, server: Server, client: int, *, tuned: bool) -> Params:
        visit = self._visit(server, client)
        binding = self.program.binding(client)
        params = params_at_arrival(binding, visit)
        if not tuned:
            return params
        with global_draws(self.program.seed, "adapt", server.round, client):
            return run_phases(self.program.method.adapt, binding, visit, params)[0]

    def _visit(self, server: Server, client: int) -> Visit:
        facts = lone_facts(self.clients, client)
        return make_visit(self.program, self.clients, self.store, server, client, server.round, facts)

    def _score(self, client: int, params: Params, split: SplitName, view: View | None = None) -> ClientScore | None:
        binding, data = self.program.binding(client), self.clients.client(client)
        batch = binding.task.place(data.splits[split])
        if batch.num_examples == 0 or self.goal.count(batch.targets) == 0:
            return None
        if RESET_BUFFERS in binding.parts.values():
            params = params | estimated_buffers(binding, params, view or self.program.method.predict, data.train)
        outputs = [
            self._output(client, params, some, view or self.program.method.predict)
            for some in torch.split(batch.inputs, EXAMPLES_AT_ONCE)
        ]
        return self._scored(client, torch.cat(outputs), batch.targets)

    def _output(self, client: int, params: Params, inputs: Tensor, view: View) -> Tensor:
        binding = self.program.binding(client)
        binding.task.train(False)
        with torch.inference_mode():
            return binding.task.output(view(params, inputs), inputs)

    def _scored(self, client: int, output: Tensor, targets: Tensor) -> ClientScore:
        with torch.inference_mode():
            values = {name: metric(output, targets) for name, metric in self.goal.metrics.items()}
            values["loss"] = float(self.program.loss(output, targets))
            return ClientScore(client=client, examples=self.goal.count(targets), values=values)
