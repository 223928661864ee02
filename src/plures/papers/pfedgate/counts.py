"""Closed forms: sizes of networks and gates, densities that gates end with, the complexity table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from plures.evaluate.complexity import Line, Sizes, complexity
from plures.models import leaf_cnn, lenet32
from plures.papers.blocks import Block, Entry, Grid, Words
from plures.papers.pfedgate.columns import PUBLISHED
from plures.papers.recipe import Found, Recipe
from plures.parts.blocks import cut
from plures.parts.gate import Gate, GateOptions
from plures.parts.gated import knapsack
from plures.parts.selection import worth

SPLITS = 5
DRAWS = 20
"""Of importances; the densities do not depend on them."""
COLUMNS = {"fedavg": "FedAvg", "pfedhn": "pFedHN", "fedem": "FedEM", "pfedgate": "pFedGate"}


@dataclass(frozen=True, kw_only=True)
class Network:
    """One of the paper, or what it must have been."""

    draw: Callable[[], nn.Module]
    shape: tuple[int, ...]
    published: str | None = None
    """Its name among the published sizes."""
    printed_densities: bool = True

    def make(self) -> nn.Module:
        """Its shapes alone, for nothing is computed with it."""
        with torch.device("meta"):
            return self.draw()


LARGE = "LEAF-CNN, 62 classes"
NETWORKS = {
    LARGE: Network(draw=lambda: leaf_cnn(classes=62), shape=(1, 28, 28)),
    "LEAF-CNN, 10 classes": Network(
        draw=lambda: leaf_cnn(classes=10), shape=(1, 28, 28), published="EMNIST, FEMNIST", printed_densities=False
    ),
    "LeNet, CIFAR-10": Network(draw=lenet32, shape=(3, 32, 32), published="CIFAR-10"),
    "LEAF-CNN, CIFAR-100": Network(
        draw=lambda: leaf_cnn(shape=(3, 32, 32), classes=100), shape=(3, 32, 32), published="CIFAR-100"
    ),
}
BROKEN = ((2, 0.3), (5, 0.1))
"""Splits and s for which a first piece of 1 / B is more than s."""


def parameters(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


def least_share(splits: int, density: float) -> float:
    """The share of each parameter that is always kept, as the method has it by default."""
    return min(max(1 / splits, 0.1), density)


def kept_shares(module: nn.Module, density: float, *, splits: int = SPLITS, rule: str = "first") -> list[float]:
    """The share of the network that is kept, for random importances of its blocks."""
    least = least_share(splits, density)
    blocks = cut(module, rule, splits, least)
    sack = knapsack(blocks, least, None)
    importance = torch.rand(DRAWS, blocks.count, generator=torch.Generator().manual_seed(0))
    kept = sack.select(worth(importance, least), torch.tensor(density, dtype=torch.float64), "greedy").double()
    shares: list[float] = (kept @ sack.costs / sack.costs.sum()).tolist()
    return shares


def density_of(module: nn.Module, density: float, *, splits: int = SPLITS, rule: str = "first") -> float:
    """The mean of those shares."""
    shares = kept_shares(module, density, splits=splits, rule=rule)
    return sum(shares) / len(shares)


def gate_size(network: Network, heads: int) -> int:
    """Parameters of a client's gate."""
    blocks = cut(network.make(), "first", SPLITS, least_share(SPLITS, 0.5)).count
    return parameters(Gate(network.shape, blocks, GateOptions(heads=heads)))


def show_densities(found: Found) -> list[Block]:
    """Sizes of networks and gates, densities, and where equal pieces exceed a capacity."""
    return [sizes_grid(), densities_grid(), broken_grid(), Words(text=NOTE)]


NOTE = (
    "The printed 2,171,786 parameters are those of a head of 10 classes, although EMNIST and FEMNIST have 62. The "
    "printed densities are those of 62 classes: 0.43 and 0.25, whatever the gates say, since a piece of the large "
    "layer fits once at s = 0.5 and not at all at s = 0.3. A head of a gate is 1.4 % of LEAF-CNN and 3.5 % of that "
    "for CIFAR-100, but 60 % of the small LeNet, so that the printed 5 % is far off there."
)


