"""A run again, from its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from plures.core.context import Server
from plures.core.errors import RunFolderError
from plures.core.goals import without_broadcasting
from plures.core.method import Method
from plures.core.program import Program
from plures.core.roles import Store
from plures.core.task import Loss
from plures.core.types import Params
from plures.core.wire import Wire
from plures.data import Federation
from plures.data.joining import everyone
from plures.evaluate.guard import Fallback
from plures.methods import find_method
from plures.models import AnyModel, as_networks
from plures.recipes.build import build, build_wire
from plures.recipes.capacities import affordable
from plures.recipes.engines import ENGINES
from plures.recipes.experiment import Experiment, load_experiment
from plures.recipes.folder_reading import (
    Kept,
    check_data,
    check_state,
    read_kept,
    recorded_evaluations,
    recorded_metrics,
)
from plures.recipes.loading import load_named
from plures.recipes.pretraining import STAGE_A, kept_under, key_of, of_network, pretraining
from plures.recipes.results import RunResult, Stage
from plures.recipes.running import make_program
from plures.recipes.states import StoredStates, read_only_store
from plures.recipes.tuning import with_tuning
from plures.recipes.warm_start import load_weights
from plures.report import records
from plures.stores.memory import MemoryStore

NOT_FACTS = (
    "version",
    "status",
    "headline",
    "metric",
    "metrics_round",
    "metrics",
    "selected",
    "rounds_to",
    "newcomers",
    "guard",
    "stages",
    "lost",
    "cost",
    "fingerprint",
)
"""Keys of result.json that are fields of a result; the others are facts."""


def load_program(folder: Path, device: str) -> tuple[Program, Params]:
    """A run's program on a device, without any client's state, and its shared part."""
    experiment = load_experiment(folder / records.EXPERIMENT)
    built = build(experiment)
    program = make_program(built.method, built.networks, built.federation, seed=experiment.seed, device=device)
    return program, load_shared(folder, program)


def load_shared(folder: Path, program: Program) -> Params:
    loaded = {name: value.clone() for name, value in load_weights(folder / records.SHARED).items()}
    return in_order(loaded, program, 0)


def load_run(
    folder: str | Path,
    *,
    model: AnyModel | None = None,
    federation: Federation | None = None,
    method: Method | str | None = None,
    newcomers: Federation | None = None,
    capacity: Any = None,
    wire: Wire | None = None,
    loss: Loss | None = None,
    device: str = "cpu",
) -> RunResult:
    """The result of a run, finished or interrupted, from its folder: the same models, scores and records.

    The folder names the data and the network (experiment.toml). Of a run from code it does not: then give the model,
    the federation and the method that `plures.run` was given, and whatever else of newcomers, capacity, wire and loss
    it was given too. Data other than those of the run are refused.
    """
    path = Path(folder)
    kept = read_kept(path)
    refuse_deployed(kept)
    given = {"model": model, "federation": federation, "method": method}
    if (path / records.EXPERIMENT).is_file() and not any(value is not None for value in given.values()):
        return from_file(kept, device)
    missing = [name for name, value in given.items() if value is None]
    if model is None or federation is None or method is None:
        raise RunFolderError(
            f"{path} has no {records.EXPERIMENT}: the run was made from code, which alone knows its data and network. "
            f"In Python, give plures.load_run(folder, {', '.join(f'{name}=...' for name in missing)}) what the run had."
        )
    program = make_program(
        find_method(method).make() if isinstance(method, str) else method,
        as_networks(model),
        federation,
        seed=kept.seed,
        device=device,
        wire=wire,
        loss=as_trained(loss, federation),
    )
    if capacity is not None:
        program.capacity_of = affordable(program, capacity, everyone(federation, newcomers).num_clients)
    return assembled(kept, program, federation, newcomers)


def refuse_deployed(kept: Kept) -> None:
    if kept.result.get(records.DEPLOYED):
        raise RunFolderError(
            f"{kept.folder} is of a deployment: what clients keep is on their nodes, and nowhere else. A node writes "
            "its model by 'plures deploy export'; the server goes on by 'plures deploy server --resume'. The shared "
            f"part is {kept.folder / records.SHARED}, for [model] weights."
        )


def from_file(kept: Kept, device: str) -> RunResult:
    """All that experiment.toml names, built again."""
    experiment = load_experiment(kept.folder / records.EXPERIMENT)
    first = stage_a(kept, experiment, device)
    built = build(experiment, None if first is None else of_network(first.program, first.shared))
    if experiment.pipeline is not None:
        built = replace(built, method=with_tuning(built, experiment.pipeline.tune, experiment.rounds))
    program = make_program(
        built.method,
        built.networks,
        built.federation,
        seed=experiment.seed,
        device=device,
        wire=build_wire(experiment),
        loss=as_trained(named_loss(experiment), built.federation),
    )
    if experiment.capacity is not None:
        clients = everyone(built.federation, built.newcomers)
        program.capacity_of = affordable(program, experiment.capacity, clients.num_clients)
    result = assembled(kept, program, built.federation, built.newcomers)
    return replace(result, experiment=experiment, fallback=fallback_of(kept, first, device))


def named_loss(experiment: Experiment) -> Loss | None:
    return None if experiment.loss is None else load_named("loss", experiment.loss)


def as_trained(loss: Loss | None, federation: Federation) -> Loss | None:
    """A loss of the user's own, in the form that runs take it."""
    return without_broadcasting(loss) if loss is not None and federation.goal.name == "regression" else loss


