"""Many steps on one and the same batch: the first layer's output is moved itself, its weights once at the end.

A step moves the first weights by a sum of the batch's own inputs, W - r E'X. So their output moves by products of
inputs with each other, X W' - r (X X') E, and X X' is the same in every step. With 600 images of 784 pixels that is two
fifths of the work; the weights get the sum of all steps afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.products import add_product, product
from plures.engines.chains import Chain, ChainSteps, Link
from plures.engines.paces import Mover, Pace

WORTH = 0.7
"""Of the work of plain steps: above it the detour is not taken."""


def pays(num_steps: int, inputs: Tensor, weight: Tensor) -> bool:
    """Whether it is less work, counted in products of numbers."""
    examples, (outputs, width) = len(inputs), weight.shape
    plainly = 2 * num_steps * examples * width * outputs
    by_inputs = examples * examples * (num_steps * outputs + width) + 2 * examples * width * outputs
    return by_inputs < WORTH * plainly


def is_simple(pace: Pace | None) -> bool:
    """A step that depends on nothing but the gradient."""
    return pace is not None and not pace.momentum and not pace.decay


class RepeatedSteps(ChainSteps):
    """Steps on a batch that stays the same; `finish` writes the first weights."""

    def __init__(self, links: Chain, mover: Mover, watched: frozenset[str], inputs: Tensor) -> None:
        super().__init__(links, mover, watched)
        self.first = links[0]
        self.inputs = inputs
        self.alike = product(inputs, inputs.T)
        bias = None if self.first.bias is None else self.params[self.first.bias]
        self.output = F.linear(inputs, self.params[self.first.weight], bias)
        self.steps = torch.zeros_like(self.output)
        """Of the first layer's output: what all steps so far come to, before the inputs are multiplied in."""

    @classmethod
    def suits(cls, links: Chain, mover: Mover, num_steps: int, inputs: Tensor) -> bool:
        """Where the whole first layer moves by plain steps, and they are many."""
        first = links[0]
        moves = is_simple(mover.paces.get(first.weight))
        moves = moves and (first.bias is None or is_simple(mover.paces.get(first.bias)))
        return moves and pays(num_steps, inputs, mover.params[first.weight])

    def given_to(self, number: int, found: list[Tensor]) -> Tensor:
        return self.output.clone() if number == 0 else super().given_to(number, found)

    def step(self, link: Link, error: Tensor, given: Tensor, share: float) -> None:
        if link is not self.first:
            super().step(link, error, given, share)
            return
        pace = self.mover.paces[link.weight]
        rate = pace.lr * pace.scale * share
        self.steps.add_(error, alpha=rate)
        add_product(self.output, self.alike, error, alpha=-rate)
        if link.bias is not None:
            before = self.params[link.bias].clone()
            self.mover.by_sum(link.bias, error, share)
            self.output.add_(self.params[link.bias] - before)

    def finish(self) -> None:
        add_product(self.params[self.first.weight], self.steps.T, self.inputs, alpha=-1.0)
