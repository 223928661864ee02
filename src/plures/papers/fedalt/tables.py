"""Tables 3, 4 (with 9), 10, 11 and 12: accuracies, and what fine-tuning at the end adds to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plures.papers.blocks import Block, Entry, Grid
from plures.papers.cells import Cell
from plures.papers.fedalt.settings import (
    DITTO,
    FEDALT,
    FEDSIM,
    FEDSIM_2,
    FINETUNE,
    FT,
    PFEDME,
    TRAINED_ON,
    cell_of,
    cells_of,
    key,
)
from plures.papers.fedalt.tasks import PAPER_TASKS, PARTS, STACKOVERFLOW, UNIPEN, shown
from plures.papers.fedalt.words import DIFFERS, SETTINGS, WITHOUT, stands_for
from plures.papers.published import load
from plures.papers.reading import Read, entry, last
from plures.papers.recipe import Found, Recipe, Scale

ALL_TASKS = (*PAPER_TASKS, UNIPEN)
TUNED, BEFORE, FIRST, SHARED = (
    last(f"{model}/test/accuracy") for model in ("finetuned", "personal", "stage_a", "global")
)
FEDAVG = "FedAvg"

KeyOf = Callable[[str, str], str]
"""From method and part to the name of a run."""


def gain(outcome: Any) -> float:
    """What stage (c) adds, in points."""
    return TUNED(outcome) - BEFORE(outcome)


def stateless_key(method: str, part: str) -> str:
    return key(method, part, stateless=method != FT)


TABLE_3: dict[str, tuple[str, Read]] = {
    FEDAVG: (FINETUNE, FIRST),
    TRAINED_ON: (TRAINED_ON, SHARED),
    FINETUNE: (FINETUNE, TUNED),
    DITTO: (DITTO, TUNED),
    PFEDME: (PFEDME, TUNED),
    **{part: (key(FEDALT, part), TUNED) for part in PARTS},
}
"""By column: the run, and what is read of it."""


def show_3(found: Found) -> list[Block]:
    published = load("fedalt")["table-3"]["accuracy"]
    rows: dict[str, list[Entry | None]] = {}
    for task in ALL_TASKS:
        rows[shown(task, found.scale)] = [
            place(found, cell_of(found.scale, task, name), read, published.get(task, {}).get(column))
            for column, (name, read) in TABLE_3.items()
        ]
    note = f"Test accuracy in percent; the parts are FedAlt's. {stands_for(found.scale)}"
    return [Grid(title="Partial and full personalisation", columns=list(TABLE_3), rows=rows, note=note)]


def place(found: Found, cell: Cell | None, read: Read, published: float | None) -> Entry | None:
    """Nothing where a number is neither asked for nor published."""
    return None if cell is None and published is None else entry(found, cell, read, published)


def grids(
    found: Found,
    item: str,
    title: str,
    methods: Sequence[str],
    key_of: KeyOf,
    read: Read,
    tasks: Sequence[str],
    note: str,
) -> list[Block]:
    """One table for each task: parts by methods."""
    published: Mapping[str, Any] = load("fedalt")[item]
    blocks: list[Block] = []
    for task in tasks:
        rows: dict[str, list[Entry | None]] = {
            part: [
                place(
                    found,
                    cell_of(found.scale, task, key_of(method, part)),
                    read,
                    published.get(task, {}).get(part, {}).get(method),
                )
                for method in methods
            ]
            for part in PARTS
        }
        if any(one is not None for row in rows.values() for one in row):
            named = f"{title}: {shown(task, found.scale)}"
            blocks.append(Grid(title=named, corner="personal part", columns=methods, rows=rows, note=note))
    return blocks


def show_4(found: Found) -> list[Block]:
    note = (
        f"Test accuracy in percent. FedAlt makes two passes over the data in a round, FedSim one. "
        f"{stands_for(found.scale)}"
    )
    return grids(found, "table-4", "FedAlt and FedSim", (FT, FEDALT, FEDSIM, FEDSIM_2), key, TUNED, ALL_TASKS, note)


def show_unipen(found: Found) -> list[Block]:
    methods = (FT, FEDALT, FEDSIM, FEDSIM_2)
    note = "Test accuracy in percent; nothing is published for these data."
    return grids(found, "table-4", "By writer", methods, key, TUNED, (UNIPEN,), note)


def show_10(found: Found) -> list[Block]:
    note = f"Points that stage (c) adds. {stands_for(found.scale)}"
    return grids(found, "table-10", "Gain of fine-tuning", (FEDALT, FEDSIM), key, gain, ALL_TASKS, note)


def show_11(found: Found) -> list[Block]:
    note = f"Test accuracy in percent; clients forget their part after each visit. {stands_for(found.scale)}"
    methods = (FT, FEDALT, FEDSIM)
    return grids(found, "table-11", "Without state", methods, stateless_key, TUNED, ALL_TASKS, note)


def show_12(found: Found) -> list[Block]:
    title, note = "Gain of fine-tuning, without state", f"Points that stage (c) adds. {stands_for(found.scale)}"
    return grids(found, "table-12", title, (FEDALT, FEDSIM), stateless_key, gain, ALL_TASKS, note)


NEXT_WORD: dict[str, tuple[str, Read, Read]] = {
    FEDAVG: (FINETUNE, FIRST, last("stage_a/test/loss", times=1)),
    FINETUNE: (FINETUNE, TUNED, last("finetuned/test/loss", times=1)),
    **{part: (key(FEDALT, part), TUNED, last("finetuned/test/loss", times=1)) for part in PARTS},
}


def show_next_word(found: Found) -> list[Block]:
    published = load("fedalt")["table-3"]["accuracy"][STACKOVERFLOW]
    rows: dict[str, list[Entry | None]] = {}
    for row, (name, accuracy, loss) in NEXT_WORD.items():
        cell = cell_of(found.scale, STACKOVERFLOW, name)
        rows[row] = [entry(found, cell, accuracy, published[row]), entry(found, cell, loss)]
    note = "Special tokens are left out of the accuracy. The input and output layers are the first and the last block."
    title = "The next word: " + stands_for(found.scale).split(f"{STACKOVERFLOW}: ")[-1]
    return [Grid(title=title, corner="personal part", columns=["accuracy, %", "loss"], rows=rows, note=note)]


def cells_for(tasks: Sequence[str], names: Sequence[str]) -> Callable[[Scale], list[Cell]]:
    return lambda scale: cells_of(scale, tasks, names)


STATEFUL = [key(method, part) for part in PARTS for method in (FT, FEDALT, FEDSIM, FEDSIM_2)]
STATELESS_RUNS = [stateless_key(method, part) for part in PARTS for method in (FT, FEDALT, FEDSIM)]


def recipe(
    name: str, title: str, show: Callable[[Found], list[Block]], tasks: Sequence[str], names: Sequence[str]
) -> Recipe:
    cells = cells_for(tasks, list(dict.fromkeys(names)))
    return Recipe(name=name, title=title, cells=cells, show=show, settings=SETTINGS, without=WITHOUT, differs=DIFFERS)


RECIPES = [
    recipe(
        "table-3", "partial against full personalisation", show_3, ALL_TASKS, [name for name, _ in TABLE_3.values()]
    ),
    recipe("table-4", "FedAlt, FedSim and partial fine-tuning (also Table 9)", show_4, ALL_TASKS, STATEFUL),
    recipe(
        "table-10",
        "what fine-tuning adds at the end",
        show_10,
        ALL_TASKS,
        [key(method, part) for part in PARTS for method in (FEDALT, FEDSIM)],
    ),
    recipe("table-11", "the same for clients without state", show_11, ALL_TASKS, STATELESS_RUNS),
    recipe(
        "table-12",
        "what fine-tuning adds for clients without state",
        show_12,
        ALL_TASKS,
        [name for name in STATELESS_RUNS if not name.startswith(FT)],
    ),
]
OWN_RECIPES = [
    Recipe(
        name="unipen",
        title="personal parts on characters by writer, natural clients (not in the paper)",
        cells=cells_for((UNIPEN,), STATEFUL),
        show=show_unipen,
        settings={scale: SETTINGS[scale] for scale in ("micro", "small")},
        without={"full": "the paper has no such data"},
        differs="UNIPEN characters (62 classes) by their writers stand in for EMNIST by writer; nothing is published "
        "for them.",
    ),
    Recipe(
        name="next-word",
        title="input block, output block and adapters for the next word",
        cells=cells_for((STACKOVERFLOW,), [name for name, *_ in NEXT_WORD.values()]),
        show=show_next_word,
        settings=SETTINGS,
        without=WITHOUT,
        differs="Stack Exchange has a thousandth of StackOverflow's text, and the transformer is smaller and trained "
        "for fewer rounds: it predicts little more than frequent words, and accuracies are far below the published "
        "ones.",
    ),
]