def stage_a(kept: Kept, experiment: Experiment, device: str) -> Fallback | None:
    """The model that a pipeline began with, from its own folder.

    That may be anywhere, as the experiment says; nothing is read there but TOML and safetensors.
    """
    if experiment.pipeline is None or experiment.pipeline.pretrain is None:
        return None
    folders = [stage["folder"] for stage in kept.result.get("stages", []) if stage["stage"] == "pretrain"]
    if folders and folders[0]:
        folder = Path(folders[0])
    else:  # the run was interrupted before it could tell
        folder = Path(kept_under(experiment)) / key_of(build(pretraining(experiment, experiment.pipeline.pretrain)))
    if not (folder / records.SHARED).is_file():
        raise RunFolderError(
            f"The run in {kept.folder} began with a model of {STAGE_A}, but {folder / records.SHARED} is missing. Load "
            "the run from where it was started, with stage (a) in its place."
        )
    program, shared = load_program(folder, device)
    return Fallback(program=program, shared=shared, name=STAGE_A)


def fallback_of(kept: Kept, first: Fallback | None, device: str) -> Fallback | None:
    """The shared model that clients of a guarded run could keep to; None: the run's own.

    It may be that of a run anywhere, as the experiment says; nothing is read there but TOML and safetensors.
    """
    against = kept.result.get("guard", {}).get("against", "global")
    if against == "global":
        return None
    if against == STAGE_A:
        return first
    program, shared = load_program(Path(against), device)
    return Fallback(program=program, shared=shared, name=against)


def assembled(kept: Kept, program: Program, federation: Federation, newcomers: Federation | None) -> RunResult:
    """The parts put together, once they are known to belong to each other."""
    check_state(kept)
    check_data(kept, federation)
    check_fits(kept, program)
    told, store = kept.result, store_of(kept, program)
    program.stepping = getattr(ENGINES[told["engine"]](), "stepping", None) if told.get("engine") in ENGINES else None
    facts = {key: value for key, value in told.items() if key not in NOT_FACTS}
    return RunResult(
        title=told["method"],
        headline=told["headline"],
        metric=told["metric"],
        status=told["status"],
        server=Server(round=told["rounds_done"], shared=in_order(kept.shared, program, 0), optimizer={}),
        store=store,
        program=program,
        federation=federation,
        newcomers=newcomers,
        evaluations=recorded_evaluations(kept),
        metrics=recorded_metrics(told["metrics"]),
        metrics_round=told.get("metrics_round"),
        selected_round=told["selected"]["round"],
        selected_by=told["selected"]["by"].removesuffix(", weighted"),
        selected_metrics=recorded_metrics(told["selected"]["metrics"]),
        history=kept.history,
        cost=told["cost"],
        fingerprint=told["fingerprint"],
        facts=facts,
        folder=kept.folder,
        rounds_to=told.get("rounds_to", {}),
        stages=tuple(Stage(**stage) for stage in told.get("stages", [])),
        guard=told.get("guard", {}),
        choices=kept.choices,
        tuned={client: in_order(state, program, client) for client, state in kept.tuned.items()},
    )


def store_of(kept: Kept, program: Program) -> Store:
    """In memory, or on disk where it is too much for that."""
    if isinstance(kept.states, StoredStates):
        return read_only_store(kept.folder, kept.result["rounds_done"], program.device)
    store = MemoryStore()
    states = {client: in_order(state, program, client) for client, state in kept.states.items()}
    store.commit(kept.result["rounds_done"], states)
    return store


def in_order(params: Params, program: Program, client: int) -> Params:
    """On the run's device, and in the order that the run had: a wire that rounds at random draws in it."""
    known = [name for name in program.binding(client).parts if name in params]
    return {name: params[name].to(program.device) for name in dict.fromkeys([*known, *params])}


def check_fits(kept: Kept, program: Program) -> None:
    """The network has what the shared part is for."""
    wanted = {name: tuple(value.shape) for name, value in program.initial_shared().items()}
    found = {name: tuple(value.shape) for name, value in kept.shared.items()}
    if wanted != found:
        name = sorted(set(wanted.items()) ^ set(found.items()))[0][0]
        raise RunFolderError(
            f"The model of the run in {kept.folder} does not fit this network and method: they differ in '{name}'. "
            "Give those of the run."
        )
