"""Steps of a network, each tried with two examples and with three: what it gives, and what it does beside."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

Kind = Literal["examples", "constant", "batch"]
"""Of a value: one row for each example, the same for any examples, or something that belongs to the whole batch."""
SIZES = (2, 3)
"""Numbers of examples that are tried."""
SHAPES = ("numel", "nelement", "is_floating_point", "is_complex", "is_contiguous", "element_size", "shape", "dtype")
"""Questions that a tensor answers without looking at its numbers."""
BY_NUMBERS = ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount")
"""Steps whose number of results depends on numbers."""


class Trials:
    """Notes of all steps that were tried."""

    def __init__(self, whole: nn.Module, inputs: Tensor) -> None:
        self.whole = whole
        self.samples = [inputs[torch.arange(size, device=inputs.device) % len(inputs)] for size in SIZES]
        self.values: dict[fx.Node, tuple[Any, ...]] = {}
        self.kinds: dict[fx.Node, Kind] = {}
        self.example_bytes: dict[fx.Node, float] = {}
        self.sources: dict[fx.Node, str] = {}
        """Steps that must be taken for each batch anew, each with the reason."""
        self.of_shapes: set[fx.Node] = set()
        """Steps whose value follows from shapes alone."""
        self.under_way = False

    def take(self, node: fx.Node, *, opaque: bool = False) -> None:
        """Try a step; draws are undone, for nobody has asked for them."""
        drawn, written = random_state(), self.writings()
        self.under_way = True
        try:
            with torch.no_grad(), unmoved_draws():
                self.values[node] = tuple(self.result(node, number) for number in range(len(SIZES)))
                draws = random_state() != drawn
        finally:
            self.under_way = False
        self.describe(node)
        if opaque:
            self.sources[node] = f"what '{str(node.target).partition('.')[2]}' does cannot be known before it runs"
        elif draws:
            self.sources[node] = "random numbers are drawn (dropout)"
        elif self.writings() != written:
            self.sources[node] = "running statistics are kept (batch norm in training mode)"

    def describe(self, node: fx.Node) -> None:
        few, more = self.values[node]
        given = node.all_input_nodes
        fed = node.op == "placeholder" or any(self.kinds[other] != "constant" for other in given)
        self.kinds[node] = "batch" if fed else "constant"
        if given and not has_tensors(few) and (asks_shape(node) or self.of_shapes.issuperset(given)):
            self.of_shapes.add(node)
        if fed and is_of_examples(few, more):
            self.kinds[node] = "examples"
            self.example_bytes[node] = few.numel() * few.element_size() / SIZES[0]
            if not same_rows(few, more):
                self.sources[node] = "what becomes of an example depends on the other examples of its batch"

    def result(self, node: fx.Node, number: int) -> Any:
        target: Any = node.target
        if node.op == "placeholder":
            return self.samples[number]
        if node.op == "get_attr":
            return attribute(self.whole, target)
        args = fx.node.map_arg(node.args, lambda given: self.values[given][number])
        kwargs: Mapping[str, Any] = fx.node.map_arg(node.kwargs, lambda given: self.values[given][number])
        if node.op == "call_module":
            return self.whole.get_submodule(target)(*args, **kwargs)
        if function_name(node) in BY_NUMBERS or picks_by_mask(node, args):
            raise fx.proxy.TraceError("how many results there are depends on the inputs")
        return getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)

    def forget_values(self) -> None:
        self.values.clear()
        self.samples.clear()

    def writings(self) -> list[int]:
        return [value._version for value in self.whole.buffers()]


def has_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, tuple | list) and any(has_tensors(part) for part in value))


def function_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def asks_shape(node: fx.Node) -> bool:
    name = node.args[1] if node.target is getattr else function_name(node)
    return node.op in ("call_function", "call_method") and name in SHAPES


def picks_by_mask(node: fx.Node, args: tuple[Any, ...]) -> bool:
    """Whether an index is a tensor of yes and no."""
    places = args[1] if function_name(node) == "getitem" and len(args) > 1 else ()
    each = places if isinstance(places, tuple) else (places,)
    return any(isinstance(place, Tensor) and place.dtype == torch.bool for place in each)


def is_of_examples(few: Any, more: Any) -> bool:
    if not isinstance(few, Tensor) or not isinstance(more, Tensor) or not few.dim() or not more.dim():
        return False
    return (few.shape[0], more.shape[0]) == SIZES and few.shape[1:] == more.shape[1:]


def same_rows(few: Tensor, more: Tensor) -> bool:
    """Whether examples have the same values among others, up to roundings."""
    if not few.is_floating_point():
        return torch.equal(few, more[: len(few)])
    near = tolerance(few.dtype)
    return torch.allclose(few, more[: len(few)], rtol=near, atol=near * largest(few), equal_nan=True)


def tolerance(dtype: torch.dtype) -> float:
    """How near two ways to the same value are: 4e-10 in double precision, 7e-5 in single."""
    return float(torch.finfo(dtype).eps ** 0.6)


def largest(value: Tensor) -> float:
    finite = value[torch.isfinite(value)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def unmoved_draws() -> AbstractContextManager[None]:
    """While it lasts, draws from torch's global generators are nobody's."""
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


def random_state() -> list[bytes]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return [state.numpy().tobytes() for state in states]


def attribute(module: nn.Module, path: str) -> Any:
    parent, _, name = path.rpartition(".")
    return getattr(module.get_submodule(parent), name)
