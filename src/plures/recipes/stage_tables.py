"""Tables of an experiment file about more than one run: stages, searches, and runs that go on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from plures.recipes.tables import FreeTable, Table


class PretrainTable(FreeTable):
    """Stage (a): a method whose whole model is shared; further keys are its options."""

    method: str = "fedavg"
    rounds: int = Field(default=50, ge=1)


class TuneTable(Table):
    """Stage (c): local fine-tuning of every client's model, without federation."""

    part: Literal["personal", "all"] = "personal"
    budget: dict[str, Any] = {"epochs": 5, "batch": 32}
    lr: Any = 0.1
    pull: float = Field(default=0.0, ge=0)
    """Strength of a proximal term towards the shared model; 0: none."""
    half: bool = False
    """Whether the term is pull / 2 |w - received|^2 or pull |w - received|^2."""
    clip_norm: float | None = None


class Pipeline(Table):
    """Three stages as one run; the experiment itself is the second."""

    pretrain: PretrainTable | None = None
    tune: TuneTable | Literal["method"] | None = None
    """ "method": as the method itself fine-tunes."""
    cache: str = "runs/pretrained"
    """Where stage (a) is kept, by its configuration."""


class SearchTable(Table):
    """What `plures tune` tries, and how."""

    trials: int = Field(default=30, ge=1)
    seeds: int = Field(default=1, ge=1)
    """Runs of each trial; their mean counts."""
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    pruner: Literal["median", "halving", "none"] = "median"
    warmup: int = Field(default=0, ge=0)
    """No trial is stopped before this round has passed."""
    metric: str | None = None
    """Such as "loss" or "personal/validation/loss"; None: what the method is judged by."""
    seed: int = 0
    """Of the sampler."""
    search: dict[str, Any] = {}
    """By key, as for --set: a list, or a range {low = 0.001, high = 1.0, log = true}."""


class CheckpointTable(Table):
    """How much of a run a crash may cost; see `CheckpointPlan`."""

    every: int = Field(default=10, ge=1)
    seconds: float = Field(default=60.0, gt=0)
    keep: int = Field(default=2, ge=1)
    cache_mb: int = Field(default=256, ge=1)
