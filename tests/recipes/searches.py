"""Short searches on the small data source."""

from __future__ import annotations

from pathlib import Path

import pytest

from plures import make_experiment
from plures.core.errors import InvalidInput
from plures.recipes import Tuning, tune
from tests.recipes.helpers import table

LR = {"method_options.lr": {"low": 1e-5, "high": 1.0, "log": True}}


def searched(out: Path, space=LR, *, trials: int = 3, refit: int | None = None, **changes) -> Tuning:
    method = changes.pop("method", "fedavg")
    settings = {name: changes.pop(name) for name in ("seeds", "sampler", "pruner", "metric") if name in changes}
    return tune(make_experiment(table(method, **changes)), space, out=out, trials=trials, refit=refit, **settings)


def told_by(out: Path, space=LR, **changes) -> list[str]:
    """The problems of a search, which are told before anything is written."""
    with pytest.raises(InvalidInput) as told:
        searched(out, space, **changes)
    assert not out.exists()
    return told.value.problems
