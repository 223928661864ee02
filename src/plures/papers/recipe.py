"""A paper as recipes: one for each table and figure, claims about them, and directions that are sure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from plures.papers.blocks import Block, Verdict
from plures.papers.cells import Cell
from plures.papers.outcomes import Outcome

Scale = Literal["micro", "small", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)


class Found(Protocol):
    """What has been run at one scale."""

    @property
    def scale(self) -> Scale: ...

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        """By seed; empty where a cell was not run."""


def nothing(scale: Scale) -> list[Cell]:
    """The cells of a recipe that needs no training."""
    return []


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table or figure of a paper."""

    name: str
    """Such as table-1."""
    title: str
    """What it shows, in a line."""
    cells: Callable[[Scale], Sequence[Cell]] = nothing
    """What must run; cells that other recipes have too run once."""
    show: Callable[[Found], list[Block]]
    """Measured beside published; asked for at every scale at which something has run."""
    settings: Mapping[Scale, str] = field(default_factory=dict)
    """What runs at a scale, in a line. Closed forms have none: they are the same at each."""
    without: Mapping[Scale, str] = field(default_factory=dict)
    """Why a scale has no cells, or was not run here."""
    differs: str = ""
    """A paragraph: why measured and published numbers differ."""

    @property
    def closed_form(self) -> bool:
        return self.cells is nothing


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A headline of a paper, as METHODS of its authors would put it."""

    name: str
    """H1, H2, ..."""
    item: str
    """The table or figure with its numbers: the name of a recipe."""
    text: str
    judge: Callable[[Found], Verdict | None]
    """None where too little has run at this scale."""


@dataclass(frozen=True, kw_only=True)
class Direction:
    """Something so sure at the scale micro that `plures paper check` fails without it."""

    name: str
    text: str
    cells: Sequence[Cell]
    holds: Callable[[Found], tuple[bool, str]]
    """Whether, and the numbers."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """All that is rerun of a paper."""

    name: str
    title: str
    citation: str
    recipes: Sequence[Recipe]
    claims: Sequence[Claim] = ()
    directions: Sequence[Direction] = ()
    data: Sequence[str] = ()
    """Data sets that its recipes need."""
    slips: Sequence[str] = ()
    """Where it contradicts itself, and what is taken here."""

    def recipe(self, name: str) -> Recipe:
        return next(recipe for recipe in self.recipes if recipe.name == name)
