"""Networks whose personal part differs between clients."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from torch import nn

from plures.core.program import NetworkPerClient

__all__ = ["per_client", "with_own_heads"]


def per_client(make: Callable[[int], nn.Module]) -> NetworkPerClient:
    """Any network for any client: a function from the client's number to its module."""
    return NetworkPerClient(make=lambda key: make(as_int(key)), key_of=lambda client: client)


def with_own_heads(make: Callable[[int], nn.Module], num_classes: Callable[[int], int]) -> NetworkPerClient:
    """One body, and heads of K_i classes: a function from the number of classes to a module."""
    return NetworkPerClient(make=lambda key: make(as_int(key)), key_of=num_classes)


def as_int(key: Hashable) -> int:
    assert isinstance(key, int)
    return key
