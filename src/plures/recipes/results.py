"""What a run found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from plures.core.context import Server
from plures.core.program import Program
from plures.data import Federation
from plures.evaluate import ClientScore, Evaluation, ModelKind, SplitName, Summary
from plures.stores.memory import MemoryStore

Status = Literal["finished", "interrupted", "diverged", "failed"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run found, and the models it ended with."""

    title: str
    headline: ModelKind
    status: Status
    server: Server
    store: MemoryStore
    program: Program
    federation: Federation
    evaluations: list[Evaluation]
    """Of the last evaluated round."""
    metrics: dict[str, Summary]
    selected_round: int | None
    selected_metrics: dict[str, Summary]
    history: list[dict[str, Any]]
    cost: dict[str, float]
    fingerprint: dict[str, str]
    facts: dict[str, Any]
    """What the run was: method, seed, rounds, clients, cohort, engine."""
    folder: Path | None

    def scores(self, model: ModelKind | None = None, split: SplitName = "test") -> tuple[ClientScore, ...]:
        """Client by client; by default the model that the method is judged by."""
        wanted = (model or self.headline, split, False)
        found = [e for e in self.evaluations if (e.model, e.split, e.sampled) == wanted]
        return found[0].scores if found else ()

    def as_json(self) -> dict[str, Any]:
        """The content of result.json."""
        return {
            "version": version("plures"),
            "status": self.status,
            **self.facts,
            "headline": self.headline,
            "metrics": {name: asdict(summary) for name, summary in self.metrics.items()},
            "selected": {
                "round": self.selected_round,
                "by": f"{self.headline}/validation/accuracy, weighted",
                "metrics": {name: asdict(summary) for name, summary in self.selected_metrics.items()},
            },
            "cost": self.cost,
            "fingerprint": self.fingerprint,
        }
