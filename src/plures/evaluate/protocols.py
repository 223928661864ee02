"""Protocols E1 to E4: which model is put to which client's examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from plures.core.adapting import Newcomer, adapted, last_round
from plures.core.client import Result, arrival, run_client
from plures.core.context import Server, lone_facts, make_visit
from plures.core.goals import CLASSIFICATION, Goal
from plures.core.method import own_parameters
from plures.core.program import Program
from plures.core.roles import Shares, Store
from plures.core.types import RESET_BUFFERS, Facts, Params, stays
from plures.core.visit import Visit
from plures.evaluate.scores import ClientScore, Evaluation, ModelKind, SplitName
from plures.evaluate.scoring import Clients, Scorer

Scores = dict[SplitName, ClientScore | None]
Mapped = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]

SeeModel = Callable[[ModelKind, int, Params], None]
"""Is shown (kind, client, parameters) of every model that a client has to itself."""


class Evaluator:
    """Scores the models of a run, client by client, on any split."""

    def __init__(
        self,
        program: Program,
        clients: Clients,
        store: Store,
        goal: Goal = CLASSIFICATION,
        *,
        forgetting: bool = False,
        newcomers: Sequence[int] | None = None,
    ) -> None:
        self.program, self.clients, self.store = program, clients, store
        self.scorer = Scorer(program, clients, goal, forgetting=forgetting)
        self.numbers: Sequence[int] = range(clients.num_clients) if newcomers is None else newcomers
        self.mapped: Mapped = map
        """How work is done on clients, one after another here; an engine may have it done elsewhere."""
        self.works: dict[tuple[ModelKind, tuple[SplitName, ...]], Callable[[Visit], Scores]] = {}
        self.of_newcomers = newcomers is not None
        """Whether those that are scored were never trained on: then the method makes models for newcomers."""

    def evaluate(
        self,
        server: Server,
        models: Sequence[ModelKind],
        splits: Sequence[SplitName],
        see: SeeModel | None = None,
    ) -> list[Evaluation]:
        """Every model asked for on every split, over all clients."""
        found: list[Evaluation] = []
        for model in models:
            if model == "global" or (model == "personal" and self.nothing_is_personal()):
                found += [self._pooled(server, model, split) for split in splits]
            else:
                found += self._one_by_one(server, model, splits, see)
        return found

    def model_of(self, server: Server, client: int, model: ModelKind) -> Params:
        """What a client's network is given when that kind of model is scored: parameters and statistics."""
        if model == "global":
            return self.scorer.shared_model(client, server.shared)
        binding, view = self.program.binding(client), self.program.method.predict
        params = self.scorer.whole(client, self.own_model(server, client, model), view)
        return view(params, binding.task.place(self.clients.client(client).train).inputs)

    def after_training(self, result: Result, splits: Sequence[SplitName]) -> dict[SplitName, ClientScore | None]:
        """E3: a client's own model right after its local work, before the server step."""
        return {split: self._score(result.client, result.trained, split) for split in splits}

    def nothing_is_personal(self) -> bool:
        """Whether every client's own model is the global one."""
        binding = self.program.binding(0)
        personal = any(stays(part) or part == RESET_BUFFERS for part in binding.parts.values())
        return not personal and self.program.has_global_model() and self.program.method.predict is own_parameters

    def own_model(self, server: Server, client: int, model: ModelKind) -> Params:
        """All parameters of a client's model: as it is, after its local work, or after fine-tuning."""
        if model == "finetuned" and self.of_newcomers:
            return Newcomer(program=self.program, population=self.clients, server=server, client=client).welcomed()
        return self._model_at(model, self._visit(server, client, model))

    def share_with(self, engine: Shares, models: Sequence[ModelKind], splits: Sequence[SplitName]) -> None:
        """Let an engine that is yet to be opened do what will be asked."""
        self.mapped = engine.map
        engine.share(self.scorer.score_group)
        for model in models:
            engine.share(self._work(model, splits))

    def _work(self, model: ModelKind, splits: Sequence[SplitName]) -> Callable[[Visit], Scores]:
        """The same function whenever the same is asked: an engine knows it by that."""
        return self.works.setdefault((model, tuple(splits)), partial(self._scores_at, model, tuple(splits)))

    def _scores_at(self, model: ModelKind, splits: Sequence[SplitName], visit: Visit) -> Scores:
        params = self._model_at(model, visit)
        return {split: self._score(visit.client, params, split) for split in splits}

    def _model_at(self, model: ModelKind, visit: Visit) -> Params:
        program = self.program
        if model == "post_local":
            binding = program.binding(visit.client)
            return run_client(program.method, binding, visit, stepping=program.stepping).trained
        return adapted(program, visit) if model == "finetuned" else arrival(program.binding(visit.client), visit)

    def _visit(self, server: Server, client: int, model: ModelKind) -> Visit:
        """E3 for everybody is as right after local work in the next round, if all took part in that."""
        round, facts = last_round(server), lone_facts(self.clients, client)
        if model == "post_local":
            round, facts = server.round + 1, self._facts_among_all(client)
        return make_visit(self.program, self.clients, self.store, server, client, round, facts)

    def _facts_among_all(self, client: int) -> Facts:
        everybody, total = self.clients.num_clients, self.clients.total_examples
        return Facts(
            examples=self.clients.num_examples(client),
            cohort_examples=total,
            all_examples=total,
            cohort_clients=everybody,
            all_clients=everybody,
            inclusion=1.0,
        )

    def _pooled(self, server: Server, model: ModelKind, split: SplitName) -> Evaluation:
        """Clients that share weights go through the network together."""
        if RESET_BUFFERS in self.program.binding(0).parts.values():
            found = [
                self.scorer.score(client, self.scorer.shared_model(client, server.shared), split, own_parameters)
                for client in self.numbers
            ]
            scores = [score for score in found if score is not None]
        else:
            groups = self.mapped(self.scorer.score_group, self.scorer.groups(server, self.numbers, split))
            scores = [score for group in groups for score in group]
        return Evaluation(model=model, split=split, scores=tuple(scores), newcomers=self.of_newcomers)

    def _one_by_one(
        self, server: Server, model: ModelKind, splits: Sequence[SplitName], see: SeeModel | None
    ) -> list[Evaluation]:
        scores: dict[SplitName, list[ClientScore]] = {split: [] for split in splits}
        for found in self._scores(server, model, splits, see):
            for split, score in found.items():
                scores[split] += [] if score is None else [score]
        return [
            Evaluation(model=model, split=split, scores=tuple(found), newcomers=self.of_newcomers)
            for split, found in scores.items()
        ]

    def _scores(
        self, server: Server, model: ModelKind, splits: Sequence[SplitName], see: SeeModel | None
    ) -> Iterator[Scores]:
        """Client by client; whoever wants to see the models gets them here, one after another."""
        if see is None and not self.of_newcomers:
            visits = (self._visit(server, client, model) for client in self.numbers)
            yield from self.mapped(self._work(model, splits), visits)
            return
        for client in self.numbers:
            params = self.own_model(server, client, model)
            if see is not None:
                see(model, client, params)
            yield {split: self._score(client, params, split) for split in splits}

    def _score(self, client: int, params: Params, split: SplitName) -> ClientScore | None:
        view = self.program.method.predict
        return self.scorer.score(client, self.scorer.whole(client, params, view), split, view)
