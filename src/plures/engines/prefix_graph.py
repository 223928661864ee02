"""Cut a network's graph in two: what a phase holds still and may be run once, and the rest.

Behind is every step that depends on something that moves, that draws random numbers, that writes into running
statistics, or that looks at several examples at once. What these take from steps before them is what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from torch import fx, nn

from plures.engines.prefix_trace import Traced
from plures.engines.prefix_tracer import hooks_of
from plures.engines.prefix_trials import Kind, attribute, function_name

PRODUCTS = ("linear", "bilinear", "matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "einsum", "tensordot")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")
Names = Mapping[str, str]
"""From the names in a piece of the network to those in the network."""


class Head(NamedTuple):
    """One linear layer that takes what is kept and gives the network's output."""

    weight: str
    bias: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """A network in two pieces."""

    prefix: fx.GraphModule
    """Inputs -> what is kept: first the values with one row for each example, then the constant ones."""
    rest: fx.GraphModule
    """All that is kept -> the network's output."""
    num_values: int
    prefix_names: Names
    rest_names: Names
    example_bytes: float
    """What is kept of one example."""
    head: Head | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """A network whose steps are known, and how it was cut before."""

    traced: Traced
    cuts: dict[frozenset[str], Cut | str] = field(default_factory=dict)

    @cached_property
    def known(self) -> dict[int, str]:
        """The network's name of each tensor; of one that is used in two places, the first."""
        network = self.traced.whole.network
        return {id(value): name for name, value in (*network.named_parameters(), *network.named_buffers())}

    def names(self, piece: nn.Module) -> dict[str, str]:
        """The parameters and buffers of a piece of the network, with the names that the network knows them by."""
        own = [*piece.named_parameters(remove_duplicate=False), *piece.named_buffers(remove_duplicate=False)]
        return {name: self.known[id(value)] for name, value in own if id(value) in self.known}

    def used(self, node: fx.Node) -> set[str]:
        """Names of the parameters and buffers that a step uses."""
        if node.op == "call_module":
            return set(self.names(self.traced.whole.get_submodule(str(node.target))).values())
        if node.op != "get_attr":
            return set()
        name = self.known.get(id(attribute(self.traced.whole, str(node.target))))
        return set() if name is None else {name}


def behind(nodes: Iterable[fx.Node], sources: Iterable[fx.Node]) -> set[fx.Node]:
    """These steps, and all that depend on them."""
    found = set(sources)
    for node in nodes:
        if any(given in found for given in node.all_input_nodes):
            found.add(node)
    return found


def cut_before(steps: Steps, moving: frozenset[str]) -> Cut | str:
    """The network cut before the first steps that what moves has a say in, or why that is of no use."""
    if moving not in steps.cuts:
        steps.cuts[moving] = make_cut(steps, moving)
    return steps.cuts[moving]


def make_cut(steps: Steps, moving: frozenset[str]) -> Cut | str:
    nodes, kinds = list(steps.traced.graph.nodes), steps.traced.trials.kinds
    moved = {node: f"'{min(own)}' moves" for node in nodes if (own := steps.used(node) & moving)}
    sources = {node: why for node in nodes if (why := (moved | steps.traced.trials.sources).get(node))}
    rest = behind(nodes, [*sources, nodes[-1]])
    kept = frontier(nodes, rest, kinds)
    values = [node for node in kept if kinds[node] == "examples"]
    prefix = before(kept)
    if not any(is_product(steps, node) for node in prefix):
        why = next(iter(sources.values()), "it has none")
        return f"no layer of the network comes before the first step that every batch has to take: {why}"
    order = [*values, *(node for node in kept if kinds[node] != "examples")]
    first = piece(steps, [node for node in nodes if node in prefix], [], order)
    second = piece(steps, [node for node in nodes if node in rest], order, None)
    return Cut(
        prefix=first,
        rest=second,
        num_values=len(values),
        prefix_names=steps.names(first),
        rest_names=steps.names(second),
        example_bytes=sum(steps.traced.trials.example_bytes[node] for node in values),
        head=head_of(steps, [node for node in nodes if node in rest], values if order == values else []),
    )


def frontier(nodes: list[fx.Node], rest: set[fx.Node], kinds: Mapping[fx.Node, Kind]) -> list[fx.Node]:
    """What the rest takes from before; steps whose value cannot be kept by examples join the rest."""
    kept: set[fx.Node] = set()
    asked = [given for node in rest for given in node.all_input_nodes]
    while asked:
        node = asked.pop()
        if node in rest or node in kept:
            continue
        if node.op != "get_attr" and kinds[node] in ("examples", "constant"):
            kept.add(node)
        else:
            rest.add(node)
            asked += node.all_input_nodes
    return [node for node in nodes if node in kept]


def before(kept: Iterable[fx.Node]) -> set[fx.Node]:
    """These steps, and all that they depend on."""
    found: set[fx.Node] = set()
    asked = list(kept)
    while asked:
        node = asked.pop()
        if node not in found:
            found.add(node)
            asked += node.all_input_nodes
    return found


def piece(steps: Steps, nodes: list[fx.Node], given: list[fx.Node], wanted: list[fx.Node] | None) -> fx.GraphModule:
    """Some steps as a network of their own; `wanted` None: they end with the network's output."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(f"kept{number}") for number, node in enumerate(given)}
    for node in nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, lambda other: copies[other])
    if wanted is not None:
        graph.output(tuple(copies[node] for node in wanted))
    return fx.GraphModule(steps.traced.whole, graph)


def is_product(steps: Steps, node: fx.Node) -> bool:
    """Whether a step multiplies by a matrix: anything else is as fast as to fetch what was kept."""
    if node.op == "call_module":
        layer = steps.traced.whole.get_submodule(str(node.target))
        return not isinstance(layer, nn.Embedding) and any(value.dim() > 1 for value in layer.parameters())
    return node.op in ("call_function", "call_method") and function_name(node) in PRODUCTS + CONVOLUTIONS + ATTENTION


def head_of(steps: Steps, rest: list[fx.Node], kept: list[fx.Node]) -> Head | None:
    """The linear layer that the rest is, if it is nothing else."""
    if len(rest) != 2 or len(kept) != 1 or rest[0].op != "call_module" or rest[1].args != (rest[0],):
        return None
    layer = steps.traced.whole.get_submodule(str(rest[0].target))
    if type(layer) is not nn.Linear or hooks_of(layer) or rest[0].args != (kept[0],) or rest[0].kwargs:
        return None
    names = {own.rpartition(".")[2]: name for own, name in steps.names(layer).items()}
    return Head(names["weight"], names.get("bias"))
