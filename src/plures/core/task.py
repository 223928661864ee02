"""A network and a loss as pure functions of named parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from plures.core.types import Batch, Params, aligned

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output of the network, targets) -> mean loss."""


Augment = Callable[[Tensor, torch.Generator], Tensor]
"""(inputs of a batch, generator) -> the inputs to train on: crops, flips, turns."""


class Task:
    """Runs one network on parameters that are passed in; its own copy of them is never used or changed."""

    def __init__(self, module: nn.Module, loss: Loss, device: torch.device, augment: Augment | None = None) -> None:
        self.module = copy.deepcopy(module).to(device)
        self.loss_function = loss
        self.augment = augment
        self.device = device
        parameters = dict(self.module.named_parameters())
        self.parameters: Params = {name: value.detach() for name, value in parameters.items()}
        self.buffers: Params = {name: value.detach() for name, value in self.module.named_buffers()}
        self.moving_buffers: Params = {name: value.detach() for name, value in moving_buffers(self.module).items()}
        self.names = (*self.parameters, *self.buffers)
        # A layer that its owner holds in evaluation mode stays there while the rest is trained.
        self._training_modes = [(layer, layer.training or not module.training) for layer in self.module.modules()]
        self._mode: bool | None = None
        self.needs_pairs = any(isinstance(layer, _BatchNorm) for layer in self.module.modules())
        """Whether a batch of one example is too small: batch normalisation refuses it."""
        self.dtype = next((value.dtype for value in self.parameters.values()), torch.get_default_dtype())
        self.tied = len(parameters) < len(list(self.module.named_parameters(remove_duplicate=False)))

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off."""
        if self._mode != mode:
            for layer, trained in self._training_modes:
                layer.training = mode and trained
            self._mode = mode

    def trained_layers(self) -> list[nn.Module]:
        """Layers that training mode is for: those that their owner does not hold in evaluation mode."""
        return [layer for layer, trained in self._training_modes if trained]

    def output(self, params: Params, inputs: Tensor) -> Tensor:
        seen = {name: params[name] for name in self.names}
        result: Tensor = functional_call(self.module, seen, (inputs,), tie_weights=self.tied)
        return result

    def seen(self, params: Params, inputs: Tensor) -> Params:
        """The parameters as these inputs meet them; a network that gates its own is asked."""
        return params | self.ask("parameters", params, inputs) if hasattr(self.module, "gates") else params

    def ask(self, what: str, params: Params, inputs: Tensor) -> Params:
        """Something else than its output from a network that can tell it."""
        told: Params = functional_call(self.module, {name: params[name] for name in self.names}, (inputs, what))
        return told

    def loss(self, params: Params, batch: Batch) -> Tensor:
        return self.loss_function(self.output(params, batch.inputs), batch.targets)

    def place(self, batch: Batch) -> Batch:
        """The batch on the network's device and, if its inputs are real numbers, in its precision."""
        dtype = self.dtype if batch.inputs.is_floating_point() else batch.inputs.dtype
        targets_dtype = self.dtype if batch.targets.is_floating_point() else batch.targets.dtype
        return Batch(aligned(batch.inputs.to(self.device, dtype)), batch.targets.to(self.device, targets_dtype))


def moving_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that training changes: running statistics. Other buffers are constants of the network."""
    found: dict[str, Tensor] = {}
    for prefix, layer in module.named_modules():
        if getattr(layer, "track_running_stats", False) or hasattr(layer, "running_mean"):
            for name, value in layer.named_buffers(prefix, recurse=False):
                found[name] = value
    return found
