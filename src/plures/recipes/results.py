"""What a run found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from plures.core.context import Server
from plures.core.errors import Diverged, Stopped
from plures.core.program import Program
from plures.core.roles import Store
from plures.core.types import Params
from plures.data import Federation
from plures.evaluate import ClientScore, Evaluation, ModelKind, SplitName, Summary
from plures.evaluate.guard import Fallback
from plures.recipes.client_models import model_of

if TYPE_CHECKING:
    from plures.recipes.experiment import Experiment

Status = Literal["finished", "interrupted", "stopped", "diverged", "failed"]


@dataclass(frozen=True, kw_only=True)
class NewcomerGap:
    """How much worse clients fare that were never trained on; above 0 is worse, whatever the metric."""

    clients: int
    """How many newcomers there are."""
    participants: str
    newcomers: str
    """The two metrics that are compared."""
    weighted: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one stage came to."""

    stage: str
    rounds: int
    metric: str
    value: float | None
    gain: float | None
    """Over the stage before; a loss or an error that became smaller is a gain."""
    folder: str | None = None
    reused: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """What a run found, and the models it ended with."""

    title: str
    headline: ModelKind
    metric: str
    """The one that rounds are chosen and clients are compared by."""
    status: Status
    server: Server
    store: Store
    program: Program
    federation: Federation
    newcomers: Federation | None
    """Clients that were never trained on."""
    evaluations: list[Evaluation]
    """Of the last evaluated round."""
    metrics: dict[str, Summary]
    metrics_round: int | None
    """The round they are of: the last evaluated one."""
    selected_round: int | None
    selected_by: str
    """The metric by which it was chosen, such as personal/validation/accuracy."""
    selected_metrics: dict[str, Summary]
    history: list[dict[str, Any]]
    cost: dict[str, Any]
    fingerprint: dict[str, str]
    facts: dict[str, Any]
    """What the run was: method, seed, rounds, clients, cohort, engine."""
    folder: Path | None
    rounds_to: dict[str, Any] = field(default_factory=dict)
    """In which round the metric it is judged by reached each target, and a share of its final value."""
    stages: tuple[Stage, ...] = ()
    """Of a pipeline: what each stage came to."""
    guard: dict[str, Any] = field(default_factory=dict)
    """What clients chose between their own model and a shared one, if they were asked."""
    choices: Mapping[int, str] = field(default_factory=dict)
    """With a guard, what each client chose: its own kind of model, or "shared"."""
    fallback: Fallback | None = None
    """With a guard, the shared model of another run or of stage (a); None: that of this run."""
    tuned: Mapping[int, Params] = field(default_factory=dict)
    """Of a pipeline that ends in fine-tuning: what that moved of each client's model."""
    experiment: Experiment | None = None
    """The file that named all this; None: a run from code."""

    @property
    def lost(self) -> dict[str, int]:
        """Visits whose work did not reach the server, by kind, the most frequent first."""
        kinds = Counter(one["kind"] for line in self.history for one in line.get("lost", ()))
        return dict(kinds.most_common())

    def scores(
        self, model: ModelKind | None = None, split: SplitName = "test", *, newcomers: bool = False
    ) -> tuple[ClientScore, ...]:
        """Client by client; by default the model that the method is judged by."""
        usual: ModelKind = "finetuned" if newcomers and self.headline != "global" else self.headline
        wanted = (model or usual, split, False, newcomers)
        found = [e for e in self.evaluations if (e.model, e.split, e.sampled, e.newcomers) == wanted]
        return found[0].scores if found else ()

    @property
    def gap(self) -> NewcomerGap | None:
        """How much worse newcomers fare than participants; None without newcomers, or before they were looked at.

        Like is compared with like: shared models, or models after the same fine-tuning.
        """
        kind = "global" if self.headline == "global" else "finetuned"
        own, theirs = f"{kind}/test/{self.metric}", f"newcomers/{kind}/test/{self.metric}"
        if self.newcomers is None or own not in self.metrics or theirs not in self.metrics:
            return None
        sign = 1 if self.federation.goal.larger_is_better else -1
        first, second = self.metrics[own], self.metrics[theirs]
        return NewcomerGap(
            clients=self.newcomers.num_clients,
            participants=own,
            newcomers=theirs,
            weighted=sign * (first.weighted - second.weighted),
            mean=sign * (first.mean - second.mean),
        )

    def personal_model(self, client: int | str, model: ModelKind | None = None) -> nn.Module:
        """A client's network as an ordinary module, ready to use: the model that the method is judged by.

        Under a guard it is what the client chose. `model` asks for another: "personal" without fine-tuning,
        "finetuned" after it, "global" or "guarded". It takes inputs as the network does: prepared.
        """
        return model_of(self, client, model).module

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        """The last round in a few lines."""
        lines = [f"{self.title}: {self.status} after {self.server.round} rounds"]
        for name, summary in self.metrics.items():
            if name.endswith(f"/{self.metric}"):
                shown = [
                    f"{value:7.2%}" if self.metric == "accuracy" else f"{value:7.4g}"
                    for value in (summary.weighted, summary.bottom_decile)
                ]
                lines.append(f"{name:<34} {shown[0]}   bottom decile {shown[1]}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The content of result.json."""
        return {
            "version": version("plures"),
            "status": self.status,
            **self.facts,
            "headline": self.headline,
            "metric": self.metric,
            "metrics_round": self.metrics_round,
            "metrics": {name: asdict(summary) for name, summary in self.metrics.items()},
            "selected": {
                "round": self.selected_round,
                "by": f"{self.selected_by}, weighted",
                "metrics": {name: asdict(summary) for name, summary in self.selected_metrics.items()},
            },
            "rounds_to": self.rounds_to,
            **({} if self.gap is None else {"newcomers": asdict(self.gap)}),
            **({"guard": self.guard} if self.guard else {}),
            **({"stages": [asdict(stage) for stage in self.stages]} if self.stages else {}),
            **({"lost": self.lost} if self.lost else {}),
            "cost": self.cost,
            "fingerprint": self.fingerprint,
        }


def status_of(trouble: BaseException | None) -> Status:
    if trouble is None:
        return "finished"
    if isinstance(trouble, KeyboardInterrupt):
        return "interrupted"
    if isinstance(trouble, Stopped):
        return "stopped"
    return "diverged" if isinstance(trouble, Diverged) else "failed"
