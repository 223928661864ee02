"""Follows a network step by step with stand-ins for its values, by torch.fx, with shapes known.

Every step is tried as it is recorded. What is the same for any number of examples is told to the network as it is, so
that it may ask for the length of its inputs. What depends on numbers, or on how many examples there are, is not told.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd import Function

from plures.core.errors import PluresError
from plures.engines.prefix_trials import Trials
from plures.parts.insertion import add_from_input, add_to_output, drop_input

SEEN_THROUGH = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.LayerNorm, nn.GroupNorm)
"""Layers that are opened where something was inserted: an adapter may move while its layer does not."""
INSERTED = (add_to_output, add_from_input, drop_input)
"""Hooks that do nothing but compute; what others do beside would be lost if they were followed."""
FAILURES = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, PluresError)
"""What a network may raise when it is followed."""


class Applied(nn.Module):
    """One use of an autograd function, whose backward pass must not be lost."""

    def __init__(self, function: type[Function]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function.apply(*args, **kwargs)  # type: ignore[no-untyped-call]


def hooks_of(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def has_insertions_only(module: nn.Module) -> bool:
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return all(getattr(hook, "func", None) in INSERTED for hook in hooks)


class Sizes(tuple[Any, ...]):
    """A shape of which some dimensions are not known."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return as_sizes(found) if isinstance(place, slice) else found


def as_sizes(dimensions: tuple[Any, ...]) -> Any:
    known = all(isinstance(dimension, int) for dimension in dimensions)
    return torch.Size(dimensions) if known else Sizes(dimensions)


class ShapedProxy(fx.Proxy):
    """Stands for a value of which type and most of the shape are known."""

    def __getattr__(self, name: str) -> Any:
        assert isinstance(self.tracer, Tracer)
        tried = self.tracer.trials.values[self.node]
        if isinstance(tried[0], Tensor):
            if name == "shape":
                return self.sizes(*tried)
            if name in ("dtype", "ndim", "device"):
                return getattr(tried[0], name)
        return super().__getattr__(name)

    def sizes(self, few: Tensor, more: Tensor) -> Any:
        unknown: Any = super().__getattr__("shape")
        pairs = enumerate(zip(few.shape, more.shape, strict=True))
        return as_sizes(tuple(one if one == other else unknown[n] for n, (one, other) in pairs))

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> Any:
        return self.ndim

    def __len__(self) -> int:
        length = self.shape[0]
        if not isinstance(length, int):
            raise fx.proxy.TraceError("the number of examples is asked for")
        return length


class Tracer(fx.Tracer):
    """Follows a network, and tries each step."""

    proxy_buffer_attributes = True

    def __init__(self, whole: nn.Module, inputs: Tensor, opaque: frozenset[str]) -> None:
        super().__init__()
        self.opaque = opaque
        """Modules that could not be followed: what they do may depend on the whole batch."""
        self.trials = Trials(whole, inputs)
        self.failed = ""
        """The innermost module that could not be followed this time."""
        self.num_applied = 0

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return ShapedProxy(node, self)

    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        is_layer = super().is_leaf_module(module, path)
        if path in self.opaque or not hooks_of(module):
            return is_layer or path in self.opaque
        if is_layer:
            return type(module) not in SEEN_THROUGH or not has_insertions_only(module)
        if not has_insertions_only(module):
            raise fx.proxy.TraceError(f"a hook on '{path}' would be lost")
        return False

    def call_module(
        self, module: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.trials.under_way:
            return forward(*args, **kwargs)
        try:
            return super().call_module(module, forward, args, kwargs)
        except FAILURES:
            self.failed = self.failed or self.path_of_module(module)
            raise

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self.trials.under_way else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        if node.op != "output":
            self.trials.take(node, opaque=node.op == "call_module" and str(node.target) in self.opaque)
        return node

    def to_bool(self, obj: fx.Proxy) -> bool:
        few, more = self.trials.values[obj.node]
        if obj.node in self.trials.of_shapes and few == more:
            return bool(few)
        raise fx.proxy.TraceError("what it does depends on its inputs")

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        few, more = self.trials.values[obj.node]
        if isinstance(few, tuple | list) and len(few) == len(more):
            return iter([operator.getitem(obj, number) for number in range(len(few))])
        return super().iter(obj)

    @contextmanager
    def functions_recorded(self) -> Iterator[None]:
        """While it lasts, autograd functions that meet stand-ins become steps of the graph."""
        usual = Function.__dict__["apply"]

        def apply(function: type[Function], *args: Any, **kwargs: Any) -> Any:
            if self.trials.under_way or not any(isinstance(value, fx.Proxy) for value in (*args, *kwargs.values())):
                return usual.__func__(function, *args, **kwargs)
            name = f"_applied{self.num_applied}"
            self.num_applied += 1
            self.root.add_module(name, Applied(function))
            return self.create_proxy("call_module", name, args, kwargs)

        Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Function.apply = usual  # type: ignore[method-assign]
