"""Which items have been run, at which scale, with how many seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plures.papers.recipe import SCALES, Paper, Recipe, Scale
from plures.papers.store import Shelf, Store

WAITING = "not run yet"


@dataclass(frozen=True, kw_only=True)
class State:
    """Of one item at one scale."""

    cells: int
    done: int
    """Cells that have run under one seed at least."""
    seeds: int
    """Under which all cells have run; 0 where some have not run at all."""
    most_seeds: int
    """Under which any cell has run."""
    made: Sequence[tuple[str, str, str]]
    """Date, commit and machine of every run."""

    @property
    def word(self) -> str:
        if not self.cells:
            return "-"
        if not self.done:
            return "not run"
        if self.done < self.cells:
            return f"{self.done} of {self.cells}"
        return f"{self.seeds} seed{'s'[: self.seeds > 1]}"


def state_of(recipe: Recipe, scale: Scale, store: Store) -> State:
    cells = recipe.cells(scale)
    shelf = Shelf(store=store, scale=scale)
    seeds = [shelf.outcomes(cell) for cell in cells]
    made = [outcome.made for one in seeds for outcome in one.values()]
    return State(
        cells=len(cells),
        done=sum(bool(one) for one in seeds),
        seeds=min(map(len, seeds), default=0),
        most_seeds=max(map(len, seeds), default=0),
        made=[(one.date, one.commit, one.machine) for one in made],
    )


def item_states(paper: Paper, store: Store) -> list[dict[str, Any]]:
    """For each item what has been run, and why the rest has not."""
    told = []
    for recipe in paper.recipes:
        states: dict[str, str] = {
            scale: "closed form" if recipe.closed_form else state_of(recipe, scale, store).word for scale in SCALES
        }
        told.append(
            {"item": f"{paper.name}/{recipe.name}", "title": recipe.title, **states, "why": reasons(recipe, states)}
        )
    return told


def reasons(recipe: Recipe, states: Mapping[str, str]) -> dict[Scale, str]:
    """By scale, why it was not run, or not all of it."""
    waiting: dict[Scale, str] = {
        scale: WAITING for scale in SCALES if states[scale] == "not run" and scale not in recipe.without
    }
    return {**waiting, **recipe.without}
