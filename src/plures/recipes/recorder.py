"""Evaluates and records the rounds of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict
from typing import Any, NamedTuple

from plures.core.client import Result
from plures.core.context import RoundReport, Server
from plures.core.program import Program
from plures.core.roles import Store
from plures.core.types import Params
from plures.core.visit import Visit
from plures.data import Federation
from plures.data.joining import Everyone, everyone
from plures.evaluate import ClientScore, Evaluation, SplitName, Summary
from plures.recipes.census import census
from plures.recipes.cost_book import CostBook
from plures.recipes.folder import Mark, RunFolder, state_fingerprint
from plures.recipes.guarding import Guarding
from plures.recipes.looking import Look, Looker, all_summaries, headline_of
from plures.recipes.mask_book import MaskBook
from plures.recipes.note_book import NoteBook
from plures.recipes.plan import EvaluationPlan
from plures.recipes.results import RunResult, status_of
from plures.recipes.states import fits_in_memory
from plures.report import records
from plures.report.milestones import milestones
from plures.report.running import running_now
from plures.stores.memory import MemoryStore


class Selected(NamedTuple):
    """The round that is best on validation data so far."""

    value: float
    round: int
    metrics: dict[str, Summary]

    def told(self) -> dict[str, Any]:
        metrics = {name: asdict(summary) for name, summary in self.metrics.items()}
        return {"value": self.value, "round": self.round, "metrics": metrics}


class Half(NamedTuple):
    """A round that is in force and not yet evaluated."""

    line: dict[str, Any]
    """For rounds.jsonl."""
    visits: list[dict[str, Any]]
    before: dict[str, Any]
    """What the recorder had to tell before it was evaluated."""
    marks: Mapping[str, Mark]
    """How far the files went."""


class Recorder:
    """Keeps what a run will report; with a folder, on disk as well."""

    def __init__(
        self,
        program: Program,
        federation: Federation,
        *,
        plan: EvaluationPlan,
        title: str,
        rounds: int,
        facts: dict[str, Any],
        folder: RunFolder | None,
        newcomers: Federation | None = None,
        guarding: Guarding | None = None,
        store: Store | None = None,
    ) -> None:
        self.program, self.federation, self.plan = program, federation, plan
        self.clients: Federation | Everyone = everyone(federation, newcomers)
        self.headline = headline_of(program)
        self.title, self.rounds, self.facts, self.folder = title, rounds, facts, folder
        self.store: Store = MemoryStore() if store is None else store
        self.looker = Looker(program, federation, self.store, plan, newcomers=newcomers, guarding=guarding)
        self.goal = self.looker.goal
        self.history: list[dict[str, Any]] = []
        self.latest = Look()
        self.latest_round: int | None = None
        self.metrics: dict[str, Summary] = {}
        """Of the last evaluated round."""
        self.half: Half | None = None
        self.selected: Selected | None = None
        self.costs = CostBook(program)
        self.notes = NoteBook(program)
        self.masks = MaskBook(program, self.store)
        self.after_training: dict[SplitName, list[ClientScore]] = {}

    @property
    def shown(self) -> str:
        """The metric to look at while the run goes on: on test data, if there is a look at them."""
        split = "test" if "test" in self.plan.splits or not self.plan.splits else self.plan.splits[0]
        return f"{self.headline}/{split}/{self.goal.judged_by}"

    def begin(self) -> None:
        """Tell others that the run is under way."""
        if self.folder is not None:
            told = {key: self.facts[key] for key in ("method", "seed", "rounds", "clients")}
            self.folder.write_json(records.RUNNING, running_now(title=self.title, **told, shown=self.shown))

    def leave(self) -> None:
        """Tell others that the run is not under way any more, as far as the disk allows."""
        if self.folder is not None:
            with suppress(OSError):
                self.folder.remove(records.RUNNING)

    def on_result(self, visit: Visit, result: Result) -> None:
        """Note what a client's visit cost and, if so planned, score it right after its training."""
        self.costs.add(visit, result, self.notes.of_visit(visit, result))
        if self.plan.post_local and self.is_evaluated(visit.round):
            for split, score in self.looker.evaluator.after_training(result, self.plan.splits).items():
                self.after_training.setdefault(split, []).extend([] if score is None else [score])

    def is_evaluated(self, round: int) -> bool:
        return round == self.rounds or round % self.plan.every == 0

    def record(self, server: Server, report: RoundReport, seconds: float) -> dict[str, Summary]:
        """Note a whole round; returns its metrics if it was evaluated."""
        self.take(report, seconds)
        return self.complete(server)

    def take(self, report: RoundReport, seconds: float) -> None:
        """What is known of a round before it is evaluated."""
        costs, visits = self.costs.close_round(report)
        line = asdict(report) | costs | self.notes.of_round() | {"seconds": round(seconds, 6)}
        if not report.lost:
            del line["lost"]
        marks = {} if self.folder is None else dict(self.folder.marks)
        self.half = Half(line, visits, self.told(), marks)

    def complete(self, server: Server) -> dict[str, Summary]:
        """Evaluate a round, if it is to be, and write down all of it."""
        assert self.half is not None
        line, metrics = dict(self.half.line), dict[str, Summary]()
        try:
            if self.is_evaluated(server.round):
                metrics = self.look(server)
                line["metrics"] = {name: asdict(summary) for name, summary in metrics.items()}
                line |= self.masks.distances(server) | self.latest.notes()
        finally:  # the round is in force, whatever becomes of its evaluation
            self._write(line)
        self.half = None
        return metrics

    def give_up_half(self) -> None:
        """Write down a round that will not be evaluated any more in this process."""
        if self.half is not None and not (self.history and self.history[-1]["round"] == self.half.line["round"]):
            self._write(self.half.line)

    def _write(self, line: dict[str, Any]) -> None:
        assert self.half is not None
        self.history.append(line)
        if self.folder is not None:
            self.folder.add_round(line)
            self.folder.add_visits(self.half.visits)

    def told(self) -> dict[str, Any]:
        """What a checkpoint keeps of it; the rest is in the files."""
        return {
            "costs": deepcopy(self.costs.told()),
            "selected": None if self.selected is None else self.selected.told(),
            "metrics_round": self.latest_round,
            "metrics": {name: asdict(summary) for name, summary in self.metrics.items()},
        }

    def look(self, server: Server) -> dict[str, Summary]:
        """Evaluate what there is now."""
        found = self.looker.look(server, last=server.round == self.rounds)
        for split, scores in self.after_training.items():
            found.evaluations.append(Evaluation(model="post_local", split=split, scores=tuple(scores), sampled=True))
        is_first = self.latest_round is None
        self.latest, self.latest_round = found, server.round
        self.metrics = all_summaries(found.evaluations)
        self._select(server.round, self.metrics)
        if self.folder is not None:
            if is_first and not self.facts.get(records.DEPLOYED):
                self.folder.write_federation(census(self.clients, self.federation.num_clients))
            found.write(self.folder, server.round, self.clients)
        self.after_training = {}
        return self.metrics

    def _select(self, round: int, metrics: dict[str, Summary]) -> None:
        validation = metrics.get(f"{self.headline}/validation/{self.goal.judged_by}")
        if validation is not None and self._is_better(validation.weighted):
            self.selected = Selected(validation.weighted, round, metrics)

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.selected is None:
            return True
        return value > self.selected.value if self.goal.larger_is_better else value < self.selected.value

    def finish(self, server: Server, seconds: float, trouble: BaseException | None) -> RunResult:
        """The result as of the last whole round, also on disk."""
        result = self._result(server, seconds, trouble)
        if self.folder is not None:
            self.folder.save_shared(server.shared)
            if fits_in_memory(self.store):
                self.folder.save_states(records.PERSONAL, self._states())
            self.folder.write_json(records.RESULT, result.as_json())
            self.folder.remove(records.RUNNING)
        return result

    def _states(self) -> Iterator[tuple[int, Params]]:
        return ((client, self.store.get(client) or {}) for client in self.store.clients())

    def _result(self, server: Server, seconds: float, trouble: BaseException | None) -> RunResult:
        final_state = state_fingerprint(server.shared, self._states())
        return RunResult(
            title=self.title,
            headline=self.headline,
            metric=self.goal.judged_by,
            status=status_of(trouble),
            server=server,
            store=self.store,
            program=self.program,
            federation=self.federation,
            newcomers=self.looker.newcomers,
            evaluations=self.latest.evaluations,
            metrics=self.metrics,
            metrics_round=self.latest_round,
            selected_round=None if self.selected is None else self.selected.round,
            selected_by=f"{self.headline}/validation/{self.goal.judged_by}",
            selected_metrics={} if self.selected is None else self.selected.metrics,
            history=self.history,
            cost=self.costs.result(seconds),
            fingerprint={**self.federation.fingerprint(), "final_state": final_state},
            facts=self.facts | {"rounds_done": server.round},
            folder=None if self.folder is None else self.folder.path,
            guard=self.latest.guard,
            choices=self.latest.chosen,
            fallback=None if self.looker.guarding is None else self.looker.guarding.fallback,
            rounds_to=milestones(
                self.history, self.shown, self.plan.targets, smaller_is_better=not self.goal.larger_is_better
            ),
        )
