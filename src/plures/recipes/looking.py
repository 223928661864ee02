"""One look at a run: every model of the plan on every split, newcomers, the guard's choices and diagnostics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from plures.core.context import Server
from plures.core.program import Program
from plures.core.roles import Engine, Shares, Store
from plures.core.types import Params
from plures.data import Federation
from plures.data.joining import Everyone, everyone
from plures.evaluate import Evaluation, Evaluator, ModelKind, Summary
from plures.evaluate.diagnostics import Diagnostics
from plures.evaluate.forgetting import FORGETTING
from plures.evaluate.guard import Guard
from plures.evaluate.metrics import with_metrics
from plures.recipes.folder import RunFolder
from plures.recipes.guarding import Guarding
from plures.recipes.plan import EvaluationPlan


@dataclass(kw_only=True)
class Look:
    """What was found."""

    evaluations: list[Evaluation] = field(default_factory=list)
    guard: dict[str, Any] = field(default_factory=dict)
    choices: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: dict[str, float] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[int, str]:
        """What each client chose under a guard."""
        return {row["client"]: row["chosen"] for row in self.choices}

    def notes(self) -> dict[str, Any]:
        """For the record of the round, beside its metrics."""
        found = {"guard": self.guard, "diagnostics": self.diagnostics}
        return {name: told for name, told in found.items() if told}

    def write(self, folder: RunFolder, round: int, clients: Federation | Everyone) -> None:
        """One row per client, model and split; and one per client that chose."""
        scored = {score.client for evaluation in self.evaluations for score in evaluation.scores}
        folder.add_clients(round, self.evaluations, {client: clients.name(client) for client in scored})
        if self.choices:
            folder.add_choices({"round": round, "name": clients.name(row["client"]), **row} for row in self.choices)

    def add_choices(self, guard: Guard, metric: str) -> None:
        """What each client chose, and what comes of it."""
        chosen = guard.evaluations(self.evaluations)
        self.guard = guard.told(self.evaluations, metric)
        self.evaluations += chosen
        self.choices = [
            {
                "client": verdict.client,
                "chosen": guard.kind if verdict.own else "shared",
                "evidence": "" if math.isnan(verdict.evidence) else f"{verdict.evidence:.6g}",
            }
            for verdict in guard.verdicts.values()
        ]


@runtime_checkable
class Scores(Protocol):
    """An engine whose clients score their models themselves, and tell no more than the numbers."""

    def evaluator(self, of: Evaluator) -> Evaluator: ...


class Looker:
    """Evaluates a run as its plan says."""

    def __init__(
        self,
        program: Program,
        federation: Federation,
        store: Store,
        plan: EvaluationPlan,
        *,
        newcomers: Federation | None = None,
        guarding: Guarding | None = None,
    ) -> None:
        self.program, self.plan, self.newcomers, self.guarding = program, plan, newcomers, guarding
        self.goal = with_metrics(federation.goal, plan.metrics)
        self.models = models_of(program, plan, guarding)
        forgetting = FORGETTING in plan.metrics
        self.evaluator = Evaluator(program, federation, store, self.goal, forgetting=forgetting)
        self.diagnostics = Diagnostics(program, federation, store)
        clients = everyone(federation, newcomers)
        self.of_newcomers = None
        if isinstance(clients, Everyone):
            numbers = clients.newcomer_numbers
            self.of_newcomers = Evaluator(program, clients, store, self.goal, forgetting=forgetting, newcomers=numbers)

    def share_with(self, engine: Engine) -> None:
        """Let the engine evaluate where clients work, if it can; what a guard has to see stays here."""
        if isinstance(engine, Scores):
            self.evaluator = engine.evaluator(self.evaluator)
        elif isinstance(engine, Shares):
            self.evaluator.share_with(engine, self.models, self.plan.splits)

    def look(self, server: Server, *, last: bool, on_model: Callable[[int, Params], None] | None = None) -> Look:
        """Newcomers are looked at in the last round alone: each of them has to get a model first.

        `on_model` sees every model that a client has to itself.
        """
        found = Look()
        guard = None if self.guarding is None else self.guarding.begin(self.evaluator, server, self.plan.splits)

        def see(kind: ModelKind, client: int, params: Params) -> None:
            if guard is not None:
                guard.see(kind, client, params)
            if on_model is not None:
                on_model(client, params)

        watched = guard is not None or on_model is not None
        found.evaluations = self.evaluator.evaluate(server, self.models, self.plan.splits, see if watched else None)
        if guard is not None:
            found.add_choices(guard, self.goal.judged_by)
        if last and self.of_newcomers is not None:
            # Participants are scored after the same fine-tuning, to be compared with.
            own = [model for model in newcomer_models(self.program) if model not in self.models]
            found.evaluations += self.evaluator.evaluate(server, own, self.plan.splits)
            found.evaluations += self.of_newcomers.evaluate(server, newcomer_models(self.program), self.plan.splits)
        if self.plan.diagnostics:
            found.diagnostics = self.diagnostics.measure(server)
        return found


def headline_of(program: Program) -> ModelKind:
    """The model a method is judged by; without a whole shared model, the client's own."""
    judged_by = program.method.judged_by
    if judged_by == "personal" and not program.method.stateful and program.method.adapt:
        return "finetuned"  # what clients forget is nothing to judge them by
    return "personal" if judged_by == "global" and not program.has_global_model() else judged_by


def models_of(program: Program, plan: EvaluationPlan, guarding: Guarding | None) -> tuple[ModelKind, ...]:
    """Those of the plan, and what a guard has to see."""
    whole: list[ModelKind] = ["global"] if program.has_global_model() else []
    if plan.models == "all":
        return (*whole, "personal", "post_local", "finetuned")
    usual: list[ModelKind] = [*whole, "personal", headline_of(program)]
    seen = [] if guarding is None else [guarding.kind]
    return tuple(dict.fromkeys([*(plan.models or usual), *seen]))


def newcomer_models(program: Program) -> tuple[ModelKind, ...]:
    """The shared model as it is, where there is one, and the model that the method makes for a newcomer."""
    return ("global", "finetuned") if program.has_global_model() else ("finetuned",)


def all_summaries(evaluations: Sequence[Evaluation]) -> dict[str, Summary]:
    return {name: summary for evaluation in evaluations for name, summary in evaluation.summaries().items()}
