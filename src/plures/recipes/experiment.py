"""An experiment file: what may stand in it, and what it means when it stands alone.

`method = "pflego"` is a whole experiment: everything else has a default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plures.core.errors import InvalidConfig
from plures.data.dividing import SplitBy
from plures.data.test_sets import TestRule
from plures.evaluate import SplitName
from plures.evaluate.guard import MARGIN
from plures.recipes.explaining import problems_in
from plures.recipes.overrides import apply_override
from plures.recipes.track_tables import Track

RESERVED = ("faults", "privacy", "checkpoint", "deploy")
"""Tables that later versions will read."""


Trained = Literal["global", "personal", "post_local", "finetuned"]
"""The models that may be asked for by name; what a guard chooses comes with the guard."""


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FreeTable(BaseModel):
    """A table whose further keys are the options of what it names."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Data(FreeTable):
    """Where examples come from and how they are dealt; further keys are the partitioner's options."""

    source: str | dict[str, Any] = "digits"
    """A name, or a table with the name and the options of a data set."""
    partition: str = "by_class"
    clients: int = Field(default=20, ge=1)
    label_space: Literal["global", "local"] = "global"
    split: Annotated[tuple[float, float, float], Field(strict=False)] = (0.6, 0.2, 0.2)
    split_by: SplitBy = "random"
    test_rule: TestRule | None = None
    """None: the data set's own test examples by the same rule, where there are some."""
    test_size: int = Field(default=100, ge=1)
    newcomers: int | float | None = None
    """Clients, or a share of them, that take no part in training."""
    merge_validation: bool = False
    """Train on the validation examples too, once nothing is left to choose: `plures tune --refit`."""
    augment: list[str] | dict[str, Any] | None = None
    """None: as the data set has it."""
    sizes: int | list[int] | None = None
    """For `plures cost`: examples of each client, where the data themselves are not at hand."""
    shape: list[int] | None = None
    """With `sizes`: the shape of one example."""
    classes: int | None = None
    """With `sizes`: how many classes there are."""
    seed: int = 0


class Model(FreeTable):
    """A network by name, or a function "package.module:name"; further keys are its options."""

    name: str = "mlp"
    weights: str | None = None
    """A safetensors file or state dict to start from, such as RUN/shared.safetensors; what it lacks starts as usual."""
    match: Literal["exact", "loose"] = "exact"
    """loose: take what fits, by name and then in order (a batch-norm network into a group-norm one)."""
    adapters: str | dict[str, Any] | None = None
    """A kind ("conv", "bottleneck", "lora"), or a table with the kind and its options."""
    input_dropout: dict[str, Any] | None = None
    """{on = "head", rate = 0.3}: dropout on the input of these layers while training."""


class Split(Table):
    """Which parameters are personal, and whose the running statistics are."""

    personal: str | list[str] | None = None
    buffers: Literal["shared", "personal", "reset"] | None = None


class ServerTable(FreeTable):
    """The server's optimiser and the weights of uploads; further keys are the optimiser's options."""

    optimizer: str | None = None
    weight: str | dict[str, int] | None = None


class GuardTable(Table):
    """Each client chooses between its own model and a shared one, on validation data."""

    margin: float = Field(default=MARGIN, ge=0)
    """Standard errors by which its own must be better."""
    against: str | None = None
    """The folder of a run whose shared model to fall back on; None: the run's own, or that of stage (a)."""


class Evaluation(Table):
    """When and what to evaluate."""

    every: int = Field(default=5, ge=1)
    models: list[Trained] | Literal["all"] | None = None
    splits: list[SplitName] = ["validation", "test"]
    metrics: list[str] = []
    targets: list[float] = []
    post_local: bool = False
    guard: bool | GuardTable = False
    diagnostics: bool = False


class WireTable(Table):
    """How what is sent is coded: "exact", "float16", "bfloat16" or "int8"."""

    upload: str = "exact"
    download: str = "exact"


class Participation(FreeTable):
    """Who takes part, for rules that one number cannot say; further keys are the rule's options."""

    rule: str


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


class Experiment(Table):
    """A whole experiment, as a file has it; `load_experiment` and `make_experiment` check and complete one."""

    method: str
    rounds: int = Field(default=50, ge=0)
    cohort: int | float | Literal["all"] = "all"
    seed: int = 0
    engine: str = "auto"
    device: str = "cpu"
    loss: str | None = None
    """A function "package.module:name" of (output, targets); None: that of the data's goal."""
    out: str | None = None
    data: Data = Data()
    model: Model = Model()
    split: Split = Split()
    method_options: dict[str, Any] = {}
    server: ServerTable = ServerTable()
    evaluation: Evaluation = Evaluation()
    participation: Participation | None = None
    pipeline: Pipeline | None = None
    capacity: dict[str, Any] | None = None
    """What clients can afford: {density = 0.5}, or width, flops or bytes; a number, a list, tiers, a distribution."""
    wire: WireTable = WireTable()
    track: Track = Track()
    tune: SearchTable | None = None
    """For `plures tune`; a run takes no notice of it."""


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; overrides such as "rounds=50" or "data.clients=10" replace what stands in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path} is not valid TOML: {error}.") from error
    for override in overrides:
        apply_override(table, override)
    return make_experiment(table)


def make_experiment(table: Mapping[str, Any]) -> Experiment:
    """Check a table of options; every problem is told at once."""
    reserved = [f"[{name}] is reserved for a later version; remove it." for name in RESERVED if name in table]
    if reserved:
        raise InvalidConfig(reserved)
    if "cohort" in table and "participation" in table:
        raise InvalidConfig("Both cohort and [participation] say who takes part. Keep one of them.")
    problems: list[str] = []
    if table.get("rounds") == 0 and not table.get("pipeline"):
        problems.append("rounds = 0: a run has at least one round, unless a [pipeline] trains before it.")
    try:
        experiment = Experiment.model_validate(dict(table))
    except ValidationError as error:
        problems += problems_in(error, Experiment)
    if problems:
        raise InvalidConfig(problems)
    return experiment
