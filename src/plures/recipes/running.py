"""A whole run: check, train, evaluate, record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from plures.core.context import Conduct
from plures.core.errors import InvalidConfig
from plures.core.goals import without_broadcasting
from plures.core.method import Method
from plures.core.networks import Networks
from plures.core.program import Program
from plures.core.roles import Engine
from plures.core.sums import empty_sum
from plures.core.task import Loss
from plures.core.types import Part, is_buffer, is_known, stays, travels
from plures.core.wire import Wire
from plures.data import Federation
from plures.data.joining import everyone
from plures.evaluate.guard import Fallback
from plures.methods import find_method
from plures.models import AnyModel, as_networks
from plures.participation import Cohort, Sampler, as_sampler
from plures.recipes.capacities import affordable
from plures.recipes.checkpointing import Checkpointer, CheckpointPlan
from plures.recipes.checks import check_arguments, check_device, check_run
from plures.recipes.engines import TRIAL, check_engine, find_engine
from plures.recipes.folder import make_empty_folder
from plures.recipes.guarding import LoadRun, guarding_of
from plures.recipes.looking import headline_of
from plures.recipes.opening import open_folder, prepared
from plures.recipes.plan import EvaluationPlan
from plures.recipes.playing import Play
from plures.recipes.recorder import Recorder
from plures.recipes.results import RunResult
from plures.recipes.resume_checks import check_server
from plures.recipes.resuming import Resumed, bits_of
from plures.recipes.states import open_store
from plures.recipes.threads import one_thread
from plures.recipes.tracking import SENT, TrackedRun, Tracker, Tracking, as_trackers
from plures.recipes.watching import Silence, Watcher
from plures.server.robust import Robust, why_not
from plures.wire import Codec


def run(
    method: Method | str,
    federation: Federation,
    model: AnyModel,
    *,
    rounds: int = 50,
    cohort: Literal["all"] | int | float | Sampler = "all",
    seed: int = 0,
    engine: str | Engine = "auto",
    device: str = "cpu",
    loss: Loss | None = None,
    evaluation: EvaluationPlan | None = None,
    newcomers: Federation | None = None,
    capacity: Any = None,
    wire: Wire | None = None,
    out: str | Path | None = None,
    title: str | None = None,
    configuration: str | None = None,
    watcher: Watcher | None = None,
    trackers: Sequence[Tracker | str] = (),
    least_rounds: int = 1,
    notes: Mapping[str, Any] | None = None,
    pretrained: Fallback | None = None,
    load: LoadRun | None = None,
    conduct: Conduct | None = None,
    checkpoint: CheckpointPlan | None = None,
    resume: bool = False,
    keep_checkpoint: bool = False,
) -> RunResult:
    """Train `method` on `federation`; with `out`, write a run folder. Bad input is an error before round 1.

    `model` is a module, a function that makes one (then its initial values follow `seed`), or a function from the
    client's number to its module. `newcomers` are never trained on; they are numbered after the federation's clients,
    and the last round is evaluated on them apart. `capacity` says what clients can afford: a number in the method's own
    unit, or a table such as {"density": [0.5, 0.1]} (docs/capacity.md). `wire` carries what is sent, by default
    exactly. `trackers` are told the numbers of each round: "tensorboard", "wandb", "mlflow", or objects of your own
    (docs/watching.md). `configuration` is kept beside the results; `pretrained` is a shared model that a guard may fall
    back on. `conduct` says what a round bears, what goes wrong on purpose and how uploads are summed (docs/faults.md).
    With `resume`, a run that was begun in `out` goes on from its last checkpoint; `checkpoint` says when there is one
    (docs/surviving.md); with `keep_checkpoint`, one is left also by a run that has finished.
    """
    if isinstance(method, str):
        method = find_method(method).make()
    check_arguments(method, federation, newcomers, evaluation, seed)
    title = title or method.name
    if loss is not None and federation.goal.name == "regression":
        loss = without_broadcasting(loss)
    check_device(device)
    check_wire(wire)
    program = make_program(method, as_networks(model), federation, seed=seed, device=device, wire=wire, loss=loss)
    check_engine(engine)
    tracking = Tracking(trackers=as_trackers(trackers))
    sampler, plan = as_sampler(cohort), evaluation or EvaluationPlan()
    conduct, checkpoint = conduct or Conduct(), checkpoint or CheckpointPlan()
    check_run(
        program,
        federation,
        sampler,
        rounds,
        plan,
        least_rounds=least_rounds,
        capacity=capacity,
        newcomers=newcomers,
    )
    check_conduct(conduct, method, sampler.draw(federation.num_clients, 1, seed))
    if capacity is not None:
        program.capacity_of = affordable(program, capacity, everyone(federation, newcomers).num_clients)
    guarding = guarding_of(plan, program, federation, headline_of(program), pretrained=pretrained, load=load)
    with one_thread():
        chosen = find_engine(engine, program, federation, sampler)
    program.stepping = getattr(chosen.engine, "stepping", None)
    program.shows_trained = plan.post_local or method.notes is not None
    facts: dict[str, Any] = {
        "method": method.name,
        "seed": seed,
        "rounds": rounds,
        "clients": federation.num_clients,
        "cohort": cohort if isinstance(cohort, str | int | float) else repr(cohort),
        "engine": chosen.engine.name,
        "engine_reason": chosen.reason,
        "parameters": parameter_counts(program),
        **(notes or {}),
    }
    configuration = with_engine(configuration, engine, chosen.engine)
    identity = {key: facts[key] for key in ("method", "seed", "rounds", "clients", "cohort")}
    identity |= {"engine": bits_of(chosen.engine.name), "data": dict(federation.fingerprint())}
    resumed = prepared(out, resume, identity, configuration)
    if resumed is not None:
        check_server(resumed.server("cpu"), program, resumed.path)
    start_tracking(tracking, title, facts, configuration, out, resumed)
    folder = open_folder(out, configuration, resumed)
    recorder = Recorder(
        program,
        federation,
        plan=plan,
        title=title,
        rounds=rounds,
        facts=facts,
        folder=folder,
        newcomers=newcomers,
        guarding=guarding,
        store=open_store(folder, checkpoint, program.device, resumed),
    )
    checkpointer = Checkpointer(recorder, checkpoint, identity, tracking.keys)
    return Play(recorder, sampler, chosen.engine, watcher or Silence(), tracking, conduct, checkpointer).run(
        resumed, keep_checkpoint=keep_checkpoint
    )


def start_tracking(
    tracking: Tracking,
    title: str,
    facts: Mapping[str, Any],
    configuration: str | None,
    out: str | Path | None,
    resumed: Resumed | None,
) -> None:
    """Trackers come before the first file, so that a run that they refuse leaves nothing behind."""
    folder = None if out is None else Path(out)
    is_new = folder is not None and not folder.exists()
    if folder is not None and resumed is None:
        make_empty_folder(folder)
    run = TrackedRun(title=title, facts=facts, configuration=configuration, folder=folder)
    if resumed is not None:
        run = replace(run, rounds_done=resumed.round, keys=resumed.manifest.trackers)
        tracking.sent = sum(int(resumed.manifest.recorder.costs.totals[key]) for key in SENT)
    try:
        tracking.started(run)
    except BaseException:
        if folder is not None and is_new:
            folder.rmdir()
        raise


def parameter_counts(program: Program) -> dict[str, int]:
    """Of the first client: numbers that travel, and those that it keeps to itself; masks and statistics are neither."""
    binding = program.binding(0)

    def count(accept: Callable[[Part], bool]) -> int:
        found = binding.picked(lambda part: accept(part) and not is_buffer(part) and not is_known(part))
        return sum(value.numel() for value in found.values() if value.is_floating_point())

    return {"shared": count(travels), "personal": count(stays)}


def make_program(
    method: Method,
    networks: Networks,
    federation: Federation,
    *,
    seed: int,
    device: str = "cpu",
    wire: Wire | None = None,
    loss: Loss | None = None,
) -> Program:
    """The method on its networks, told what it may know of the federation."""
    return Program(
        method,
        networks,
        loss=loss or federation.goal.loss,
        seed=seed,
        device=device,
        augment=federation.augment,
        wire=wire or Codec(),
        example=lambda: federation.client(0).train.inputs[:1],
        num_clients=federation.num_clients,
    )


def with_engine(configuration: str | None, asked: str | Engine, chosen: Engine) -> str | None:
    """What a trial chose is written down, so that the run can be repeated without one."""
    if configuration is None or asked != TRIAL:
        return configuration
    return configuration.replace(f'engine = "{TRIAL}"', f'engine = "{chosen.name}"', 1)


def check_conduct(conduct: Conduct, method: Method, cohort: Cohort) -> None:
    """A sum of another kind must be one that the method can have, and of enough uploads."""
    if conduct.new_sum is not empty_sum and (reason := why_not(method)) is not None:
        raise InvalidConfig(f"{method.name} cannot have a robust sum: {reason}")
    wanted: int | None = getattr(cohort, "wanted", None)  # samplers of your own may know of no such thing
    size = len(cohort.clients) if wanted is None else wanted
    if isinstance(conduct.new_sum, Robust) and (reason := conduct.new_sum.too_few(size)) is not None:
        raise InvalidConfig(reason)


def check_wire(wire: object) -> None:
    if isinstance(wire, type) or (wire is not None and not callable(getattr(wire, "carry", None))):
        raise InvalidConfig(
            f"wire is {wire!r:.80}, a {type(wire).__name__}: give a wire, such as plures.wire.Codec(upload='int8')."
        )
