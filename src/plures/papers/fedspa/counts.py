"""Closed forms: the traffic and operations of Tables 1, 3 and 4, and how sparse each layer is (Figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from plures.models import MODELS
from plures.papers.blocks import Block, Entry, Figure, Grid, Series, Words
from plures.papers.fedspa.common import printed
from plures.papers.fedspa.settings import DST, METHODS, NAMES, RSM, SPARSITIES, SPARSITY, SUB_FEDAVG, method_options
from plures.papers.recipe import Found
from plures.parts.densities import erk, uniform
from plures.recipes import make_experiment
from plures.recipes.costing import PlannedCost, planned_cost

OPEN = "by training"
"""Of Sub-FedAvg: how fast its masks shrink is no closed form."""


class Stand(NamedTuple):
    """Data that stand in for a task's, evenly dealt: only sizes matter."""

    model: str
    rounds: int
    examples: int
    shape: tuple[int, int, int]
    classes: int


STANDS = {
    "EMNIST-L": Stand("lenet5", 400, 1248, (1, 28, 28), 26),
    "CIFAR-10": Stand("vgg11_gn", 1000, 500, (3, 32, 32), 10),
    "CIFAR-100": Stand("resnet18_gn", 1000, 500, (3, 32, 32), 100),
}
"""The training examples of 100 clients: 124,800 letters, 50,000 images of CIFAR."""


@cache
def planned(task: str, method: str, density: float = 1 - SPARSITY, densities: str = "erk") -> PlannedCost:
    """What the paper's experiment costs, without training."""
    stand = STANDS[task]
    changes: dict[str, Any] = {"density": density, "densities": densities} if method in (DST, RSM) else {}
    return planned_cost(
        make_experiment(
            {
                "method": NAMES.get(method, "fedspa"),
                "rounds": stand.rounds,
                "cohort": 10,
                "data": {
                    "clients": 100,
                    "sizes": stand.examples,
                    "shape": list(stand.shape),
                    "classes": stand.classes,
                },
                "model": {"name": stand.model},
                "method_options": method_options(method, 128, changes),
            }
        )
    )


def cost_entries(cost: PlannedCost, scale: float, published: Sequence[float | None]) -> list[Entry | None]:
    """Gigabytes, and operations in units of `scale`, those of a mask search included as in the paper."""
    sent = cost.total["paper_bytes"] / 1e9
    return [
        Entry(measured=sent, published=published[0]) if sent or published[0] else None,
        Entry(measured=cost.total["flops_with_search"] / scale, published=published[1]),
    ]


def main_row(method: str, tasks: Sequence[str]) -> list[Entry | None]:
    """Of Table 1, dealt alike."""
    row: list[Entry | None] = []
    for task in tasks:
        numbers = printed()["table-1"][task]
        known = [numbers[kind].get(method, [None])[0] for kind in ("gigabytes", "flops")]
        if method == SUB_FEDAVG:
            row += [Entry(measured=OPEN, published=number) for number in known]
        else:
            row += cost_entries(planned(task, method), 1e14, known)
    return row


def main_costs(tasks: Sequence[str] = tuple(STANDS)) -> Grid:
    return Grid(
        title="Table 1: traffic in GB and training FLOPs in units of 1e14, dealt alike",
        corner="method",
        columns=[f"{task} {kind}" for task in tasks for kind in ("GB", "FLOPs")],
        rows={method: main_row(method, tasks) for method in METHODS},
    )


def ablation_costs() -> list[Grid]:
    """Of Tables 3 and 4."""
    task, columns = "CIFAR-100", ["GB", "FLOPs (1e16)"]

    def row(table: str, name: str, sparsity: float, densities: str) -> list[Entry | None]:
        known = [printed()[table][kind][name][0] for kind in ("gigabytes", "flops")]
        return cost_entries(planned(task, DST, round(1 - sparsity, 6), densities), 1e16, known)

    sparser = {f"{one:g}": row("table-3", f"{one:g}", one, "erk") for one in SPARSITIES["full"]}
    dealt = {name: row("table-4", name, SPARSITY, name.lower()) for name in ("ERK", "Uniform")}
    return [
        Grid(title="Table 3: ResNet18 by sparsity, dealt alike", corner="sparsity", columns=columns, rows=sparser),
        Grid(title="Table 4: ResNet18 at a sparsity of 0.5, dealt alike", corner="layers", columns=columns, rows=dealt),
    ]


@cache
def layers(model: str, classes: int, shape: tuple[int, ...]) -> dict[str, tuple[float, float, int]]:
    """Of each weight of a network: its sparsity by ERK and uniformly, and its size."""
    network = MODELS[model](shape=shape, classes=classes)
    shapes = {name: tuple(value.shape) for name, value in network.named_parameters()}
    sizes = {name: value.numel() for name, value in network.named_parameters()}
    by_erk, alike = erk(shapes, 1 - SPARSITY), uniform(shapes, 1 - SPARSITY)
    return {name: (1 - by_erk[name], 1 - alike[name], sizes[name]) for name in shapes if len(shapes[name]) > 1}


def layer_blocks() -> list[Block]:
    """Figure 5's caption: how sparse the layers are at the start."""
    panels: dict[str, dict[str, Series]] = {}
    grids: list[Block] = []
    for task, stand in STANDS.items():
        found = layers(stand.model, stand.classes, stand.shape)
        places = [str(number) for number in range(1, len(found) + 1)]
        panels[f"{task}, {stand.model}"] = {
            "ERK": Series(x=places, y=[one[0] for one in found.values()]),
            "Uniform": Series(x=places, y=[one[1] for one in found.values()]),
        }
        rows: dict[str, list[Entry | None]] = {
            name: [Entry(measured=number) for number in numbers] for name, numbers in found.items()
        }
        title = f"{stand.model}: share of each weight that is left out at a sparsity of 0.5"
        grids.append(Grid(title=title, corner="weight", columns=["ERK", "Uniform", "size"], rows=rows, digits=4))
    title = "Layer-wise sparsity by ERK and uniformly; layers from the input to the output"
    return [Figure(name="layers", title=title, x="layer", y="sparsity", panels=panels, kind="bars"), *grids]


def show_costs(found: Found) -> list[Block]:
    notes = [*printed()["table-1"]["notes"], *printed()["table-3"]["notes"], *printed()["table-4"]["notes"]]
    return [main_costs(), *ablation_costs(), Words(text="Slips of the paper: " + " ".join(notes))]
