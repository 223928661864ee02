"""A federation in numbers and letters: who has how much of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plures.data.client import classes_in, to_original
from plures.data.federation import Federation

BAR_WIDTH = 14
MOST_ROWS = 24
"""A federation with more clients is shown by its quartiles, and by the first and last of them."""
ENDS = 5
MOST_STEPS = 14
"""Classes that fit beside the bar, one letter each."""
STEPS = "·▁▂▃▄▅▆▇█"
QUARTILES = {"least": 0, "25 %": 25, "median": 50, "75 %": 75, "most": 100}


@dataclass(frozen=True, kw_only=True)
class ClientRow:
    """One client: how many examples in each split, and how many to train on in each class."""

    name: str
    train: int
    validation: int
    test: int
    classes: dict[int, int]
    """Training examples by original label, of all classes that the client has; empty if targets are no classes."""


def rows_of(federation: Federation) -> list[ClientRow]:
    """One row per client; each is read once and not kept."""
    return [row_of(federation, client) for client in range(federation.num_clients)]


def row_of(federation: Federation, client: int) -> ClientRow:
    data = federation.population.load(client)
    targets = data.train.targets
    if federation.label_space == "local":
        targets = to_original(targets, data.classes)
    counts: dict[int, int] = {}
    if targets.ndim == 1 and not targets.is_floating_point():
        counts = {label: int((targets == label).sum()) for label in data.classes or classes_in(targets)}
    return ClientRow(
        name=federation.name(client),
        train=data.train.num_examples,
        validation=data.validation.num_examples,
        test=data.test.num_examples,
        classes=counts,
    )


def counts_of(rows: Sequence[ClientRow], num_classes: int) -> NDArray[np.int64]:
    """Training examples, clients by classes."""
    counts = np.zeros((len(rows), num_classes), dtype=np.int64)
    for client, row in enumerate(rows):
        counts[client, list(row.classes)] = list(row.classes.values())
    return counts


def text_of(rows: Sequence[ClientRow], num_classes: int) -> str:
    """A table that fits 80 columns."""
    by_class = num_classes <= MOST_STEPS and any(row.classes for row in rows)
    width = 16 if by_class else 27
    head = f"{'client':<{width}} {'train':>7} {'valid.':>7} {'test':>7} {'classes':>7}  training examples"
    largest = max(row.train for row in rows)
    shown = [f"{line_of(row, largest, width)} {steps_of(row, num_classes) if by_class else ''}" for row in rows]
    if len(shown) > MOST_ROWS:
        left_out = f"... {len(shown) - 2 * ENDS:,} more ..."
        shown = [*shown[:ENDS], left_out, *shown[-ENDS:], "", *quartile_lines(rows, width)]
    lines = [head + (", by class" if by_class else ""), *shown, "", total_line(rows, width)]
    return "\n".join(line.rstrip() for line in lines)


def line_of(row: ClientRow, largest: int, width: int) -> str:
    bar = "█" * max(1, round(BAR_WIDTH * row.train / max(1, largest)))
    return f"{shortened(row.name, width):<{width}} {numbers_of(*sizes_of(row))}  {bar:<{BAR_WIDTH}}"


def sizes_of(row: ClientRow) -> tuple[int, int, int, int]:
    return row.train, row.validation, row.test, len(row.classes)


def numbers_of(train: int, validation: int, test: int, classes: int) -> str:
    """Four columns; targets that are no classes have a dash."""
    return f"{train:>7,} {validation:>7,} {test:>7,} {f'{classes:,}' if classes else '-':>7}"


def steps_of(row: ClientRow, num_classes: int) -> str:
    """For each class a letter as high as the client's share of it; its largest class is full."""
    most = max(row.classes.values(), default=0) or 1
    heights = [row.classes.get(label, 0) / most for label in range(num_classes)]
    return "".join(STEPS[int(np.ceil(height * (len(STEPS) - 1)))] for height in heights)


def quartile_lines(rows: Sequence[ClientRow], width: int) -> list[str]:
    sizes = np.array([sizes_of(row) for row in rows])
    found = np.percentile(sizes, list(QUARTILES.values()), axis=0, method="nearest")
    return [f"{name:<{width}} {numbers_of(*found[place].tolist())}" for place, name in enumerate(QUARTILES)]


def total_line(rows: Sequence[ClientRow], width: int) -> str:
    train, validation, test = (sum(getattr(row, split) for row in rows) for split in ("train", "validation", "test"))
    classes = len(set().union(*(row.classes for row in rows)))
    total = f"{len(rows):,} client" + ("s" if len(rows) > 1 else "")
    return f"{total:<{width}} {numbers_of(train, validation, test, classes)}"


def shortened(name: str, width: int) -> str:
    """The beginning and the end of a name that is too long."""
    tail = (width - 1) // 2
    return name if len(name) <= width else f"{name[: width - 1 - tail]}…{name[-tail:]}"
