"""A method bound to its networks: whose each parameter is, and what everybody starts from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidModel
from plures.core.method import Capacity, Method, View
from plures.core.networks import Bare, Network, Networks, no_example
from plures.core.seeds import global_draws
from plures.core.task import Augment, Loss, Task
from plures.core.types import (
    CONSTANT_BUFFERS,
    PERSONAL_BUFFERS,
    Params,
    Part,
    Parts,
    is_buffer,
    is_constant,
    is_known,
    select,
    stays,
    travels,
)
from plures.core.visit import Beginning
from plures.core.wire import Uncoded, Wire

if TYPE_CHECKING:
    from plures.core.problem import Stepping

MODULES_KEPT = 64
"""Networks kept in memory when clients have architectures of their own; others are built again on demand."""
SIZES_KEPT = 1024
"""Capacities whose sizes are kept in memory."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A method on one architecture."""

    task: Task
    parts: Parts
    values: Params
    """Initial value of every name."""

    network: Network
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
        wire: Wire | None = None,
        capacity_of: Callable[[int], float] | None = None,
        example: Callable[[], Tensor] | None = None,
        num_clients: int | None = None,
    ) -> None:
        self.method = method
        self.networks = networks
        self.loss = loss
        self.augment = augment
        self.seed = seed
        self.device = torch.device(device)
        self.wire: Wire = wire or Uncoded()
        self.example = example or no_example
        self.num_clients = num_clients
        self.capacity_of = capacity_of
        self.stepping: Stepping | None = None
        """How work outside of rounds, fine-tuning and newcomers, takes its steps; None: plainly."""
        self.shows_trained = True
        """Whether anybody looks at models right after their training; if not, processes need not hand them over."""
        self._sizes: dict[Hashable, dict[str, int]] = {}
        self._bindings: OrderedDict[Hashable, Binding] = OrderedDict()
        self._travelling: Params = {}

    def binding(self, client: int) -> Binding:
        key = self.networks.key(client)
        if key not in self._bindings:
            self._bindings[key] = self._sharing(key, self._bind(self._module(key)))
            if len(self._bindings) > MODULES_KEPT:
                self._bindings.popitem(last=False)
        self._bindings.move_to_end(key)
        return self._bindings[key]

    def _sharing(self, key: Hashable, bound: Binding) -> Binding:
        """Architectures hold what travels in common with the first client's: a hypernetwork may be large."""
        if key == self.networks.key(0):
            self._travelling = bound.picked(travels)
        like = {n: v for n, v in self._travelling.items() if n in bound.values and v.shape == bound.values[n].shape}
        return replace(bound, values=bound.values | like)

    def _module(self, key: Hashable) -> nn.Module:
        with global_draws(self.seed, "model"):
            module = self.networks.build(key)
        if self.method.wrap is None:
            return module

        def another(number: int) -> nn.Module:
            with global_draws(self.seed, "model", number):
                return self.networks.another(key)

        with global_draws(self.seed, "wrap"):
            return self.method.wrap(Bare(module=module, another=another, example=self.example))

    def _bind(self, module: nn.Module) -> Binding:
        task = Task(module, self.loss, self.device, self.augment)
        parts: dict[str, Part] = dict.fromkeys(task.buffers, CONSTANT_BUFFERS) | self.method.split.resolve(task.module)
        values = task.parameters | task.buffers
        network = Network(
            module=task.module,
            params=task.parameters,
            parts=dict(parts),
            make_example=self.example,
            num_clients=self.num_clients,
        )
        with global_draws(self.seed, "extend"):
            extension = self.method.extend(network)
        taken = [name for added in extension.values() for name in added if name in task.buffers]
        if taken:
            raise InvalidModel(f"the model has a buffer '{taken[0]}', a name the method needs. Rename that buffer.")
        for part, added in extension.items():
            parts |= dict.fromkeys(added, part)
            values = values | {name: value.detach().to(self.device) for name, value in added.items()}
        statistics = frozenset(name for name, part in parts.items() if is_buffer(part))
        return Binding(task=task, parts=parts, values=values, network=network, statistics=statistics)

    def capacity(self, client: int) -> float:
        """What a client can afford, in the unit of the method."""
        if self.capacity_of is not None:
            return self.capacity_of(client)
        return 1.0 if self.method.capacity is None else self.method.capacity.usual

    def sizes(self, client: int) -> Mapping[str, int]:
        """How many coordinates of each parameter a client may use; of a method without capacities, all of them."""
        whole = {name: value.numel() for name, value in self.binding(client).task.parameters.items()}
        return whole if self.method.capacity is None else whole | self._limited(client, self.method.capacity)

    def governed(self, client: int) -> list[str]:
        """Names of the parameters that a client's capacity is about; of a method without capacities, all."""
        if self.method.capacity is None:
            return list(self.binding(client).task.parameters)
        return list(self._limited(client, self.method.capacity))

    def _limited(self, client: int, rule: Capacity) -> dict[str, int]:
        """Sizes of the parameters that a client's capacity is about; kept, for slices of large networks take time."""
        key = (self.networks.key(client), self.capacity(client))
        if key not in self._sizes:
            if len(self._sizes) >= SIZES_KEPT:
                self._sizes.clear()
            self._sizes[key] = dict(rule.sizes(self.binding(client).network, self.capacity(client)))
        return self._sizes[key]

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
        known = select(kept, binding.parts, is_known)
        received = self.method.download(self.initial_shared() if shared is None else shared, known)
        beginning = Beginning(
            state=kept,
            received=received.values,
            network=binding.network,
            capacity=self.capacity(client),
            seed=self.seed,
            client=client,
        )
        return self.method.start(beginning) | buffers

    def has_global_model(self) -> bool:
        """Whether the shared part alone is a whole network."""
        binding = self.binding(0)
        own = {binding.parts[name] for name in binding.task.parameters}
        if any(is_constant(part) for part in own) and not getattr(self.networks, "alike", False):
            return False  # what nobody trains may differ between architectures
        return all(not stays(binding.parts[name]) for name in binding.task.names)
