"""One form for all examples: float inputs and int64 labels, numbers to predict, or tokens; from arrays or a Dataset."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from plures.core.errors import InvalidData
from plures.core.goals import GoalName
from plures.core.types import Batch

Examples = Batch
"""Examples before they belong to anyone have the form of a client's examples."""

Array = Tensor | ArrayLike


class MapStyle(Protocol):
    """A map-style torch Dataset: a length, and items (input, label)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Given = Batch | tuple[Array, Array] | MapStyle
"""What a user may give as examples."""


def as_examples(given: Given, goal: GoalName = "classification") -> Batch:
    """Examples from a pair (inputs, labels), which a Batch is too, or from a map-style Dataset."""
    if isinstance(given, tuple):
        if len(given) != 2:
            raise InvalidData(f"Examples are a pair (inputs, labels), but a tuple of {len(given)} was given.")
        return from_arrays(given[0], given[1], goal)
    return from_dataset(given, goal)


def from_arrays(inputs: Array, labels: Array, goal: GoalName = "classification") -> Batch:
    """Examples from two arrays of numpy or torch; float arrays in a usable form are not copied.

    Targets are class numbers, float32 numbers for regression, or for next_token the tokens (N, T) that follow those
    of the inputs.
    """
    if goal == "next_token":
        examples = _as_tokens(inputs, labels)
    else:
        examples = Batch(_as_inputs(inputs), _as_numbers(labels) if goal == "regression" else _as_labels(labels))
    num_inputs, num_labels = len(examples.inputs), len(examples.targets)
    if num_inputs != num_labels:
        raise InvalidData(f"There are {num_inputs} inputs but {num_labels} labels: give one label per input.")
    if num_inputs == 0:
        raise InvalidData("There are no examples: the arrays are empty.")
    return examples


def from_dataset(dataset: MapStyle, goal: GoalName = "classification") -> Batch:
    """Examples from a map-style Dataset whose items are pairs (input, label)."""
    num_examples = _length(dataset)
    first_input, _ = _item(dataset, 0)
    # Filled in place: a list of items would need the memory twice.
    inputs = torch.empty((num_examples, *first_input.shape), dtype=first_input.dtype)
    labels = np.empty(num_examples, dtype=np.float64)
    for index in range(num_examples):
        item, labels[index] = _item(dataset, index)
        if item.shape != first_input.shape:
            shapes = f"{tuple(item.shape)}, but item 0 has {tuple(first_input.shape)}"
            raise InvalidData(f"Item {index} of the data set has shape {shapes}: resize or pad the inputs.")
        inputs[index] = item
    return from_arrays(inputs, labels, goal)


def _length(dataset: MapStyle) -> int:
    try:
        num_examples = len(dataset)
    except TypeError as error:
        kind = type(dataset).__name__
        remedy = "give arrays (inputs, labels), or a map-style Dataset with __len__ and __getitem__"
        raise InvalidData(f"Examples cannot be read from a {kind}, which has no length: {remedy}.") from error
    if num_examples == 0:
        raise InvalidData("There are no examples: the data set is empty.")
    return num_examples


def _item(dataset: MapStyle, index: int) -> tuple[Tensor, float]:
    item = dataset[index]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InvalidData(f"Item {index} of the data set is not a pair (input, label).")
    label = item[1].item() if isinstance(item[1], Tensor) and item[1].numel() == 1 else item[1]
    try:
        return _as_inputs(item[0]), float(label)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"The label of item {index} of the data set is {label!r}, not a whole number.") from error


def _as_inputs(values: Array) -> Tensor:
    tensor = _as_tensor(values, "inputs")
    if tensor.is_complex():
        raise InvalidData("The inputs are complex numbers: give their real and imaginary parts as features.")
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.to(torch.float32)


def _as_labels(values: Array) -> Tensor:
    tensor = _as_tensor(values, "labels")
    if tensor.ndim != 1:
        remedy = "give one class number per example (labels.ravel(), or labels.argmax(1) if one-hot)"
        raise InvalidData(f"The labels have shape {tuple(tensor.shape)}: {remedy}.")
    if tensor.is_floating_point() or tensor.is_complex():
        whole = torch.isfinite(tensor) & (tensor == tensor.to(torch.int64))
        if not bool(whole.all()):
            index = int((~whole).nonzero()[0])
            remedy = "class numbers are whole numbers from 0"
            raise InvalidData(f"The label of example {index} is {tensor[index].item()}: {remedy}.")
    return tensor.to(torch.int64)


def _as_numbers(values: Array) -> Tensor:
    """Targets of a regression."""
    tensor = _as_tensor(values, "targets")
    if tensor.ndim != 1 or tensor.is_complex():
        what = "complex numbers" if tensor.is_complex() else f"of shape {tuple(tensor.shape)}"
        raise InvalidData(f"The targets are {what}: give one real number per example (targets.ravel()).")
    numbers = tensor.to(torch.float32)
    finite = torch.isfinite(numbers)
    if not bool(finite.all()):
        index = int((~finite).nonzero()[0])
        raise InvalidData(f"The target of example {index} is {tensor[index].item()}: correct it, or drop the example.")
    return numbers


def _as_tokens(inputs: Array, targets: Array) -> Batch:
    """Tokens and, for each, the one that follows it."""
    tensors = [_as_tensor(inputs, "inputs"), _as_tensor(targets, "targets")]
    for what, tensor in zip(("inputs", "targets"), tensors, strict=True):
        if tensor.ndim != 2 or tensor.is_floating_point() or tensor.is_complex():
            form = f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
            raise InvalidData(f"The {what} are {form}: tokens are whole numbers of shape (examples, time).")
    if len(tensors[0]) == len(tensors[1]) and tensors[0].shape != tensors[1].shape:
        shapes = f"{tuple(tensors[0].shape)} and {tuple(tensors[1].shape)}"
        raise InvalidData(f"Inputs and targets have shapes {shapes}: each token of the inputs has one that follows it.")
    return Batch(*(tensor.to(torch.int64) for tensor in tensors))


def _as_tensor(values: Array, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    try:
        array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
    except ValueError as error:
        raise InvalidData(f"The {what} do not form one array: give all of them the same shape.") from error
    if array.dtype.kind not in "biufc":
        remedy = "encode them, for example with numpy.unique(labels, return_inverse=True)"
        raise InvalidData(f"The {what} are of type {array.dtype}, not numbers: {remedy}.")
    if not array.flags.writeable or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # torch takes neither as it is
    return torch.from_numpy(array)
