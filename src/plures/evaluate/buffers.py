"""Running statistics of a client estimated from its own training data, for the buffer policy `reset`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from plures.core.method import View
from plures.core.program import Binding
from plures.core.types import RESET_BUFFERS, Batch, Params


def estimated_buffers(binding: Binding, params: Params, view: View, train: Batch) -> Params:
    """The statistics of all training examples in one pass: plain averages, not moving ones."""
    task = binding.task
    fresh = {name: binding.values[name].clone() for name in binding.names(RESET_BUFFERS)}
    inputs = task.place(train).inputs
    if len(inputs) < 2:  # one example has no spread: the initial statistics stay
        return fresh
    with torch.no_grad(), only_statistics(task.module):
        task.output(view(params | fresh, inputs), inputs)
    return fresh


@contextmanager
def only_statistics(module: nn.Module) -> Iterator[None]:
    """Let normalisation layers gather plain averages while all other layers (dropout) are as in evaluation."""
    modes = [(each, each.training) for each in module.modules()]
    layers = [layer for layer in module.modules() if isinstance(layer, _NormBase)]
    momenta = [layer.momentum for layer in layers]
    module.eval()
    for layer in layers:
        layer.train()
        layer.momentum = None
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for each, mode in modes:
            each.training = mode
