"""Protocols E1 to E4: which model is put to which client's examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plures.core.adapting import Newcomer, adapted, last_round
from plures.core.client import Result, arrival, run_client
from plures.core.context import Server, Store, lone_facts, make_visit
from plures.core.goals import CLASSIFICATION, Goal
from plures.core.method import own_parameters
from plures.core.program import Program
from plures.core.types import RESET_BUFFERS, Facts, Params, stays
from plures.core.visit import Visit
from plures.evaluate.scores import ClientScore, Evaluation, ModelKind, SplitName
from plures.evaluate.scoring import Clients, Scorer

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
        if model == "post_local":
            return self._after_work(server, client)
        if model == "finetuned" and self.of_newcomers:
            return Newcomer(program=self.program, population=self.clients, server=server, client=client).welcomed()
        visit = self._visit(server, client, last_round(server), lone_facts(self.clients, client))
        return adapted(self.program, visit) if model == "finetuned" else arrival(self.program.binding(client), visit)

    def _after_work(self, server: Server, client: int) -> Params:
        """E3 for everybody: as it would be right after local work in the next round, if all took part in that."""
        size, everybody = self.clients.num_examples(client), self.clients.num_clients
        total = self.clients.total_examples
        facts = Facts(
            examples=size,
            cohort_examples=total,
            all_examples=total,
            cohort_clients=everybody,
            all_clients=everybody,
            inclusion=1.0,
        )
        visit = self._visit(server, client, server.round + 1, facts)
        program = self.program
        return run_client(program.method, program.binding(client), visit, stepping=program.stepping).trained

    def _pooled(self, server: Server, model: ModelKind, split: SplitName) -> Evaluation:
        """Clients that share weights go through the network together."""
        if RESET_BUFFERS in self.program.binding(0).parts.values():
            found = [
                self.scorer.score(client, self.scorer.shared_model(client, server.shared), split, own_parameters)
                for client in self.numbers
            ]
            scores = [score for score in found if score is not None]
        else:
            scores = list(self.scorer.score_together(server.shared, self.numbers, split))
        return Evaluation(model=model, split=split, scores=tuple(scores), newcomers=self.of_newcomers)

    def _one_by_one(
        self, server: Server, model: ModelKind, splits: Sequence[SplitName], see: SeeModel | None
    ) -> list[Evaluation]:
        scores: dict[SplitName, list[ClientScore]] = {split: [] for split in splits}
        for client in self.numbers:
            params = self.own_model(server, client, model)
            if see is not None:
                see(model, client, params)
            for split in splits:
                score = self._score(client, params, split)
                scores[split] += [] if score is None else [score]
        return [
            Evaluation(model=model, split=split, scores=tuple(found), newcomers=self.of_newcomers)
            for split, found in scores.items()
        ]

    def _score(self, client: int, params: Params, split: SplitName) -> ClientScore | None:
        view = self.program.method.predict
        return self.scorer.score(client, self.scorer.whole(client, params, view), split, view)

    def _visit(self, server: Server, client: int, round: int, facts: Facts) -> Visit:
        return make_visit(self.program, self.clients, self.store, server, client, round, facts)
