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

EXAMPLES_AT_ONCE = 4096


def estimated_buffers(binding: Binding, params: Params, view: View, train: Batch) -> Params:
    """The statistics after one pass over the training data: averages over it, not moving averages."""
    task = binding.task
    fresh = {name: binding.values[name].clone() for name in binding.names(RESET_BUFFERS)}
    batch = task.place(train)
    was_training = task.module.training
    task.train(True)
    with torch.no_grad(), plain_averages(task.module):
        for inputs in torch.split(batch.inputs, EXAMPLES_AT_ONCE):
            task.output(view(params | fresh, inputs), inputs)
    task.train(was_training)
    return fresh


@contextmanager
def plain_averages(module: nn.Module) -> Iterator[None]:
    """Let normalisation layers average over all batches instead of fading old ones out."""
    layers = [layer for layer in module.modules() if isinstance(layer, _NormBase)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = None
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
