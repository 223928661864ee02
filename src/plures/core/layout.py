"""Convolutions by channels: kernels in the memory order that makes a network work in the faster one."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from plures.core.task import Task
from plures.core.types import Params

FEW = 2
"""Examples on which it is tried whether a network can do with the other order."""
REFUSALS = (RuntimeError, ValueError, TypeError)
"""What a network may raise that takes views of its values."""

_ANSWERS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def has_convolutions(module: nn.Module) -> bool:
    return any(type(layer) is nn.Conv2d for layer in module.modules())


def is_kernel(value: Tensor) -> bool:
    return value.dim() == 4 and value.is_floating_point()


def kernels_by_channels(params: Params) -> Params:
    """With kernels by channels, all that comes out of convolutions is too; `contiguous` would not turn a single one."""
    return {
        name: value.to(memory_format=torch.channels_last) if is_kernel(value) else value
        for name, value in params.items()
    }


def output_by_channels(task: Task, params: Params, inputs: Tensor) -> Tensor:
    """The network's output, by channels where that works; not for gradients, and in evaluation mode."""
    if task.module not in _ANSWERS:
        _ANSWERS[task.module] = has_convolutions(task.module) and answers_alike(task, params, inputs[:FEW])
    return task.output(kernels_by_channels(params) if _ANSWERS[task.module] else params, inputs)


def answers_alike(task: Task, params: Params, inputs: Tensor) -> bool:
    usual = task.output(params, inputs)
    try:
        other = task.output(kernels_by_channels(params), inputs)
    except REFUSALS:
        return False
    return torch.allclose(usual, other, rtol=1e-3, atol=1e-3 * float(usual.abs().max()), equal_nan=True)
