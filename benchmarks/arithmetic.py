"""The arithmetic limit: the operations of a round at the speed of a matrix product.

Counted are the products of linear and convolutional layers, the latter as products of unfolded inputs. Layers before
the first that moves are run once per client and phase, for their output stays the same. The speed is the best that
`torch.mm`, or whoever Plures lets multiply, reaches on one thread on any of the workload's shapes, times the number of
cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bare import Loop, Stretch
from benchmarks.data import SHAPE
from benchmarks.workloads import Workload
from plures.core import products as ways_to_multiply
from plures.core.seeds import generator

CORES = 2
LEAST_SECONDS = 0.02
TRIES = 3

Shape = tuple[int, int, int]
"""(rows, inner, columns) of a product."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A layer as a product, of one example."""

    layer: str
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.columns


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a round cannot be faster than."""

    gflop: float
    """In one round."""
    gflops: dict[str, float]
    """Speed on one thread, by shape."""

    @property
    def seconds(self) -> float:
        return self.gflop / (CORES * max(self.gflops.values()))

    def as_json(self) -> dict[str, Any]:
        return {"gflop_per_round": self.gflop, "gflop_per_second_one_thread": self.gflops, "seconds": self.seconds}


def limit_of(workload: Workload, round: int = 1) -> Limit:
    loop = Loop(workload)
    products = products_of(loop.module)
    batches = loop.examples(workload.cohort_of(round))
    sizes = [batch.num_examples for batch in batches]
    if workload.evaluated:
        flops, rows = sum(sizes) * sum(product.flops for product in products), max(sizes)
    else:
        flops = sum(stretch_flops(products, stretch, size) for stretch in loop.stretches for size in sizes)
        rows = first_batch(loop.stretches[0], max(sizes))
    torch.set_num_threads(1)
    shapes = {shape for product in products for shape in shapes_of(product, rows)}
    return Limit(gflop=flops / 1e9, gflops={"x".join(map(str, shape)): speed(shape) for shape in sorted(shapes)})


def products_of(module: nn.Module) -> list[Product]:
    """The layers in the order in which an example passes them."""
    found: list[Product] = []

    def note(name: str, layer: nn.Module, output: Tensor) -> None:
        weight = layer.get_parameter("weight")
        rows = output[0].numel() // weight.shape[0]
        found.append(Product(layer=name, rows=rows, inner=weight[0].numel(), columns=weight.shape[0]))

    hooks = [
        layer.register_forward_hook(lambda layer, given, output, name=name: note(name, layer, output))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    ]
    with torch.no_grad():
        module(torch.zeros(1, *SHAPE))
    for hook in hooks:
        hook.remove()
    return found


def stretch_flops(products: Sequence[Product], stretch: Stretch, num_examples: int) -> int:
    """Of one phase on one client: forward, gradients of weights, gradients of inputs."""
    wanted = [any(n.startswith(f"{p.layer}.") for n in stretch.moving | stretch.watched) for p in products]
    first = wanted.index(True)
    once = sum(product.flops for product in products[:first])
    each = 0
    for place, product in enumerate(products[first:], first):
        each += product.flops * (1 + wanted[place] + (place > first))
    return num_examples * once + num_seen(stretch, num_examples) * each


def num_seen(stretch: Stretch, num_examples: int) -> int:
    """Examples in all batches of a phase."""
    batches = stretch.budget.batches(num_examples, generator(0, "arithmetic"))
    return sum(num_examples if places is None else len(places) for places in batches)


def first_batch(stretch: Stretch, num_examples: int) -> int:
    places = next(iter(stretch.budget.batches(num_examples, generator(0, "arithmetic"))))
    return num_examples if places is None else len(places)


def shapes_of(product: Product, batch: int) -> list[Shape]:
    """Forward, gradient of the weight, gradient of the input."""
    rows = batch * product.rows
    return [
        (rows, product.inner, product.columns),
        (product.columns, rows, product.inner),
        (rows, product.columns, product.inner),
    ]


def speed(shape: Shape) -> float:
    """GFLOP per second of a product, the best of some tries."""
    rows, inner, columns = shape
    left, right, out = torch.rand(rows, inner), torch.rand(inner, columns), torch.empty(rows, columns)
    ways = (lambda: torch.mm(left, right, out=out), lambda: ways_to_multiply.product(left, right))
    return 2e-9 * rows * inner * columns / min(seconds_of(way) for _ in range(TRIES) for way in ways)


def seconds_of(work: Callable[[], object]) -> float:
    work()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < LEAST_SECONDS:
        work()
        count += 1
    return (time.perf_counter() - began) / count
