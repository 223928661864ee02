"""A mixture of networks: several of one kind, and how much of each a client takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.networks import Bare, Wrap
from plures.core.types import Params
from plures.parts.layers import names_of
from plures.parts.selectors import Selector

Outputs = Literal["classes", "values"]
"""What a network gives: logits of classes, in its second dimension, or the values themselves."""
SHARES = "mixing"
"""The parameter that says how much of each component a client takes."""
APART = "apart"
"""What to ask a mixture for, to be told the outputs of its components."""


class Mixture(nn.Module):
    """log sum_m pi_m softmax(h_m(x)) for classes, sum_m pi_m h_m(x) for values; pi starts uniform.

    Cross-entropy takes logarithms of probabilities for what they are: its value is the mixture's own, and the largest
    output is that of the most probable class.
    """

    def __init__(self, components: Sequence[nn.Module], *, outputs: Outputs = "classes") -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self.outputs = outputs
        like = next((value for value in components[0].parameters()), torch.empty(0))
        self.mixing = nn.Parameter(like.detach().new_full((len(components),), 1 / len(components)))
        # A network that its owner gives in evaluation mode is trained like any other; a part of it is not.
        self.training = components[0].training

    def forward(self, inputs: Tensor, what: str = "") -> Tensor | Params:
        outputs = torch.stack([network(inputs) for network in self.components])
        return {APART: outputs} if what == APART else self.mixed(outputs)

    def mixed(self, outputs: Tensor) -> Tensor:
        """From the outputs of the components, which are the first dimension, to that of the mixture."""
        shares = self.mixing.view(-1, *[1] * (outputs.dim() - 1))
        if self.outputs == "values":
            return (shares * outputs).sum(dim=0)
        if outputs.dim() < 3:
            raise InvalidModel(
                "A mixture of classes needs outputs of shape (examples, classes, ...), but its networks give shape "
                f"{tuple(outputs.shape[1:])}. If such networks give values: outputs = 'values'."
            )
        # A share of 0 counts as the smallest number above it, so that no logarithm and no gradient is infinite.
        weights = shares.clamp_min(torch.finfo(shares.dtype).tiny).log()
        return torch.logsumexp(F.log_softmax(outputs, dim=2) + weights, dim=0)


def mixture_of(count: int, outputs: Outputs) -> Wrap:
    """Wraps a network into a mixture of that many: itself, and others with first values of their own."""

    def wrap(bare: Bare) -> nn.Module:
        networks = [bare.module, *(bare.another(number) for number in range(1, count))]
        check_different(networks)
        return Mixture(networks, outputs=outputs)

    return wrap


def check_different(networks: Sequence[nn.Module]) -> None:
    """Components that start equal have the same gradients, and stay equal."""
    for (one, first), (other, second) in combinations(enumerate(networks), 2):
        if all(map(torch.equal, first.parameters(), second.parameters())):
            raise InvalidModel(
                f"Components {one} and {other} of the mixture start with the same values, and so would stay equal. "
                "Give a function that makes the network with other values each time, start from no weights that fix "
                "all of it, or take components = 1."
            )


def mixing_shares() -> Selector:
    """The shares of a mixture; none in any other network, which may have to be looked at before it is in a mixture."""
    return Selector("mixing_shares()", lambda model: frozenset({SHARES} & set(names_of(model))))
