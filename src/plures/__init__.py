"""Plures: personalised federated learning. Out of one shared model, many personal ones."""

from importlib.metadata import version

from plures import data, local, methods, models, participation, parts, server
from plures.core.errors import PluresError
from plures.recipes import (
    EvaluationPlan,
    GuardPlan,
    RunResult,
    adapt,
    export_client,
    load_client,
    load_experiment,
    load_run,
    make_experiment,
    run,
    run_experiment,
    run_study,
)

__version__ = version("plures")

__all__ = [
    "EvaluationPlan",
    "GuardPlan",
    "PluresError",
    "RunResult",
    "__version__",
    "adapt",
    "data",
    "export_client",
    "load_client",
    "load_experiment",
    "load_run",
    "local",
    "make_experiment",
    "methods",
    "models",
    "participation",
    "parts",
    "run",
    "run_experiment",
    "run_study",
    "server",
]
