"""Stage (a) of a pipeline: its experiment, and where it is kept."""

from __future__ import annotations

import hashlib

from plures.core.program import Program
from plures.core.types import Params
from plures.recipes.build import Built
from plures.recipes.experiment import Experiment
from plures.recipes.stage_tables import PretrainTable
from plures.recipes.track_tables import Track

STAGE_A = "stage (a)"


def of_network(program: Program, shared: Params) -> Params:
    """The network's own parameters and statistics, without what a method keeps beside them at the server."""
    return {name: value for name, value in shared.items() if name in program.binding(0).task.names}


def kept_under(experiment: Experiment) -> str:
    return "runs/pretrained" if experiment.pipeline is None else experiment.pipeline.cache


def pretraining(experiment: Experiment, table: PretrainTable) -> Experiment:
    """The experiment of stage (a): the same data and network, without adapters and personal dropout."""
    return experiment.model_copy(
        update={
            "method": table.method,
            "rounds": table.rounds,
            "method_options": table.options,
            "model": experiment.model.model_copy(update={"adapters": None, "input_dropout": None}),
            "split": type(experiment.split)(buffers=experiment.split.buffers),
            "server": type(experiment.server)(),
            "evaluation": experiment.evaluation.model_copy(update={"guard": False}),
            "capacity": None,  # the whole model is trained
            "pipeline": None,
            "track": Track(),
            "out": None,
        }
    )


def key_of(built: Built) -> str:
    """Names a stage (a) by its resolved configuration and its data."""
    text = built.configuration + repr(sorted(built.federation.fingerprint().items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
