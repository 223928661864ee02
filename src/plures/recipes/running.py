"""A whole run: check, train, evaluate, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from plures.core.context import Engine
from plures.core.errors import InvalidConfig, RunFolderError
from plures.core.goals import without_broadcasting
from plures.core.loop import start, train
from plures.core.method import Method
from plures.core.networks import Networks
from plures.core.program import Program
from plures.core.task import Loss
from plures.core.types import Part, is_buffer, is_known, stays, travels
from plures.core.wire import Wire
from plures.data import Federation
from plures.data.joining import everyone
from plures.evaluate.guard import Fallback
from plures.methods import find_method
from plures.models import AnyModel, as_networks
from plures.participation import Sampler, as_sampler
from plures.recipes.capacities import affordable
from plures.recipes.checks import check_arguments, check_device, check_run
from plures.recipes.engines import TRIAL, check_engine, find_engine
from plures.recipes.folder import RunFolder, make_empty_folder
from plures.recipes.guarding import LoadRun, guarding_of
from plures.recipes.looking import headline_of
from plures.recipes.plan import EvaluationPlan
from plures.recipes.recorder import Recorder, status_of
from plures.recipes.results import RunResult
from plures.recipes.threads import one_thread
from plures.recipes.tracking import TrackedRun, Tracker, Tracking, as_trackers
from plures.recipes.watching import Silence, Watcher
from plures.report import records
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
) -> RunResult:
    """Train `method` on `federation`; with `out`, write a run folder. Bad input is an error before round 1.

    `model` is a module, a function that makes one (then its initial values follow `seed`), or a function from the
    client's number to its module. `newcomers` are never trained on; they are numbered after the federation's clients,
    and the last round is evaluated on them apart. `capacity` says what clients can afford: a number in the method's own
    unit, or a table such as {"density": [0.5, 0.1]} (docs/capacity.md). `wire` carries what is sent, by default
    exactly. `trackers` are told the numbers of each round: "tensorboard", "wandb", "mlflow", or objects of your own
    (docs/watching.md). `configuration` is kept beside the results; `pretrained` is a shared model that a guard may fall
    back on.
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
    if capacity is not None:
        program.capacity_of = affordable(program, capacity, everyone(federation, newcomers).num_clients)
    guarding = guarding_of(plan, program, federation, headline_of(program), pretrained=pretrained, load=load)
    with one_thread():
        chosen = find_engine(engine, program, federation, sampler)
    program.stepping = getattr(chosen.engine, "stepping", None)
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
    start_tracking(tracking, title, facts, configuration, out)
    recorder = Recorder(
        program,
        federation,
        plan=plan,
        title=title,
        rounds=rounds,
        facts=facts,
        folder=open_folder(out, configuration),
        newcomers=newcomers,
        guarding=guarding,
    )
    return play(recorder, sampler, chosen.engine, watcher or Silence(), tracking)


def start_tracking(
    tracking: Tracking, title: str, facts: Mapping[str, Any], configuration: str | None, out: str | Path | None
) -> None:
    """Trackers come before the first file, so that a run that they refuse leaves nothing behind."""
    folder = None if out is None else Path(out)
    is_new = folder is not None and not folder.exists()
    if folder is not None:
        make_empty_folder(folder)
    try:
        tracking.started(TrackedRun(title=title, facts=facts, configuration=configuration, folder=folder))
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


def open_folder(out: str | Path | None, configuration: str | None) -> RunFolder | None:
    if out is None:
        return None
    folder = RunFolder(Path(out))
    if configuration is not None:
        folder.write_text(records.EXPERIMENT, configuration)
    return folder


def check_wire(wire: object) -> None:
    if isinstance(wire, type) or (wire is not None and not callable(getattr(wire, "carry", None))):
        raise InvalidConfig(
            f"wire is {wire!r:.80}, a {type(wire).__name__}: give a wire, such as plures.wire.Codec(upload='int8')."
        )


@one_thread()
def play(recorder: Recorder, sampler: Sampler, engine: Engine, watcher: Watcher, tracking: Tracking) -> RunResult:
    """Train to the end; whatever stops it earlier, the last whole round is kept first."""
    program, federation = recorder.program, recorder.federation
    server, seconds = start(program), 0.0
    recorder.looker.share_with(engine)
    recorder.begin()
    watcher.started(recorder.title, recorder.rounds, federation.num_clients, recorder.shown)
    rounds = train(
        program,
        federation,
        rounds=recorder.rounds,
        sampler=sampler,
        engine=engine,
        store=recorder.store,
        on_result=recorder.on_result,
    )
    try:
        began = time.perf_counter()
        for server, report in rounds:
            seconds += time.perf_counter() - began
            metrics = recorder.record(server, report, seconds)
            watcher.round_done(report, metrics)
            tracking.round_done(recorder.history[-1])
            began = time.perf_counter()
    except BaseException as trouble:
        watcher.ended()
        result = None
        try:
            with suppress(RunFolderError):
                result = recorder.finish(server, seconds, trouble)
        finally:
            tracking.ended(status_of(trouble), result)
        raise
    if server.round == 0:  # nothing to train: the start is what there is to look at
        recorder.look(server)
    watcher.ended()
    result = recorder.finish(server, seconds, None)
    tracking.ended("finished", result)
    return result
