"""Blocks: pieces of a network's parameters that are kept or dropped together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidConfig, InvalidModel, did_you_mean
from plures.core.layout import laid_like
from plures.parts.layers import NORMS
from plures.parts.scaling import Piece, scaled

Shapes = Mapping[str, tuple[int, ...]]
Cuts = Mapping[str, Sequence[Any]]
"""Of some parameters, the sizes of their pieces in order; they add up to the parameter's size.

A piece may have a label, as [320, "head 0"]: pieces with the same one, of whatever parameters, are one block."""
CutRule = Callable[[Shapes], Cuts]
"""A user's own rule. What it does not name is cut by the paper's rule."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How a network is cut: pieces tile every gated parameter, and each is of one block."""

    pieces: tuple[Piece, ...]
    forced: frozenset[int]
    """Blocks that are always kept: the first piece of every parameter."""
    groups: tuple[int, ...]
    """Of each block: 1 if it is of linear layers, else 0; a capacity is shared out within a group."""

    @cached_property
    def count(self) -> int:
        return len(self.groups)

    @cached_property
    def by_name(self) -> dict[str, list[Piece]]:
        """The pieces of each parameter, in order."""
        found: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.name, []).append(piece)
        return found

    def costs(self, per_entry: Mapping[str, float] | None = None) -> Tensor:
        """What each block costs: its entries, or entries times what one of them costs."""
        totals = [0.0] * self.count
        for name, start, stop, block in self.pieces:
            totals[block] += (stop - start) * (1.0 if per_entry is None else per_entry[name])
        return torch.tensor(totals, dtype=torch.float64)

    def expand(self, name: str, gates: Tensor, like: Tensor) -> Tensor:
        """A parameter with each of its pieces times the gate of its block."""
        flat = scaled(like.reshape(-1), gates, self.by_name[name])
        return laid_like(like, flat.reshape(like.shape))


def cut_first(shapes: Shapes, splits: int, least: float) -> dict[str, list[int]]:
    """The paper's rule: a first piece of floor(size * least), perhaps empty, and the rest in equal pieces."""
    return {name: first_and_equal(math.prod(shape), splits, least) for name, shape in shapes.items()}


def first_and_equal(size: int, splits: int, least: float) -> list[int]:
    first = math.floor(size * least * (1 + 1e-12))
    return [first, *equal_pieces(size - first, max(1, splits - 1))]


def cut_equal(shapes: Shapes, splits: int, least: float) -> dict[str, list[int]]:
    """The authors' rule: equal pieces, the last one perhaps smaller."""
    return {name: equal_pieces(math.prod(shape), splits) for name, shape in shapes.items()}


def equal_pieces(size: int, splits: int) -> list[int]:
    if size == 0:
        return []
    length = math.ceil(size / min(splits, size))
    return [min(length, size - start) for start in range(0, size, length)]


CUTS: dict[str, Callable[[Shapes, int, float], Cuts]] = {"first": cut_first, "equal": cut_equal}


def cut(module: nn.Module, rule: str | Cuts | CutRule, splits: int, least: float) -> Blocks:
    """A network's parameters in blocks; those of norms are left out, and buffers always are."""
    gated = gated_names(module)
    shapes = {name: tuple(value.shape) for name, value in module.named_parameters() if name in gated}
    if rule == "rows":
        return cut_rows(module, shapes, splits, least)
    cuts = CUTS[rule](shapes, splits, least) if isinstance(rule, str) else own_cuts(shapes, rule, splits, least)
    check_cuts(cuts, shapes)
    pieces: list[Piece] = []
    forced: set[int] = set()
    groups: list[int] = []
    labels: dict[str, int] = {}
    for name in shapes:
        ends = pairwise(running_total([size_of(piece) for piece in cuts[name]]))
        for number, (piece, (start, stop)) in enumerate(zip(cuts[name], ends, strict=True)):
            if stop == start:
                continue
            label = None if isinstance(piece, int) else piece[1]
            if label is None and number == 0:
                forced.add(len(groups))
            block = len(groups) if label is None else labels.setdefault(label, len(groups))
            pieces.append(Piece(name, start, stop, block))
            groups += [gated[name]] if block == len(groups) else []
    return Blocks(pieces=tuple(pieces), forced=frozenset(forced), groups=tuple(groups))


