"""Where outcomes are kept: reproductions/PAPER/cells/KEY.json, found by the configuration of their cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from plures.core.errors import RunFolderError
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome, read_outcome
from plures.papers.recipe import Scale

MOST_SEEDS = 100


@dataclass(kw_only=True)
class Store:
    """The outcomes of one paper."""

    folder: Path
    """That of the paper, such as reproductions/pflego."""
    known: dict[str, Outcome | None] = field(default_factory=dict)

    def path(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.json"

    def outcome(self, key: str) -> Outcome | None:
        """What was kept under a key; None: nothing yet."""
        if self.known.get(key) is None:
            path = self.path(key)
            self.known[key] = read_outcome(path) if path.is_file() else None
        return self.known[key]

    def everything(self) -> list[Outcome]:
        return [read_outcome(path) for path in sorted((self.folder / "cells").glob("*.json"))]


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """What a store has at one scale; this is what recipes and claims are shown."""

    store: Store
    scale: Scale

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        """By seed, from 0 on without a gap."""
        found: dict[int, Outcome] = {}
        for seed in range(MOST_SEEDS):
            outcome = self.store.outcome(cell.key(seed))
            if outcome is None:
                break
            found[seed] = outcome
        return found


def check_place(store: Store) -> None:
    """An error before anything runs, not after an hour."""
    try:
        (store.folder / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"Cannot write to {store.folder}: {error.strerror or error}. Choose another folder with --out."
        ) from error
