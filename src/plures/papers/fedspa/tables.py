"""Tables 1 to 5 of the FedSpa paper, measured beside published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev

from plures.papers.blocks import Block, Entry, Grid, Words
from plures.papers.cells import Cell
from plures.papers.fedspa.common import accuracy_grid, gigabytes, headline, printed, with_spread
from plures.papers.fedspa.runs import density_cells, sparsity_cells, task_cells, timed_cells
from plures.papers.fedspa.settings import COLUMNS, FEDAVG, LOCAL, METHODS, TASKS, Task, ablated, cell
from plures.papers.outcomes import Outcome
from plures.papers.reading import entry, grid_rows, tail
from plures.papers.recipe import Found

SENT_AND_DONE = ("traffic", "FLOPs")
PRINTED_COSTS = ("gigabytes", "flops")


def show_table_1(found: Found) -> list[Block]:
    blocks: list[Block] = []
    for name, numbers in printed()["table-1"].items():
        if name == "notes":
            continue
        task = TASKS[found.scale].get(name)
        cells = task_cells(task) if task else []
        title = f"{name}{f', here {task.told}' if task else ''}: accuracy over clients after the last round, %"
        blocks.append(accuracy_grid(found, title, cells, task, numbers["accuracy"], note=skews(name, task)))
        if task:
            blocks += [cost_shares(found, task, name), after_training(found, task)]
    return [*blocks, Words(text="Slips of the paper: " + " ".join(printed()["table-1"]["notes"]))]


def skews(name: str, task: Task | None) -> str:
    """The paper's settings where ours have other parameters."""
    own = TASKS["full"][name].skew
    if task is None or task.skew == own:
        return ""
    return f"Published: A and B with gamma = {own[0]:g} and {own[1]:g}."


def cost_shares(found: Found, task: Task, name: str) -> Grid:
    """What the runs sent and computed by what FedAvg's did; the item costs has the paper's own figures."""
    rows: dict[str, list[Entry | None]] = {}
    for method in METHODS:
        if method == FEDAVG:
            continue
        rows[method] = []
        for column in task.columns:
            for kind in PRINTED_COSTS:
                rows[method].append(cost_share(found, task, name, method, column, kind))
    return Grid(
        title=f"{task.told}: values sent and FLOPs, in percent of FedAvg's",
        columns=[f"{task.column(column)} {kind}" for column in task.columns for kind in SENT_AND_DONE],
        rows=rows,
        digits=1,
        note="RSM makes no search here; the paper charges it for one.",
    )


def cost_share(found: Found, task: Task, name: str, method: str, column: str, kind: str) -> Entry | None:
    if (method, kind) == (LOCAL, "gigabytes"):
        return None
    numbers, place = printed()["table-1"][name][kind], COLUMNS.index(column)
    published = 100 * numbers[method][place] / numbers[FEDAVG][place]
    whole = found.outcomes(cell(task, FEDAVG, column))
    count: Callable[[Outcome], float] = gigabytes if kind == "gigabytes" else lambda one: float(one.cost["flops"])
    shares = [
        100 * count(outcome) / count(whole[seed])
        for seed, outcome in found.outcomes(cell(task, method, column)).items()
        if seed in whole
    ]
    return averaged(shares, published)


def averaged(values: Sequence[float], published: float | str | None) -> Entry:
    if not values:
        return Entry(published=published)
    spread = pstdev(values) if len(values) > 1 else None
    return Entry(measured=fmean(values), spread=spread, seeds=len(values), published=published)


def after_training(found: Found, task: Task) -> Grid:
    """The cohort's models right after their visits, before the server's step."""
    read = tail("sampled/post_local/test/accuracy", 10)
    return Grid(
        title=f"{task.told}: accuracy of a cohort's models right after training, mean over the last ten rounds, %",
        columns=[task.column(column) for column in task.columns],
        rows=grid_rows(found, task_cells(task), read, task.columns),
        note="Another protocol than the paper's, for comparison: before the server's step, on few clients.",
    )


