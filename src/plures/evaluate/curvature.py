"""How strongly the gradients of a client's loss change: largest stretches of the blocks of its Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import isfinite, nan, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from plures.core.method import View
from plures.core.program import Binding
from plures.core.seeds import generator
from plures.core.types import Batch, Params

MOST_CLIENTS = 8
"""Clients, evenly spaced, whose curvature is measured."""
MOST_EXAMPLES = 256
"""Of each of them so many training examples, evenly spaced."""
MOST_ITERATIONS = 50
TOLERANCE = 1e-7
"""An iteration that changes the stretch by no more than this share of it is the last one."""

Direction = Sequence[Tensor]
Product = Callable[[Direction], Direction]
"""A block of the Hessian, times a direction."""


class Curvature(NamedTuple):
    """Operator norms of the blocks of one client's Hessian; nan where there is no such block, or no second derivative.

    The block of shared by personal parameters is the transpose of that of personal by shared ones: one norm for both.
    """

    shared: float
    personal: float
    cross: float


class Slope(NamedTuple):
    """Some parameters that the loss depends on, and its gradient by them with the graph that it came from."""

    leaves: list[Tensor]
    grads: list[Tensor]

    def along(self, direction: Direction, by: Slope) -> Direction:
        """How the gradient of these, along a direction, changes by others: their block of the Hessian times it."""
        pairs = [(grad, way) for grad, way in zip(self.grads, direction, strict=True) if grad.requires_grad]
        if not pairs:  # the loss is linear in these
            return [torch.zeros_like(leaf) for leaf in by.leaves]
        grads, ways = zip(*pairs, strict=True)
        return torch.autograd.grad(grads, by.leaves, ways, retain_graph=True, materialize_grads=True)

    def first_direction(self, seed: int) -> Direction:
        """The same for every client, so that their order and numbers have no say."""
        draws = generator(seed, "curvature")
        drawn = [torch.randn(leaf.shape, generator=draws, dtype=torch.float64) for leaf in self.leaves]
        return [way.to(leaf) for way, leaf in zip(drawn, self.leaves, strict=True)]


def curvature(
    binding: Binding, view: View, params: Params, data: Batch, names: tuple[list[str], list[str]], seed: int
) -> Curvature:
    """Of the loss of some of a client's examples, by the shared and by the personal names that it depends on."""
    chosen = spaced(range(data.num_examples), MOST_EXAMPLES)
    batch = Batch(data.inputs[chosen], data.targets[chosen])
    leaves = {name: params[name].detach().requires_grad_() for part in names for name in part}
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention have no second derivative
        loss = binding.task.loss(view(params | leaves, batch.inputs), batch)
    shared, personal = slopes(loss, [[leaves[name] for name in part] for part in names])
    try:
        check_second_derivative([shared, personal])
        return norms(shared, personal, seed)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # what torch raises where an operation has no second derivative
        return Curvature(nan, nan, nan)


def slopes(loss: Tensor, parts: Sequence[list[Tensor]]) -> list[Slope]:
    """Of each part, those parameters that the loss depends on."""
    leaves = [leaf for part in parts for leaf in part]
    if not loss.requires_grad:
        return [Slope([], []) for _ in parts]
    grads = iter(torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True))
    found = [[(leaf, next(grads)) for leaf in part] for part in parts]
    used = [[(leaf, grad) for leaf, grad in pairs if grad is not None] for pairs in found]
    return [Slope([leaf for leaf, _ in pairs], [grad for _, grad in pairs]) for pairs in used]


def check_second_derivative(found: Sequence[Slope]) -> None:
    """Go the whole way back once: operations that can be differentiated only once are passed by on a way to leaves."""
    grads = [grad for slope in found for grad in slope.grads if grad.requires_grad]
    if grads:
        torch.autograd.backward(grads, [torch.zeros_like(grad) for grad in grads], retain_graph=True)
    for leaf in [leaf for slope in found for leaf in slope.leaves]:
        leaf.grad = None


def norms(shared: Slope, personal: Slope, seed: int) -> Curvature:
    return Curvature(
        shared=block_norm(shared, shared, seed),
        personal=block_norm(personal, personal, seed),
        cross=block_norm(shared, personal, seed),
    )


def block_norm(of: Slope, by: Slope, seed: int) -> float:
    """The operator norm of a block; one on the diagonal is its own transpose."""
    if not of.leaves or not by.leaves:
        return nan
    products: list[Product] = [lambda way: of.along(way, by), lambda way: by.along(way, of)]
    return power_iteration(products, of.first_direction(seed))


def power_iteration(products: Sequence[Product], direction: Direction) -> float:
    """The largest factor by which a product lengthens a direction; several are transposes, and taken in turn.

    The factor never falls from one iteration to the next, also where eigenvalues of both signs are the largest.
    """
    factor = 0.0
    for number in range(MOST_ITERATIONS):
        length = norm(direction)
        if not length:
            return factor
        direction = products[number % len(products)]([way / length for way in direction])
        last, factor = factor, norm(direction)
        if not isfinite(factor):
            return nan
        if abs(factor - last) <= TOLERANCE * factor:
            break
    return factor


def norm(direction: Direction) -> float:
    return sqrt(sum(float(way.double().square().sum()) for way in direction))


def curvature_numbers(found: Sequence[Curvature]) -> dict[str, float]:
    """The largest norms over clients, as in Assumption 1 of the FedAlt paper, and the coupling that they give."""
    shared, personal, cross = torch.tensor(found or [(nan,) * 3], dtype=torch.float64).amax(dim=0).tolist()
    return {
        "smoothness_shared": shared,
        "smoothness_personal": personal,
        "cross_smoothness": cross,
        "coupling": cross / sqrt(shared * personal) if shared * personal > 0 else nan,
    }


@contextmanager
def plain_recurrence(module: nn.Module) -> Iterator[None]:
    """Let recurrent layers do without cuDNN, whose own have no gradient in evaluation mode and no second one ever."""
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in module.modules())
    with torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext():
        yield


def spaced(items: Sequence[int], most: int) -> list[int]:
    """All of them, or `most` from the first to the last, evenly spaced."""
    if len(items) <= most:
        return list(items)
    return [items[number * (len(items) - 1) // (most - 1)] for number in range(most)]
