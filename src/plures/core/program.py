"""A method bound to its networks: whose each parameter is, and what everybody starts from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidModel
from plures.core.method import Method, View
from plures.core.seeds import generator, global_draws
from plures.core.task import Augment, Loss, Task
from plures.core.types import (
    CONSTANT_BUFFERS,
    PERSONAL_BUFFERS,
    Params,
    Part,
    Parts,
    is_buffer,
    is_constant,
    select,
    stays,
    travels,
)

MODULES_KEPT = 64
"""Networks kept in memory when clients have architectures of their own; others are built again on demand."""


class Networks(Protocol):
    """Which client has which network: clients with the same key have the same architecture."""

    def key(self, client: int) -> Hashable: ...

    def build(self, key: Hashable) -> nn.Module:
        """The network of that key; initial values come from torch's global generator, which the caller has keyed."""


@dataclass(frozen=True, kw_only=True)
class OneNetwork:
    """Every client has the same architecture."""

    module: nn.Module
    alike: bool = True

    def key(self, client: int) -> Hashable:
        return None

    def build(self, key: Hashable) -> nn.Module:
        return self.module


@dataclass(frozen=True, kw_only=True)
class NetworkPerClient:
    """Clients may differ in the architecture of their personal part."""

    make: Callable[[Hashable], nn.Module]
    key_of: Callable[[int], Hashable]
    alike: bool = False
    """Whether all clients have the same key after all."""

    def key(self, client: int) -> Hashable:
        return self.key_of(client)

    def build(self, key: Hashable) -> nn.Module:
        return self.make(key)


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A method on one architecture."""

    task: Task
    parts: Parts
    values: Params
    """Initial value of every name."""

    statistics: frozenset[str] = frozenset()
    """Names that layers write into as they run."""

    def names(self, *parts: Part) -> list[str]:
        return [name for name, part in self.parts.items() if part in parts]

    def picked(self, accept: Callable[[Part], bool]) -> Params:
        return select(self.values, self.parts, accept)

    def predict(self, view: View, params: Params, inputs: Tensor) -> Tensor:
        return self.task.output(view(params, inputs), inputs)


class Program:
    """Everything that stays the same during a run, apart from data."""

    def __init__(
        self,
        method: Method,
        networks: Networks,
        *,
        loss: Loss,
        seed: int,
        device: str = "cpu",
        augment: Augment | None = None,
    ) -> None:
        self.method = method
        self.networks = networks
        self.loss = loss
        self.augment = augment
        self.seed = seed
        self.device = torch.device(device)
        self._bindings: OrderedDict[Hashable, Binding] = OrderedDict()

    def binding(self, client: int) -> Binding:
        key = self.networks.key(client)
        if key not in self._bindings:
            with global_draws(self.seed, "model"):
                module = self.networks.build(key)
            self._bindings[key] = self._bind(module)
            if len(self._bindings) > MODULES_KEPT:
                self._bindings.popitem(last=False)
        self._bindings.move_to_end(key)
        return self._bindings[key]

    def _bind(self, module: nn.Module) -> Binding:
        task = Task(module, self.loss, self.device, self.augment)
        parts: dict[str, Part] = dict.fromkeys(task.buffers, CONSTANT_BUFFERS) | self.method.split.resolve(task.module)
        values = task.parameters | task.buffers
        with global_draws(self.seed, "extend"):
            extension = self.method.extend(task.parameters, parts)
        taken = [name for added in extension.values() for name in added if name in task.buffers]
        if taken:
            raise InvalidModel(f"the model has a buffer '{taken[0]}', a name the method needs. Rename that buffer.")
        for part, added in extension.items():
            parts |= dict.fromkeys(added, part)
            values = values | {name: value.detach().to(self.device) for name, value in added.items()}
        statistics = frozenset(name for name, part in parts.items() if is_buffer(part))
        return Binding(task=task, parts=parts, values=values, statistics=statistics)

    def initial_shared(self) -> Params:
        """What the server holds before round 1; the first client's network is the reference."""
        return self.binding(0).picked(travels)

    def initial_state(self, client: int, shared: Params | None = None) -> Params:
        """What a client holds before its first visit, if that is now; without `shared`, in round 1."""
        binding = self.binding(client)
        kept = binding.picked(lambda part: stays(part) and part != PERSONAL_BUFFERS)
        buffers = binding.picked(lambda part: part == PERSONAL_BUFFERS)
        if not kept:
            return buffers
        received = self.method.download(self.initial_shared() if shared is None else shared, kept)
        return self.method.start(kept, received, generator(self.seed, "start", client)) | buffers

    def has_global_model(self) -> bool:
        """Whether the shared part alone is a whole network."""
        binding = self.binding(0)
        own = {binding.parts[name] for name in binding.task.parameters}
        if any(is_constant(part) for part in own) and not getattr(self.networks, "alike", False):
            return False  # what nobody trains may differ between architectures
        return all(not stays(binding.parts[name]) for name in binding.task.names)
