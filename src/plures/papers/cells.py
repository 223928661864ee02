"""One run of a reproduction: its experiment, and the name it is kept under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plures.recipes.experiment import Experiment, make_experiment, plain_table

WITHOUT_EFFECT = ("engine", "device", "checkpoint", "track")
"""What a result does not depend on, up to rounding."""

_KEYS: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of a table or one line of a figure: what runs there, under any seed."""

    row: str
    column: str = ""
    table: Mapping[str, Any]
    """As an experiment file has it, without a seed."""
    most_seeds: int | None = None
    """Further seeds are not asked for; None: as many as the reader wants."""
    extras: tuple[str, ...] = ()
    """Functions "package.module:name" of the finished run's folder; what they give is kept with the outcome."""

    @property
    def source(self) -> str:
        """The name of its data set."""
        named = self.table["data"]["source"]
        return str(named if isinstance(named, str) else named["name"])

    def experiment(self, seed: int) -> Experiment:
        return make_experiment({**self.table, "seed": seed})

    def key(self, seed: int) -> str:
        """Found once for each configuration: a page asks for it thousands of times."""
        told = json.dumps([self.table, seed], sort_keys=True)
        if told not in _KEYS:
            _KEYS[told] = key_of(self.experiment(seed))
        return _KEYS[told]


def key_of(experiment: Experiment) -> str:
    """The same for the same configuration; where and how fast it runs does not count."""
    table = {name: value for name, value in plain_table(experiment).items() if name not in WITHOUT_EFFECT}
    if "pipeline" in table:
        table["pipeline"] = {name: value for name, value in table["pipeline"].items() if name != "cache"}
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
