"""Networks that are a chain of linear layers and ReLU or tanh, trained by hand: no graph, steps straight into weights.

A step of such a network is a dozen products of matrices; what autograd adds around them takes as long as they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from plures.core.products import product
from plures.core.types import Batch, Params
from plures.engines.paces import Mover

Bend = Literal["relu", "tanh", "none"]
RELU = (F.relu, torch.relu, "relu", nn.ReLU)
TANH = (torch.tanh, F.tanh, "tanh", nn.Tanh)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A linear layer, and what comes after it."""

    weight: str
    bias: str | None
    bend: Bend


Chain = tuple[Link, ...]
_KNOWN: WeakKeyDictionary[nn.Module, Chain | None] = WeakKeyDictionary()


def chain_of(module: nn.Module) -> Chain | None:
    """The links of a network that is nothing but a chain; None of any other."""
    if module not in _KNOWN:
        _KNOWN[module] = traced_chain(module)
    return _KNOWN[module]


def traced_chain(module: nn.Module) -> Chain | None:
    if any(has_hooks(layer) for layer in module.modules()):
        return None
    try:
        graph = fx.Tracer().trace(module)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, IndexError, KeyError):
        return None  # not to be followed without running it
    links: list[Link] = []
    before: fx.Node | None = None
    for node in graph.nodes:
        if not follows(node, before):
            return None
        if node.op == "output":
            break
        if not linked(module, node, links):
            return None
        before = node
    weights = [link.weight for link in links]
    if not links or links[-1].bend != "none" or len(set(weights)) < len(weights):
        return None  # a bend at the end, or a layer that is used twice
    return tuple(links)


def has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def follows(node: fx.Node, before: fx.Node | None) -> bool:
    """Whether a step takes what the one before it gave, which nobody else takes, and no other step's."""
    if node.op == "placeholder":
        return before is None and len(node.users) == 1
    return node.all_input_nodes == [before] and (node.op == "output" or len(node.users) == 1)


def linked(module: nn.Module, node: fx.Node, links: list[Link]) -> bool:
    """Add one step to the chain, if it is of a known kind."""
    kind: Any = module.get_submodule(str(node.target)) if node.op == "call_module" else node.target
    if node.op == "placeholder":
        return True
    if type(kind) is nn.Linear:
        names = {name for name, _ in kind.named_parameters(recurse=False)}
        path = f"{node.target}."
        links.append(Link(weight=f"{path}weight", bias=f"{path}bias" if "bias" in names else None, bend="none"))
        return "weight" in names
    if is_flatten(node, kind):
        return not links
    bend: Bend = "relu" if is_one(kind, RELU) else "tanh" if is_one(kind, TANH) else "none"
    if bend == "none" or not links or links[-1].bend != "none":
        return type(kind) is nn.Identity
    links[-1] = Link(weight=links[-1].weight, bias=links[-1].bias, bend=bend)
    return True


def is_one(kind: Any, kinds: tuple[Any, ...]) -> bool:
    return any(kind is one or kind == one or type(kind) is one for one in kinds)


def is_flatten(node: fx.Node, kind: Any) -> bool:
    """All but the first dimension into one."""
    if type(kind) is nn.Flatten:
        return (kind.start_dim, kind.end_dim) == (1, -1)
    return (kind in ("flatten", torch.flatten)) and node.args[1:] in ((1,), (1, -1)) and not node.kwargs


def names_in(links: Chain) -> set[str]:
    return {name for link in links for name in (link.weight, link.bias) if name is not None}


class ChainSteps:
    """Forward, backward and the step, layer by layer, on parameters that are changed in place."""

    def __init__(self, links: Chain, mover: Mover, watched: frozenset[str]) -> None:
        self.links, self.params, self.mover, self.watched = links, mover.params, mover, watched
        wanted = watched.union(mover.paces)
        found = [number for number, link in enumerate(links) if link.weight in wanted or link.bias in wanted]
        self.lowest = min(found, default=len(links))
        """Below it no gradient is asked for, so none is carried on."""
        self.observed: Params = {}
        """Gradients of what is watched, at the last batch."""
        self.column = torch.empty(0)

    def take(self, batch: Batch) -> Tensor:
        inputs = self.forward(batch.inputs.flatten(1))
        likely = torch.log_softmax(inputs.pop(), dim=1)
        loss = F.nll_loss(likely, batch.targets)
        error = likely.exp_()  # times the number of examples, by which steps are divided
        error.scatter_add_(1, batch.targets.unsqueeze(1), self.minus(error))
        self.backward(error, inputs, 1.0 / batch.num_examples)
        return loss

    def minus(self, like: Tensor) -> Tensor:
        """One column of -1, kept for the next batch of that size."""
        if len(self.column) != len(like):
            self.column = like.new_full((len(like), 1), -1.0)
        return self.column

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """What each layer is given, and what the last one gives."""
        found = [inputs]
        for number, link in enumerate(self.links):
            output = self.given_to(number, found)
            found.append(output.relu_() if link.bend == "relu" else output.tanh_() if link.bend == "tanh" else output)
        return found

    def given_to(self, number: int, found: list[Tensor]) -> Tensor:
        """What a layer makes of the last that was found, before it is bent."""
        link = self.links[number]
        return F.linear(found[-1], self.params[link.weight], None if link.bias is None else self.params[link.bias])

    def backward(self, error: Tensor, inputs: list[Tensor], share: float) -> None:
        """From the error of the last layer down to the lowest that counts; each layer steps once it was passed."""
        for number in range(len(self.links) - 1, self.lowest - 1, -1):
            link = self.links[number]
            if number < len(self.links) - 1:
                self.unbend(error, inputs[number + 1], link.bend)
            below = product(error, self.params[link.weight]) if number > self.lowest else error
            self.observe(link, error, inputs[number], share)
            self.step(link, error, inputs[number], share)
            error = below

    def observe(self, link: Link, error: Tensor, given: Tensor, share: float) -> None:
        if link.weight in self.watched:
            self.observed[link.weight] = product(error.T, given).mul_(share)
        if link.bias is not None and link.bias in self.watched:
            self.observed[link.bias] = error.sum(dim=0).mul_(share)

    def finish(self) -> None:
        """What is left to do after the last step."""

    def step(self, link: Link, error: Tensor, given: Tensor, share: float) -> None:
        if link.weight in self.mover.paces:
            self.mover.by_product(link.weight, error.T, given, share)
        if link.bias is not None and link.bias in self.mover.paces:
            self.mover.by_sum(link.bias, error, share)

    @staticmethod
    def unbend(error: Tensor, output: Tensor, bend: Bend) -> None:
        if bend == "relu":
            error.mul_(output > 0)
        elif bend == "tanh":
            error.mul_(1 - output * output)