def show_table_2(found: Found) -> list[Block]:
    blocks: list[Block] = []
    for name, task in TASKS[found.scale].items():
        if task.targets:
            blocks.append(rounds_grid(found, name, task))
    for name in printed()["table-2"]:
        if not same_targets(name, TASKS[found.scale].get(name)):
            blocks.append(rounds_grid(found, name, None))
    return blocks


def same_targets(name: str, task: Task | None) -> bool:
    known = printed()["table-2"].get(name)
    return task is not None and known is not None and list(task.targets) == known["targets"]


def rounds_grid(found: Found, name: str, task: Task | None) -> Grid:
    """Rounds to the targets, as published where they are the same ones."""
    known = printed()["table-2"][name] if task is None or same_targets(name, task) else {}
    targets = list(task.targets) if task else known["targets"]
    columns = task.columns if task else COLUMNS
    rows: dict[str, list[Entry | None]] = {}
    for method in METHODS:
        if method == LOCAL:
            continue
        places = [(column, target) for column in columns for target in targets]
        published = [told_rounds(one) for one in known["rounds"][method]] if known else [None] * len(places)
        rows[method] = [
            Entry(published=number) if task is None else rounds_entry(found, cell(task, method, column), target, number)
            for (column, target), number in zip(places, published, strict=True)
        ]
    told = task.told if task else f"{name}, as published"
    return Grid(
        title=f"{told}: rounds to an accuracy",
        columns=[f"{task.column(column) if task else column} @{target}" for column in columns for target in targets],
        rows=rows,
        digits=1,
        note=f"Evaluated every {task.every} rounds." if task and task.every > 1 else "",
    )


def told_rounds(number: Sequence[float]) -> str:
    return with_spread(number) if number else "> 1000"


def rounds_entry(found: Found, where: Cell, target: float, published: str | None) -> Entry:
    """The mean over seeds; where a seed never got there, that it takes more rounds than there were."""
    outcomes = found.outcomes(where).values()
    reached = [outcome.rounds_to(headline(outcome), target / 100) for outcome in outcomes]
    known = [round for round in reached if round is not None]
    if len(known) < len(reached):
        return Entry(measured=f"> {where.table['rounds']}", seeds=len(reached), published=published)
    return averaged(known, published)


def show_table_3(found: Found) -> list[Block]:
    task, numbers = ablated(found.scale), printed()["table-3"]
    title = f"FedSpa (DST) by sparsity, {task.told}: accuracy, %"
    note = f"{published_on(task)} Its cost columns are in the item costs. {' '.join(numbers['notes'])}"
    grid = accuracy_grid(found, title, sparsity_cells(found.scale), task, numbers["accuracy"], note=note)
    rows = {name: grid.rows[name] for name in sorted(grid.rows, key=float)}
    return [Grid(title=grid.title, corner="sparsity", columns=grid.columns, rows=rows, note=grid.note)]


def show_table_4(found: Found) -> list[Block]:
    task = ablated(found.scale)
    title, note = f"FedSpa (DST) by ERK and uniformly, {task.told}: accuracy, %", published_on(task)
    return [accuracy_grid(found, title, density_cells(found.scale), task, printed()["table-4"]["accuracy"], note=note)]


def published_on(task: Task) -> str:
    return "" if task.name == "CIFAR-100" else "Published: CIFAR-100 with ResNet18, A and B with gamma = 0.2 and 0.1."


def show_table_5(found: Found) -> list[Block]:
    places = {one.row: one for one in timed_cells(found.scale)}
    rows: dict[str, list[Entry | None]] = {}
    for name, numbers in printed()["table-5"].items():
        kinds = zip(("train", "search", "percent"), numbers, strict=True)
        rows[name] = [entry(found, places.get(name), seconds(kind), with_spread(number)) for kind, number in kinds]
    told = "; ".join(f"{name} here is {task.told}" for name, task in TASKS[found.scale].items())
    return [
        Grid(
            title="Seconds of a visit on one core, and the mask search by training in percent",
            columns=["training", "mask search", "ratio, %"],
            rows=rows,
            digits=3,
            note=f"{told}. There is no GPU here.",
        )
    ]


def seconds(kind: str) -> Callable[[Outcome], float]:
    return lambda outcome: float(outcome.extras.get("search_seconds", {}).get(kind, float("nan")))
