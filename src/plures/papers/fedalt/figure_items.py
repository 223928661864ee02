"""Figures 3 to 10 as recipes: which runs each of them shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plures.papers.blocks import Block
from plures.papers.cells import Cell
from plures.papers.fedalt import figures as f
from plures.papers.fedalt.settings import (
    DITTO,
    DROPOUT,
    FEDALT,
    FINETUNE,
    L2,
    PFEDME,
    cells_of,
    dropout_key,
    key,
    l2_key,
)
from plures.papers.fedalt.tables import ALL_TASKS
from plures.papers.fedalt.tasks import ADAPTER, OUTPUT, PARTS
from plures.papers.fedalt.words import DIFFERS, SETTINGS, WITHOUT
from plures.papers.recipe import Found, Recipe, Scale


def of_devices(scale: Scale, names: Sequence[str]) -> list[Cell]:
    return cells_of(scale, (f.device_task(scale),), names)


FULLS = (FINETUNE, DITTO, PFEDME)
BOTH = (*FULLS, key(FEDALT, OUTPUT))


def regularised(scale: Scale) -> list[str]:
    pulled = [key(FEDALT, ADAPTER), *map(l2_key, L2[scale])]
    return [*pulled, key(FEDALT, OUTPUT), *map(dropout_key, DROPOUT[scale])]


def recipe(name: str, title: str, show: Callable[[Found], list[Block]], cells: Callable[[Scale], list[Cell]]) -> Recipe:
    return Recipe(name=name, title=title, cells=cells, show=show, settings=SETTINGS, without=WITHOUT, differs=DIFFERS)


RECIPES = [
    recipe(
        "figure-3",
        "gain over the number of personal parameters",
        f.show_3,
        lambda scale: cells_of(scale, ALL_TASKS, [FINETUNE, *(key(FEDALT, part) for part in PARTS)]),
    ),
    recipe(
        "figure-4",
        "change of each client by full and partial personalisation",
        f.show_4,
        lambda scale: of_devices(scale, (FINETUNE, key(FEDALT, OUTPUT))),
    ),
    recipe("figure-5", "training examples of clients", f.show_5, lambda scale: cells_of(scale, ALL_TASKS, [FINETUNE])),
    recipe(
        "figure-6",
        "distribution of the changes, also with L2 and dropout",
        f.show_6,
        lambda scale: of_devices(scale, [*BOTH, *regularised(scale)]),
    ),
    recipe("figure-7", "change of each client, all methods", f.show_7, lambda scale: of_devices(scale, BOTH)),
    recipe(
        "figure-8",
        "change of each client on a second image task",
        f.show_8,
        lambda scale: cells_of(scale, (f.second_task(scale),), [*FULLS, key(FEDALT, ADAPTER)]),
    ),
    recipe(
        "figure-9",
        "change of each client under L2 and dropout",
        f.show_9,
        lambda scale: of_devices(scale, regularised(scale)),
    ),
    recipe("figure-10", "clients sorted by their change, over seeds", f.show_10, lambda scale: of_devices(scale, BOTH)),
]
