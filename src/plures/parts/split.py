"""Which parameters and buffers of a module are whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from plures.core.errors import InvalidSplit
from plures.core.task import moving_buffers
from plures.core.types import (
    FROZEN,
    PERSONAL,
    PERSONAL_BUFFERS,
    RESET_BUFFERS,
    SHARED,
    SHARED_BUFFERS,
    Params,
    Part,
    Parts,
)
from plures.parts.layers import names_of
from plures.parts.selectors import Selector, as_selector

BufferPolicy = Literal["shared", "personal", "reset"]
BUFFER_PARTS: dict[str, Part] = {"shared": SHARED_BUFFERS, "personal": PERSONAL_BUFFERS, "reset": RESET_BUFFERS}


@dataclass(frozen=True, kw_only=True)
class NamedSplit:
    """Parts by selector; what no selector takes is the rest."""

    rules: Mapping[Part, Selector] = field(default_factory=dict)
    rest: Part = SHARED
    buffers: BufferPolicy | None = None

    def resolve(self, model: nn.Module) -> dict[str, Part]:
        """The part of every parameter and moving buffer: total, and each name once."""
        frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
        parts = dict.fromkeys(names_of(model), self.rest) | dict.fromkeys(frozen, FROZEN)
        owner: dict[str, Part] = {}
        for part, selector in self.rules.items():
            for name in sorted(selector(model) - frozen):
                if name in owner:
                    raise InvalidSplit(f"'{name}' is in two parts, '{owner[name]}' and '{part}'. Give it to one.")
                owner[name] = part
        return parts | owner | self._buffer_parts(model)

    def _buffer_parts(self, model: nn.Module) -> dict[str, Part]:
        buffers = moving_buffers(model)
        if not buffers:
            return {}
        if self.buffers is None:
            raise InvalidSplit(policy_missing(model, list(buffers)))
        return dict.fromkeys(buffers, BUFFER_PARTS[self.buffers])

    def table(self, model: nn.Module) -> str:
        """Each parameter with its part and size, and the totals, for a terminal."""
        return split_table(model, self.resolve(model))


def split(
    personal: Selector | str | Sequence[str] = (), *, buffers: BufferPolicy | None = None, **parts: Selector
) -> NamedSplit:
    """The usual split: a personal part, perhaps further named parts, and a shared rest."""
    if buffers is not None and buffers not in BUFFER_PARTS:
        raise InvalidSplit(f"The buffer policy '{buffers}' is unknown. Use 'shared', 'personal' or 'reset'.")
    return NamedSplit(rules={PERSONAL: as_selector(personal)} | parts, buffers=buffers)


def policy_missing(model: nn.Module, buffers: Sequence[str]) -> str:
    return (
        f"{type(model).__name__} keeps running statistics ({buffers[0]}, {len(buffers)} buffers in all) and the split "
        "does not say whose they are. Choose a policy: buffers='shared' averages them over the cohort with the "
        "shared part; 'personal' leaves each client its own (as FedBN does); 'reset' forgets them after each visit "
        'and estimates them from the client\'s training data before evaluation. In a file: [split] buffers = "shared".'
    )


def partition(params: Params, parts: Parts) -> dict[Part, Params]:
    """The parameters of each part; every name is in exactly one."""
    groups: dict[Part, Params] = {part: {} for part in dict.fromkeys(parts[name] for name in params)}
    for name, value in params.items():
        groups[parts[name]][name] = value
    return groups


def combine(groups: Mapping[Part, Params]) -> Params:
    """The inverse of `partition`; a name given twice is an error."""
    params: Params = {}
    for part, group in groups.items():
        for name, value in group.items():
            if name in params:
                raise InvalidSplit(f"'{name}' is in part '{part}' and in another one.")
            params[name] = value
    return params


def split_table(model: nn.Module, parts: Parts) -> str:
    """Each parameter with its part, shape and size, and the share of each part; for people to read."""
    values = dict(model.named_parameters()) | moving_buffers(model)
    rows = [(name, parts[name], "x".join(map(str, v.shape)) or "1", v.numel()) for name, v in values.items()]
    width = min(35, max([len("parameter"), *(len(name) for name, *_ in rows)]))
    lines = [f"{'parameter':<{width}}  {'part':<14}  {'shape':>14}  {'values':>11}"]
    for name, part, shape, size in rows:
        shown = name if len(name) <= width else name[: width // 2 - 1] + ".." + name[-(width - width // 2 - 1) :]
        lines.append(f"{shown:<{width}}  {part:<14}  {shape:>14}  {size:>11,}")
    total = sum(size for *_, size in rows)
    for part in dict.fromkeys(part for _, part, *_ in rows):
        size = sum(size for _, row_part, _, size in rows if row_part == part)
        lines.append(f"{'total ' + part:<{width + 16}}  {size / total:>14.1%}  {size:>11,}")
    return "\n".join(lines)
