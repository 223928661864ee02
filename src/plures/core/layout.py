"""Convolutions on processors: kernels in the memory order that is faster, and no more examples than caches hold."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from plures.core.task import Task
from plures.core.types import Params

FEW = 2
"""Examples on which it is tried whether a network can do with the other order."""
PORTION = 128
"""Examples that go through convolutions together: what their layers give then stays in the processor's caches."""
REFUSALS = (RuntimeError, ValueError, TypeError)
"""What a network may raise that takes views of its values."""

_ANSWERS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_APART: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


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


def laid_like(pattern: Tensor, value: Tensor) -> Tensor:
    """A tensor made of a kernel: by channels if that was. Only strides tell, where there is one channel."""
    turned = is_kernel(pattern) and pattern.stride(1) == 1 and pattern.shape[2:].numel() > 1
    return value.to(memory_format=torch.channels_last) if turned else value


def can_divide(module: nn.Module) -> bool:
    """Whether it is worth while, and examples do not choose their network together."""
    return has_convolutions(module) and not hasattr(module, "gates")


def is_large(inputs: Tensor) -> bool:
    """Accelerators like a batch the better the larger it is."""
    return len(inputs) > PORTION and inputs.device.type == "cpu"


def portions(values: Tensor) -> tuple[Tensor, ...]:
    """All about as large."""
    return torch.tensor_split(values, -(-len(values) // PORTION))


def output_by_channels(task: Task, params: Params, inputs: Tensor) -> Tensor:
    """The network's output, by channels and in portions where that works; not for gradients, and in evaluation mode."""
    module, shown = task.module, shown_by_channels(task, params, inputs)
    if not is_large(inputs) or not can_divide(module) or not _APART.get(module, True):
        return task.output(shown, inputs)
    divided = torch.cat([task.output(shown, some) for some in portions(inputs)])
    if module not in _APART:
        whole = task.output(shown, inputs)
        _APART[module] = near(whole, divided)
        return divided if _APART[module] else whole
    return divided


def shown_by_channels(task: Task, params: Params, inputs: Tensor) -> Params:
    """The parameters by channels, where the network's output is the same then."""
    module = task.module
    if module not in _ANSWERS:
        _ANSWERS[module] = has_convolutions(module) and answers_alike(task, params, inputs[:FEW])
    return kernels_by_channels(params) if _ANSWERS[module] else params


def answers_alike(task: Task, params: Params, inputs: Tensor) -> bool:
    usual = task.output(params, inputs)
    try:
        other = task.output(kernels_by_channels(params), inputs)
    except REFUSALS:
        return False
    return near(usual, other)


def near(usual: Tensor, other: Tensor) -> bool:
    return torch.allclose(usual, other, rtol=1e-3, atol=1e-3 * float(usual.abs().max()), equal_nan=True)