def sizes_grid() -> Grid:
    published, share = PUBLISHED["densities"]["parameters"], PUBLISHED["densities"]["gate_share"]
    rows: dict[str, list[Entry | None]] = {}
    for name, network in NETWORKS.items():
        size = parameters(network.make())
        gates = [gate_size(network, heads) for heads in (1, 2)]
        rows[name] = [
            Entry(measured=f"{size:,}", published=thousands(published.get(network.published))),
            *(Entry(measured=f"{gate:,}") for gate in gates),
            Entry(measured=round(gates[0] / size, 4), published=share),
            Entry(measured=round(gates[1] / size, 4), published=share),
        ]
    return Grid(
        title="Parameters of networks and gates",
        corner="network",
        columns=["parameters", "gate, one head", "gate, two heads", "one head, share", "two heads, share"],
        rows=rows,
        digits=3,
    )


def thousands(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def densities_grid() -> Grid:
    printed = PUBLISHED["densities"]
    rows: dict[str, list[Entry | None]] = {}
    for name, network in NETWORKS.items():
        shares = [density_of(network.make(), density) for density in (0.7, 0.5, 0.3, 0.1)]
        known = [None, printed["s' at s = 0.5"], printed["s' at s = 0.3"], None]
        rows[name] = [
            Entry(measured=share, published=number if network.printed_densities else None)
            for share, number in zip(shares, known, strict=True)
        ]
    columns = ["s = 0.7", "s = 0.5", "s = 0.3", "s = 0.1"]
    return Grid(title="Share s' of the network that is kept", corner="network", columns=columns, rows=rows, digits=3)


def broken_grid() -> Grid:
    """With equal pieces, as in the authors' code, the first ones alone may be more than s."""
    rows: dict[str, list[Entry | None]] = {}
    for splits, density in BROKEN:
        module = NETWORKS[LARGE].make()
        rows[f"B = {splits}, s = {density:g}"] = [
            Entry(measured=density_of(module, density, splits=splits, rule="equal")),
            Entry(measured=density_of(module, density, splits=splits)),
        ]
    return Grid(
        title="LEAF-CNN with 62 classes where 1 / B is above s",
        corner="setting",
        columns=["equal pieces (authors' code)", "first piece of s (paper)"],
        rows=rows,
        digits=3,
        note="Equal pieces keep more than the client can afford; Plures refuses such a run.",
    )


def complexity_lines() -> list[Line]:
    """Table 3 for LEAF-CNN on FEMNIST."""
    size = parameters(NETWORKS[LARGE].make())
    return complexity(Sizes(parameters=size, clients=539, cohort=539))


def show_complexity(found: Found) -> list[Block]:
    """Table 3: formulas as Plures has them, and what they come to in units of d."""
    printed, size = PUBLISHED["table-3"]["shares"], parameters(NETWORKS[LARGE].make())
    shares: dict[str, list[Entry | None]] = {}
    formulas: dict[str, list[Entry | None]] = {}
    for line in complexity_lines():
        name = f"{line.kind}, {line.where}"
        formulas[name] = [Entry(measured=cell.formula) for cell in line.cells]
        if name in printed:
            values = zip(COLUMNS.values(), line.cells, strict=True)
            shares[name] = [
                Entry(measured=cell.value / size, published=printed[name][method]) for method, cell in values
            ]
    columns = list(COLUMNS.values())
    letters = (
        "d parameters, n clients, m of them in a round; k networks of FedEM; s the density, g the share of a gate "
        "and q that of an upload of pFedGate; v and h the embedding and the hidden size of pFedHN."
    )
    return [
        Grid(title="In units of d, with the paper's usual sizes", corner="cost", columns=columns, rows=shares),
        Grid(title="Formulas", corner="cost", columns=columns, rows=formulas, note=letters),
        Words(text=" ".join(PUBLISHED["table-3"]["notes"])),
    ]


TABLE_3 = Recipe(
    name="table-3",
    title="Computation, communication and storage of FedAvg, pFedHN, FedEM and pFedGate",
    show=show_complexity,
    differs="The table takes a gate of 0.05 d and uploads of 0.67 d as given; the recipe `densities` has the gates' "
    "sizes, and runs of pFedGate in Table 1 have the uploads that were measured.",
)
DENSITIES = Recipe(
    name="densities",
    title="Sizes of networks and gates, the densities s' of Table 1, and where a capacity is exceeded",
    show=show_densities,
    differs="Numbers agree, but for what the note says of the paper's slips.",
)
