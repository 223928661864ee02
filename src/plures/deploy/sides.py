"""What server and nodes both make of an experiment file: the same program, from the same seed."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plures.core.errors import InvalidConfig
from plures.core.program import Program
from plures.core.wire import Wire
from plures.data import ClientData, Federation
from plures.deploy.described import Member, described_federation
from plures.recipes.build import Built, build, configuration_of
from plures.recipes.capacities import affordable
from plures.recipes.experiment import Experiment
from plures.recipes.loading import load_named
from plures.recipes.running import make_program

APART = ("engine", "device", "data", "evaluation", "checkpoint", "tolerate", "faults", "cohort", "participation")
"""Tables and keys that may differ between the server's file and a node's: nothing that a client computes."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One end of a deployment."""

    experiment: Experiment
    built: Built
    program: Program
    federation: Federation


def make_side(
    experiment: Experiment, members: Sequence[Member], wire: Wire, own: Mapping[int, ClientData] | None = None
) -> Side:
    """The program of an experiment, for all that are in it."""
    federation = described_federation(experiment, members, own)
    built = build(experiment, whole=federation)
    if built.method.run_round is not None:
        raise InvalidConfig(
            f"{built.method.name} cannot be deployed: its server changes what clients keep, which here stays with "
            "them. Choose a method whose rounds are sums of uploads."
        )
    program = make_program(
        built.method,
        built.networks,
        federation,
        seed=experiment.seed,
        device=experiment.device,
        wire=wire,
        loss=None if experiment.loss is None else load_named("loss", experiment.loss),
    )
    if experiment.capacity is not None:
        program.capacity_of = affordable(program, experiment.capacity, federation.num_clients)
    return Side(experiment=experiment, built=built, program=program, federation=federation)


def experiment_token(experiment: Experiment) -> str:
    """Of all that a client's work depends on: server and nodes that differ in it are not of one experiment."""
    table = tomllib.loads(configuration_of(experiment))
    told = {key: value for key, value in table.items() if key not in APART}
    data = experiment.data
    told["data"] = {"label_space": data.label_space, "augment": data.augment}
    deploy = experiment.deploy
    told["deploy"] = None if deploy is None else deploy.model_dump(exclude={"wait", "deadline"})
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
