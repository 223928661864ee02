"""Memory that a process shares with the ones it forks, and messages whose tensors lie in it."""

from __future__ import annotations

import io
import mmap
import pickle
from typing import Any

import torch
from torch import Tensor

from plures.core.types import ALIGNED

HERE, COMMON, SENT = range(3)
"""Where a tensor of a message lies: in its arena, in common memory, or in the message itself."""


def as_bytes(value: Tensor) -> tuple[bytearray, torch.dtype, tuple[int, ...]]:
    flat = value.detach().contiguous().reshape(-1)
    return bytearray(flat.view(torch.uint8).numpy().tobytes()), value.dtype, tuple(value.shape)


class Arena:
    """Anonymous memory, made before a fork; what one side writes, the other reads."""

    def __init__(self, num_bytes: int) -> None:
        self.memory = mmap.mmap(-1, max(num_bytes, ALIGNED))
        self.used = 0

    def clear(self) -> None:
        self.used = 0

    def put(self, value: Tensor) -> tuple[int, torch.dtype, tuple[int, ...]] | None:
        """Where the tensor lies now; None if there is no room."""
        size = value.numel() * value.element_size()
        if self.used + size > len(self.memory):
            return None
        place = (self.used, value.dtype, tuple(value.shape))
        if size:
            self.view(*place).copy_(value)
        self.used += -(-size // ALIGNED) * ALIGNED
        return place

    def view(self, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """The memory itself as a tensor."""
        count = 1
        for length in shape:
            count *= length
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=start).view(shape)


class _Writer(pickle.Pickler):
    """Puts tensors into an arena, each once, and only their places into the message."""

    def __init__(self, file: io.BytesIO, arena: Arena, known: dict[int, Any]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.arena, self.known = arena, known
        self.kept: list[Tensor] = []
        """So that no number of an object is used again while the message is written."""

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        if id(value) not in self.known:
            self.kept.append(value)
            place = self.arena.put(value.detach())
            self.known[id(value)] = (SENT, as_bytes(value)) if place is None else (HERE, place)
        return self.known[id(value)]


class _Reader(pickle.Unpickler):
    """Finds the tensors of a message where they lie; alike where they were one."""

    def __init__(self, text: bytes, arena: Arena, common: Arena | None, copy: bool) -> None:
        super().__init__(io.BytesIO(text))
        self.arena, self.common, self.copy = arena, common, copy
        self.found: dict[Any, Tensor] = {}

    def persistent_load(self, place: Any) -> Tensor:
        kind, where = place
        if kind == SENT:
            content, dtype, shape = where
            return torch.frombuffer(content, dtype=dtype).view(shape) if content else torch.empty(shape, dtype=dtype)
        if place not in self.found:
            memory = self.common if kind == COMMON and self.common is not None else self.arena
            value = memory.view(*where)
            self.found[place] = value.clone() if self.copy else value
        return self.found[place]


def written(message: Any, arena: Arena, known: dict[int, Any] | None = None) -> bytes:
    """A message whose tensors are in the arena; `known` are places of tensors in common memory, by identity."""
    arena.clear()
    file = io.BytesIO()
    _Writer(file, arena, {} if known is None else dict(known)).dump(message)
    return file.getvalue()


def read(text: bytes, arena: Arena, common: Arena | None = None, *, copy: bool = True) -> Any:
    """The message again; without `copy`, its tensors are the memory itself, good until that is written anew."""
    return _Reader(text, arena, common, copy).load()