def size_of(piece: Any) -> int:
    return int(piece if isinstance(piece, int) else piece[0])


def own_cuts(shapes: Shapes, rule: Cuts | CutRule, splits: int, least: float) -> dict[str, Sequence[int]]:
    """The user's cuts, and the paper's of what these do not name."""
    own = rule(shapes) if callable(rule) else rule
    if not isinstance(own, Mapping):
        raise InvalidConfig(f"The rule that cuts gives {own!r:.80}: give a dict from names to sizes of pieces.")
    unknown = [name for name in own if name not in shapes]
    if unknown:
        raise InvalidConfig(f"The network has no parameter '{unknown[0]}' to cut. {did_you_mean(unknown[0], shapes)}")
    return {**cut_first(shapes, splits, least), **own}


def cut_rows(module: nn.Module, shapes: Shapes, splits: int, least: float) -> Blocks:
    """Blocks of whole rows, which are output units or channels, each with its entries of the bias."""
    pieces: list[Piece] = []
    forced: set[int] = set()
    groups: list[int] = []
    for path, layer in module.named_modules():
        names = [n for n in (f"{path}.weight".lstrip("."), f"{path}.bias".lstrip(".")) if shapes.get(n)]
        if not names:
            continue
        rows = shapes[names[0]][0]
        for number, (start, stop) in enumerate(pairwise(running_total(first_and_equal(rows, splits, least)))):
            if stop == start:
                continue
            if number == 0:
                forced.add(len(groups))
            for name in names:
                width = math.prod(shapes[name][1:])
                pieces.append(Piece(name, start * width, stop * width, len(groups)))
            groups.append(int(isinstance(layer, nn.Linear)))
    covered = {piece.name for piece in pieces}
    if covered != set(shapes):
        raise InvalidModel(
            f"Rows are those of a layer's weight and bias, but {sorted(set(shapes) - covered)} are neither. "
            'Use cut = "first".'
        )
    ordered = sorted(pieces, key=lambda piece: (list(shapes).index(piece.name), piece.start))
    return Blocks(pieces=tuple(ordered), forced=frozenset(forced), groups=tuple(groups))


def gated_names(module: nn.Module) -> dict[str, int]:
    """Every parameter outside of norms, with its group: 1 for those of linear layers, else 0."""
    found: dict[str, int] = {}
    known = {name for name, _ in module.named_parameters()}
    for path, layer in module.named_modules():
        if not isinstance(layer, NORMS):
            for name, _ in layer.named_parameters(path, recurse=False):
                if name in known:
                    found[name] = int(isinstance(layer, nn.Linear))
    if not found:
        raise InvalidModel(f"{type(module).__name__} has no parameters outside of norms: there is nothing to gate.")
    return {name: found[name] for name, _ in module.named_parameters() if name in found}


def check_cuts(cuts: Cuts, shapes: Shapes) -> None:
    """Refuse sizes of pieces that do not tile their parameter."""
    problems = []
    for name, shape in shapes.items():
        sizes, size = cuts[name], math.prod(shape)
        whole = isinstance(sizes, Sequence) and all(is_piece(piece) for piece in sizes)
        if not whole or sum(size_of(piece) for piece in sizes) != size:
            problems.append(
                f"'{name}' has {size} entries, and is to be cut into {sizes!r:.200}: give a list of whole numbers "
                f'that add up to {size}, or of pairs such as [{size}, "head 0"].'
            )
    if problems:
        raise InvalidConfig(problems)


def is_piece(piece: Any) -> bool:
    """A size, or a size and the label of its block."""
    if isinstance(piece, list | tuple):
        return len(piece) == 2 and is_piece(piece[0]) and isinstance(piece[1], str)
    return type(piece) is int and piece >= 0


def running_total(sizes: Sequence[int]) -> list[int]:
    totals = [0]
    for size in sizes:
        totals.append(totals[-1] + size)
    return totals
