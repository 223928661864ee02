"""Which client has which network, and a network as a method finds it before anybody has trained it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from plures.core.errors import InvalidConfig
from plures.core.types import Params, Parts


class Networks(Protocol):
    """Which client has which network: clients with the same key have the same architecture."""

    def key(self, client: int) -> Hashable: ...

    def build(self, key: Hashable) -> nn.Module:
        """The network of that key; initial values come from torch's global generator, which the caller has keyed."""

    def another(self, key: Hashable) -> nn.Module:
        """One more of that key, with initial values of its own if it can have some."""


@dataclass(frozen=True, kw_only=True)
class OneNetwork:
    """Every client has the same architecture."""

    module: nn.Module
    make: Callable[[], nn.Module] | None = None
    """Makes it anew with other initial values; None: its layers draw theirs again."""
    alike: bool = True

    def key(self, client: int) -> Hashable:
        return None

    def build(self, key: Hashable) -> nn.Module:
        return self.module

    def another(self, key: Hashable) -> nn.Module:
        return redrawn(self.module) if self.make is None else self.make()


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

    def another(self, key: Hashable) -> nn.Module:
        return self.make(key)


def redrawn(module: nn.Module) -> nn.Module:
    """A copy whose layers have drawn their initial values again, as far as they can; what is frozen stays.

    In single precision whatever the network's own: torch draws other numbers in double precision.
    """
    drawn, network = copy.deepcopy(module).float(), copy.deepcopy(module)
    for layer in drawn.modules():
        draw = getattr(layer, "reset_parameters", None)
        if callable(draw):
            draw()
    fresh = dict(drawn.named_parameters())
    with torch.no_grad():
        for name, value in network.named_parameters():
            if value.requires_grad:
                value.copy_(fresh[name])
    return network


def no_example() -> Tensor:
    raise InvalidConfig("This method needs to see an example of the inputs: give Program(..., example=...).")


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A network as a method finds it, before anybody has trained it."""

    module: nn.Module
    params: Params
    """The module's own parameters."""
    parts: Parts
    """Whose each of them is, by the method's split."""
    make_example: Callable[[], Tensor] = no_example
    """Makes `example`, for those who ask."""
    num_clients: int | None = None
    """Of the population, where that is known."""

    @cached_property
    def example(self) -> Tensor:
        """Inputs as the network takes them, of one example."""
        return self.make_example()


@dataclass(frozen=True, kw_only=True)
class Bare:
    """A network that a method is about to build another one around: a mixture, a gated network."""

    module: nn.Module
    another: Callable[[int], nn.Module]
    """Makes a network like it, numbered from 1, with first values of its own."""
    example: Callable[[], Tensor]
    """Inputs as the network takes them, of one example."""


Wrap = Callable[[Bare], nn.Module]
"""From the user's network to the one that is trained."""
