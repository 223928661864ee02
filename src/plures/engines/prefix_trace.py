"""A network as a graph of its steps: what it does for any number of examples.

What cannot be followed, because it depends on numbers, is left whole; of a network that cannot be followed itself,
the `stages` that it declares are the steps.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from torch import Tensor, fx, nn

from plures.engines.prefix_tracer import FAILURES, Tracer, hooks_of
from plures.engines.prefix_trials import Trials, random_state

ROOT = "network"
"""Name of the given network inside the one that is traced."""


class Whole(nn.Module):
    """The network as a child, so that hooks on the network itself are traced as well."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.network(inputs)
        return result


class Traced(NamedTuple):
    """The steps of a network."""

    whole: Whole
    """Shares its parameters with the network, and nothing else."""
    graph: fx.Graph
    trials: Trials


def trace(network: nn.Module, inputs: Tensor) -> Traced | str:
    """The graph of a network for inputs of that shape, or why there is none."""
    if any(layer._backward_hooks or layer._backward_pre_hooks for layer in network.modules()):
        return "hooks look at gradients on their way back through the network"
    opaque = frozenset[str]()
    while True:
        whole = copied(network)
        before, drawn = plain_state(whole), random_state()
        tracer = Tracer(whole, inputs, opaque)
        try:
            with tracer.functions_recorded():
                graph = tracer.trace(whole)
        except FAILURES as error:
            if tracer.failed in ("", ROOT) or tracer.failed in opaque:
                return staged(network, inputs, f"{type(error).__name__}: {error}".splitlines()[0])
            opaque |= {tracer.failed}
            continue
        tracer.trials.forget_values()
        if drawn != random_state():
            return "the network draws random numbers of its own"
        after = plain_state(whole)
        if any(after[path] != state for path, state in before.items()):
            return "the network changes attributes of its own as it runs, so none of its passes may be left out"
        return Traced(whole, graph, tracer.trials)


def copied(network: nn.Module) -> Whole:
    """A network like it with the same parameters."""
    return Whole(copy.deepcopy(network, {id(value): value for value in network.parameters()}))


def staged(network: nn.Module, inputs: Tensor, why: str) -> Traced | str:
    """The graph of a network that cannot be followed, but says that it is `stages`, one after another."""
    stages = getattr(network, "stages", None)
    if stages is None or hooks_of(network):
        return f"what the network does cannot be known before it runs ({why})"
    paths = {id(module): path for path, module in network.named_modules()}
    if not all(id(stage) in paths for stage in stages):
        return "the network has stages that are no modules of its own"
    graph, trials = fx.Graph(), Trials(whole := copied(network), inputs)
    value = graph.placeholder("inputs")
    for stage in stages:
        value = graph.call_module(f"{ROOT}.{paths[id(stage)]}", (value,))
    graph.output(value)
    for node in list(graph.nodes)[:-1]:
        trials.take(node)
    trials.forget_values()
    return Traced(whole, graph, trials)


def plain_state(module: nn.Module) -> dict[str, dict[str, Any]]:
    """All attributes that are simple values: what a graph takes for granted."""
    simple = (bool, int, float, str, type(None))
    return {
        path: {name: value for name, value in vars(layer).items() if isinstance(value, simple)}
        for path, layer in module.named_modules()
    }
