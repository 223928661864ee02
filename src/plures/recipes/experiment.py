"""An experiment file: what may stand in it, and what it means when it stands alone.

`method = "pflego"` is a whole experiment: everything else has a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from plures.core.errors import InvalidConfig
from plures.data.dividing import SplitBy
from plures.data.test_sets import TestRule
from plures.evaluate import SplitName
from plures.evaluate.guard import MARGIN
from plures.recipes.deploy_tables import DeployTable
from plures.recipes.explaining import problems_in
from plures.recipes.fault_tables import FaultsTable, TolerateTable
from plures.recipes.overrides import apply_override
from plures.recipes.stage_tables import CheckpointTable, Pipeline, SearchTable
from plures.recipes.tables import FreeTable, Table
from plures.recipes.track_tables import Track
from plures.report.toml_text import parse_toml

RESERVED = ("privacy",)
"""Tables that later versions will read."""
MOST_LEVELS = 32
"""Of tables and lists in each other."""
LARGEST = 2**63
"""TOML asks no more of whole numbers."""


Trained = Literal["global", "personal", "post_local", "finetuned"]
"""The models that may be asked for by name; what a guard chooses comes with the guard."""


class Data(FreeTable):
    """Where examples come from and how they are dealt; further keys are the partitioner's options."""

    source: str | dict[str, Any] = "digits"
    """A name, or a table with the name and the options of a data set."""
    partition: str = "by_class"
    clients: int = Field(default=20, ge=1)
    examples: int | float | None = None
    """So many of the data set's examples, or a share of them, drawn before they are dealt; test examples all stay."""
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
    robust: str | dict[str, Any] | None = None
    """A sum that hostile uploads cannot break: "median", or a table with the rule and its options."""


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
    checkpoint: CheckpointTable = CheckpointTable()
    faults: FaultsTable | None = None
    """What goes wrong on purpose."""
    tolerate: TolerateTable | None = None
    """What a round bears."""
    track: Track = Track()
    tune: SearchTable | None = None
    """For `plures tune`; a run takes no notice of it."""
    deploy: DeployTable | None = None
    """For `plures deploy`; a run in one place takes no notice of it."""


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; overrides such as "rounds=50" or "data.clients=10" replace what stands in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # also what is no UTF-8, and no name of a file
        raise InvalidConfig(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    try:
        table = parse_toml(text)
    except ValueError as error:  # also a number of thousands of digits
        raise InvalidConfig(f"{path} is not valid TOML: {error}.") from error
    except RecursionError as error:
        raise InvalidConfig(f"{path} has values that are nested too deep.") from error
    for override in overrides:
        apply_override(table, override)
    return make_experiment(table)


def make_experiment(table: Mapping[str, Any]) -> Experiment:
    """Check a table of options; every problem is told at once."""
    check_values(table)
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


def check_values(table: Mapping[str, Any]) -> None:
    """Refuse what no file can mean: values nested without end, and numbers that no computer has."""
    level: list[tuple[str, Any]] = [("", table)]
    for _ in range(MOST_LEVELS):
        level = [inner for one in level for inner in values_in(*one)]
        for name, value in level:
            if isinstance(value, int) and abs(value) >= LARGEST:
                shown = f"{str(value)[:12]}..." if abs(value) < 10**4000 else "a number of thousands of digits"
                raise InvalidConfig(f"{name} = {shown}: whole numbers are below {LARGEST:.0e}. Give a smaller one.")
    if level:
        raise InvalidConfig(f"The experiment has values that are nested deeper than {MOST_LEVELS} levels.")


def values_in(name: str, value: Any) -> list[tuple[str, Any]]:
    """With the names that they have in messages."""
    if isinstance(value, Mapping):
        return [(f"{name}.{key}" if name else str(key), inner) for key, inner in value.items()]
    return [(name, inner) for inner in value] if isinstance(value, list | tuple) else []


def plain_table(experiment: Experiment) -> dict[str, Any]:
    """As it would stand in a file: only what was given."""
    return experiment.model_dump(exclude_unset=True, exclude_none=True, exclude={"tune", "out"})
