"""A node's own model as a file, from what it keeps: the shared part that its run ended with, and its state."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file

from plures.core.context import Server
from plures.core.errors import InvalidConfig
from plures.deploy.described import Member
from plures.deploy.keeping import FINISHED, SHARED, RunStates
from plures.deploy.node_data import read_folder
from plures.deploy.sides import make_side
from plures.evaluate import ModelKind
from plures.recipes.experiment import Experiment
from plures.recipes.exporting import Exported, export_client
from plures.recipes.looking import headline_of
from plures.recipes.results import RunResult
from plures.stores.memory import MemoryStore
from plures.wire import Codec


def export_node(
    experiment: Experiment,
    data: Path,
    states: Path,
    name: str,
    out: Path,
    *,
    run: str | None = None,
    format: str | None = None,
    model: ModelKind | None = None,
    overwrite: bool = False,
) -> Exported:
    """The model that this node ended with, checked on its own test examples."""
    kept = RunStates(states, run or only_run(states))
    told = json.loads((kept.path / FINISHED).read_bytes())
    client, clients, round = told["client"], told["clients"], told["round"]
    own = read_folder(data, experiment)
    members = [Member(name=str(number)) for number in range(clients)]
    members[client] = Member(name=name, examples=own.train.num_examples)
    side = make_side(experiment, members, Codec(), {client: own})
    store = MemoryStore()
    state = kept.read(told["counted"])
    if state is not None:
        store.commit(round, {client: state})
    result = RunResult(
        title=side.built.method.name,
        headline=headline_of(side.program),
        metric=side.federation.goal.judged_by,
        status="finished",
        server=Server(round=round, shared=load_file(kept.path / SHARED), optimizer={}),
        store=store,
        program=side.program,
        federation=side.federation,
        newcomers=None,
        evaluations=[],
        metrics={},
        metrics_round=None,
        selected_round=None,
        selected_by="",
        selected_metrics={},
        history=[],
        cost={},
        fingerprint={},
        facts={"seed": experiment.seed},
        folder=None,
        experiment=experiment,
    )
    return export_client(result, client, out, format=format, model=model, overwrite=overwrite)


def only_run(states: Path) -> str:
    """The run that has finished, where there is one alone."""
    found = sorted(path.parent.name for path in states.glob(f"*/{FINISHED}"))
    if len(found) != 1:
        told = (
            "no run that has finished" if not found else f"{len(found)} runs: choose one by --run ({', '.join(found)})"
        )
        raise InvalidConfig(f"{states} has {told}.")
    return found[0]
