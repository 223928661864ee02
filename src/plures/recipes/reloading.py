"""A run again, from its folder."""

from __future__ import annotations

from pathlib import Path

from plures.core.program import Program
from plures.core.types import Params
from plures.recipes.build import build
from plures.recipes.experiment import load_experiment
from plures.recipes.running import make_program
from plures.recipes.warm_start import load_weights
from plures.report import records


def load_run(folder: Path, device: str) -> tuple[Program, Params]:
    """A run's program on a device, without any client's state, and its shared part."""
    experiment = load_experiment(folder / records.EXPERIMENT)
    built = build(experiment)
    program = make_program(built.method, built.networks, built.federation, seed=experiment.seed, device=device)
    return program, load_shared(folder, program)


def load_shared(folder: Path, program: Program) -> Params:
    return {name: value.to(program.device) for name, value in load_weights(folder / records.SHARED).items()}
