"""The shared model that clients may keep to instead of their own: of this run, of stage (a), or of another run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plures.core.context import Server
from plures.core.errors import InvalidConfig, RunFolderError
from plures.core.program import Program
from plures.core.rates import check_rate
from plures.core.types import Params
from plures.data import Federation
from plures.evaluate import Evaluator, ModelKind, SplitName
from plures.evaluate.guard import Fallback, Guard
from plures.recipes.plan import EvaluationPlan, GuardPlan
from plures.report import records

LoadRun = Callable[[Path, str], tuple[Program, Params]]
"""From a run folder and a device to its program there, without any state, and its shared part."""


@dataclass(frozen=True, kw_only=True)
class Guarding:
    """How the clients of a run are guarded."""

    plan: GuardPlan
    kind: ModelKind
    """Clients' own models, as the method is judged by them."""
    fallback: Fallback | None
    """None: the shared model of the run itself, as it is when clients choose."""

    def begin(self, evaluator: Evaluator, server: Server, splits: Sequence[SplitName]) -> Guard:
        """A guard for one evaluation."""
        fallback = self.fallback or Fallback(program=evaluator.program, shared=server.shared, name="global")
        return Guard(
            evaluator.scorer, fallback, evaluator.clients, kind=self.kind, splits=splits, margin=self.plan.margin
        )


def guarding_of(
    plan: EvaluationPlan,
    program: Program,
    federation: Federation,
    kind: ModelKind,
    *,
    pretrained: Fallback | None = None,
    load: LoadRun | None = None,
) -> Guarding | None:
    """None if nobody asked for a guard; an error where there is nothing to choose from."""
    guard = plan.guard
    if guard is None:
        return None
    check_rate("margin of the guard", guard.margin)
    name = program.method.name
    if kind == "global":
        raise InvalidConfig(
            f"{name} is judged by its shared model, so there is nothing to guard. Remove guard, or choose a method "
            "that gives clients models of their own."
        )
    fallback = named_fallback(guard, federation, load, str(program.device)) or (
        None if program.has_global_model() else pretrained
    )
    if fallback is None and not program.has_global_model():
        raise InvalidConfig(
            f"A guard needs a shared model to fall back on, but with {name} some of it is personal (layers, or running "
            "statistics with buffers = 'personal'). Give [evaluation] "
            'guard = {against = "RUN"}, the folder of a finished fedavg run on the same data, or a [pipeline] with a '
            "pretrain stage."
        )
    return Guarding(plan=guard, kind=kind, fallback=fallback)


def named_fallback(guard: GuardPlan, federation: Federation, load: LoadRun | None, device: str) -> Fallback | None:
    """The shared model of a finished run on the same data."""
    if guard.against is None or isinstance(guard.against, Fallback):
        return guard.against
    folder = Path(guard.against)
    if load is None:
        raise InvalidConfig("From code, give the guard a Fallback of a run's program and shared part.")
    check_same_data(folder, federation)
    program, shared = load(folder, device)
    if not program.has_global_model():
        raise InvalidConfig(f"The run in {folder} has no whole shared model to fall back on: give one of fedavg.")
    return Fallback(program=program, shared=shared, name=str(folder))


def check_same_data(folder: Path, federation: Federation) -> None:
    try:
        theirs = records.read_result(folder)["fingerprint"]
    except (OSError, ValueError, KeyError) as error:
        raise RunFolderError(f"The guard's run {folder} cannot be read: {error}. Give a finished run.") from error
    ours = federation.fingerprint()
    if any(theirs.get(key) != value for key, value in ours.items()):
        raise InvalidConfig(
            f"The guard's run {folder} was trained on other data, or on other clients' data, than this one. Give a run "
            "with the same [data]."
        )
