"""The runs of the paper: a table for every task, method and personal part, built in one place."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from plures.papers.cells import Cell
from plures.papers.fedalt.tasks import ADAPTER, EMNIST, OUTPUT, STACKOVERFLOW, TASKS, UNIPEN, Table, Task
from plures.papers.recipe import Scale

FEDALT, FEDSIM, FEDSIM_2, FT = "FedAlt", "FedSim", "FedSim, 2 epochs", "FT (part.)"
STATELESS = "stateless"
FINETUNE, DITTO, PFEDME, TRAINED_ON = "Finetune", "Ditto", "pFedMe", "FedAvg, trained on"
L2: dict[Scale, tuple[float, ...]] = {
    "micro": (0.1, 10.0),
    "small": (0.01, 0.1, 10.0),
    "full": (0.001, 0.1, 1.0),
}
DROPOUT: dict[Scale, tuple[float, ...]] = {"micro": (0.3, 0.7), "small": (0.3, 0.5, 0.7), "full": (0.3, 0.5, 0.7, 0.9)}
SEVERAL_SEEDS = {f"{method}/{part}" for method in (FEDALT, FEDSIM, FEDSIM_2, FT) for part in (OUTPUT, ADAPTER)} | {
    FINETUNE,
    DITTO,
}
"""At the scale small; all else is run once there."""
MOST_STEPS = 1000
"""Of FedAlt's personal phase, in the authors' code."""


def key(method: str, part: str, *, stateless: bool = False) -> str:
    """Such as "FedAlt/Adapter" or "FedSim stateless/Output Layer"."""
    return f"{method} {STATELESS}/{part}" if stateless else f"{method}/{part}"


def l2_key(strength: float) -> str:
    return f"L2 {strength:g}/{ADAPTER}"


def dropout_key(rate: float) -> str:
    return f"dropout {rate:g}/{OUTPUT}"


def cells_of(scale: Scale, tasks: Iterable[str], keys: Iterable[str]) -> list[Cell]:
    """Those that a scale has of them."""
    wanted = list(keys)
    found = [cell_of(scale, task, one) for task in tasks for one in wanted]
    return [cell for cell in found if cell is not None]


@cache
def cell_of(scale: Scale, task: str, name: str) -> Cell | None:
    """One run; None where a scale leaves it out."""
    chosen = TASKS[scale].get(task)
    if chosen is None or (scale != "full" and not is_run(scale, task, name)):
        return None
    once = scale == "small" and name not in SEVERAL_SEEDS
    return Cell(row=task, column=name, table=table_of(chosen, name), most_seeds=1 if once else None)


def is_run(scale: Scale, task: str, name: str) -> bool:
    """On the stand-in for EMNIST everything; on UNIPEN neither L2 nor dropout, and less at micro; less on texts."""
    method, _, part = name.partition("/")
    if task == UNIPEN and scale == "small":
        return not name.startswith(("L2", "dropout"))
    if task == UNIPEN:
        return name in (FINETUNE, DITTO) or (method in (FEDALT, FEDSIM, FEDSIM_2, FT) and part in (OUTPUT, ADAPTER))
    if task == STACKOVERFLOW:
        return name == FINETUNE or method == FEDALT or (method == FT and scale == "small")
    return task == EMNIST


def table_of(task: Task, name: str) -> Table:
    """The experiment of a key."""
    method, _, part = name.partition("/")
    if method == FINETUNE:
        return whole(task, "fedavg", tune=tuning(task, part="all"), guard=task.guard)
    if method == DITTO:
        return whole(task, "fedavg", tune=tuning(task, part="all", pull=task.ditto))
    if method == TRAINED_ON:
        return whole(task, "fedavg", options=training(task), rounds=task.rounds[1])
    if method == PFEDME:
        options = {
            "lam": task.pfedme,
            "inner_steps": 3,
            "inner_lr": task.rates[1],
            "lr": task.rates[1],
            "personal_model": "finetuned",
            "budget": one_pass(task),
        }
        tune = tuning(task, part="all", pull=task.pfedme, half=True)
        return whole(task, "pfedme", options=options, rounds=task.rounds[1], tune=tune, weight="samples")
    if method == FT:
        return partial(task, "fedalt", part, rounds=0)
    if method.startswith("L2 "):
        return partial(task, "fedalt", part, l2=float(method.removeprefix("L2 ")))
    if method.startswith("dropout "):
        return partial(task, "fedalt", part, dropout=float(method.removeprefix("dropout ")))
    if method == FEDSIM_2:
        return partial(task, "fedsim", part, passes=2)
    base = method.removesuffix(f" {STATELESS}")
    return partial(task, {FEDALT: "fedalt", FEDSIM: "fedsim"}[base], part, stateful=base == method)


def partial(
    task: Task,
    method: str,
    part: str,
    *,
    rounds: int | None = None,
    passes: int = 1,
    stateful: bool = True,
    l2: float = 0.0,
    dropout: float = 0.0,
) -> Table:
    """Stages (a), (b) by FedAlt or FedSim, and (c) on the personal part; rounds = 0 leaves out (b)."""
    options = training(task, passes)
    if method == "fedalt":
        options["personal_budget"] = {**one_pass(task, passes), "cap": MOST_STEPS}
    if l2:
        options["personal_l2"] = l2
    if not stateful:
        options["stateful"] = False
    table = whole(
        task,
        method,
        options=options,
        rounds=task.rounds[1] if rounds is None else rounds,
        tune=tuning(task, part="personal", pull=l2),
        guard=task.guard and stateful,
    )
    table["split"] = {"personal": task.parts[part]}
    if part == ADAPTER:
        table["model"]["adapters"] = task.adapters
    if dropout:
        table["model"]["input_dropout"] = {"on": task.before_output, "rate": dropout}
    return table


def whole(
    task: Task,
    method: str,
    *,
    options: Table | None = None,
    rounds: int = 0,
    tune: Table | None = None,
    guard: bool = False,
    weight: str | None = None,
) -> Table:
    """A table with stage (a), which is the same for all methods of a task: it is trained once."""
    evaluation: Table = {"every": task.every, "splits": ["train", "test"]}
    pipeline: Table = {"pretrain": pretraining(task)}
    if tune is not None:
        pipeline["tune"] = tune
    table: Table = {
        "method": method,
        "rounds": rounds,
        "cohort": task.cohort,
        "data": dict(task.data),
        "model": dict(task.model),
        "evaluation": {**evaluation, "guard": True} if guard else evaluation,
        "pipeline": pipeline,
    }
    if options:
        table["method_options"] = options
    server = dict(task.server[1]) if task.server is not None and rounds else {}
    if weight is not None:
        server["weight"] = weight
    if server:
        table["server"] = server
    return table


def pretraining(task: Task) -> Table:
    """Stage (a): FedAvg."""
    table = {"method": "fedavg", "rounds": task.rounds[0], "lr": task.rates[0], "budget": one_pass(task)}
    if task.clip is not None:
        table["clip_norm"] = task.clip
    if task.server is not None:
        table["server"] = dict(task.server[0])
    return table


def training(task: Task, passes: int = 1) -> Table:
    """Rates of shared and personal parts are the same, as in the paper."""
    options: Table = {"lr": task.rates[1], "budget": one_pass(task, passes)}
    return options if task.clip is None else {**options, "clip_norm": task.clip}


def tuning(task: Task, *, part: str, pull: float = 0.0, half: bool = False) -> Table:
    """Stage (c): five epochs."""
    table: Table = {"part": part, "budget": {"epochs": 5, "batch": task.batch}, "lr": task.rates[2]}
    if task.clip is not None:
        table["clip_norm"] = task.clip
    return {**table, "pull": pull, "half": half} if pull else table


def one_pass(task: Task, passes: int = 1) -> Table:
    return {"epochs": passes, "batch": task.batch}
