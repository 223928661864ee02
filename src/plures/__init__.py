"""Plures: personalised federated learning. Out of one shared model, many personal ones."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

PACKAGES = (
    *("core", "data", "engines", "evaluate", "local", "methods", "models", "participation", "parts", "recipes"),
    *("report", "server", "stores", "wire"),
)


def __getattr__(name: str) -> Any:
    """What is here is imported on first use: torch takes seconds, and help, completion and reports need none of it."""
    if name in PACKAGES:
        return import_module(f"plures.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'plures' has no attribute '{name}'")
    value = getattr(import_module("plures.core.errors" if name == "PluresError" else "plures.recipes"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *PACKAGES})
