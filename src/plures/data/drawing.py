"""A federation as a picture: how many examples of each class each client has, and how many in all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData
from plures.data.showing import ClientRow, counts_of, shortened

try:
    from matplotlib import colormaps
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise InvalidConfig("A picture needs matplotlib: pip install 'plures[plot]'.") from error

MOST_NAMES = 60
"""More clients than these are numbered, not named."""
NAME_WIDTH = 24
MOST_LABELS = 30
SPLITS = {"train": "#2a6f97", "validation": "#89c2d9", "test": "#f4a259"}


def draw(rows: Sequence[ClientRow], num_classes: int, title: str, path: Path) -> None:
    """Write a PNG: clients from top to bottom; on the left their classes, on the right their sizes."""
    figure = figure_of(rows, num_classes, title)
    try:
        figure.savefig(path, format="png", dpi=150)
    except OSError as error:
        raise InvalidData(f"Cannot write {path}: {error.strerror or error}.") from error


def figure_of(rows: Sequence[ClientRow], num_classes: int, title: str) -> Figure:
    with_classes = any(row.classes for row in rows)
    height = min(10.0, max(4.0, 2.0 + 0.22 * len(rows)))
    figure = Figure(figsize=(11.0 if with_classes else 8.5, height), layout="constrained")
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=13)
    if with_classes:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        draw_classes(figure, left, rows, num_classes)
        draw_sizes(right, rows)
    else:
        left = right = figure.subplots()
        draw_sizes(right, rows)
    name_clients(left, rows)
    figure.legend(loc="outside upper right", ncols=len(SPLITS), frameon=False)
    return figure


def draw_classes(figure: Figure, axes: Axes, rows: Sequence[ClientRow], num_classes: int) -> None:
    """Darker is more; classes that a client has not are white."""
    counts = counts_of(rows, num_classes)
    seen: Any = np.ma.masked_equal(counts, 0)
    image = axes.imshow(seen, aspect="auto", interpolation="nearest", cmap=blues(), vmin=0)
    axes.set_xlabel("class")
    axes.set_title("training examples of each class", fontsize=10)
    if num_classes <= MOST_LABELS:
        axes.set_xticks(range(num_classes))
    if len(rows) <= MOST_NAMES:
        axes.hlines(np.arange(len(rows) - 1) + 0.5, -0.5, num_classes - 0.5, colors="#e0e0e0", linewidths=0.6)
    ticks = MaxNLocator(nbins=8, integer=True)
    figure.colorbar(image, ax=axes, location="bottom", label="examples", shrink=0.6, aspect=40, pad=0.02, ticks=ticks)


def blues() -> Colormap:
    """From a blue that can be told from white."""
    shades = colormaps["Blues"](np.linspace(0.2, 1, 256))
    return LinearSegmentedColormap.from_list("examples", shades)


def draw_sizes(axes: Axes, rows: Sequence[ClientRow]) -> None:
    """Bars from left to right: train, validation, test."""
    places, start = np.arange(len(rows)), np.zeros(len(rows))
    # Bars of many clients touch, or the gaps between them would make stripes.
    height = 0.8 if len(rows) <= MOST_NAMES else 1.0
    for split, colour in SPLITS.items():
        sizes = np.array([getattr(row, split) for row in rows], dtype=float)
        if sizes.any():
            axes.barh(places, sizes, left=start, height=height, color=colour, label=split)
        start += sizes
    axes.set_xlabel("examples")
    axes.set_title("examples of each client", fontsize=10)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines[["top", "right"]].set_visible(False)


def name_clients(axes: Axes, rows: Sequence[ClientRow]) -> None:
    axes.set_ylabel("client")
    if len(rows) <= MOST_NAMES:
        names = [shortened(row.name, NAME_WIDTH) for row in rows]
        axes.set_yticks(range(len(rows)), names, fontsize=8 if len(rows) <= 40 else 6.5)
