"""Finds everything that is wrong with the data of a federation, before round 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from plures.core.errors import InvalidData
from plures.core.goals import GoalName
from plures.core.types import Batch
from plures.data.client import AnyClientData
from plures.data.federation import Federation
from plures.data.populations import evenly_spaced

MAX_LISTED = 100


def check_federation(federation: Federation, sample: int | None = None) -> None:
    """Raise one error that lists every problem; `sample` clients stand for a population too large to read."""
    if federation.num_clients < 1:
        raise InvalidData("There are no clients: a federation has at least one.")
    problems = list(_problems(federation, evenly_spaced(federation.num_clients, sample)))
    if len(problems) > MAX_LISTED:
        problems = [*problems[:MAX_LISTED], f"And {len(problems) - MAX_LISTED} more problems like these."]
    if problems:
        raise InvalidData(problems)


class _Form(NamedTuple):
    """What all inputs look like: as the first ones do."""

    where: str
    shape: torch.Size
    dtype: torch.dtype


def _problems(federation: Federation, clients: list[int]) -> Iterator[str]:
    form: _Form | None = None
    for client in clients:
        data = federation.client(client)
        where = f"client {federation.name(client)}"
        yield from _problems_of_sizes(data, where, federation.num_examples(client))
        yield from _problems_of_classes(data, where, federation, client)
        for split, batch in data.splits.items():
            if not len(batch.inputs) and not len(batch.targets):
                continue
            form = form or _Form(where, batch.inputs.shape[1:], batch.inputs.dtype)
            place = f"{where}, {split} examples"
            yield from _problems_of_inputs(batch.inputs, place, form)
            yield from _problems_of_targets(batch, place, federation.num_classes(client), federation.goal.name)


def _problems_of_sizes(data: AnyClientData, where: str, stated: int) -> Iterator[str]:
    sizes = {split: batch.num_examples for split, batch in data.splits.items()}
    total = sum(sizes.values())
    if total == 0:
        yield f"{where} is empty: drop it, or give it examples."
    elif total == 1:
        yield f"{where} has one example, which cannot be both trained and tested on: drop it, or give it more."
    else:
        for split in ("train", "test"):
            if sizes[split] == 0:
                yield f"{where} has no {split} examples: drop it, or move some there from its other examples."
    if sizes["train"] != stated:
        yield f"{where} has {sizes['train']} training examples, but num_examples says {stated}: make them agree."


def _problems_of_classes(data: AnyClientData, where: str, federation: Federation, client: int) -> Iterator[str]:
    """Re-indexed targets hide bad labels, so those of the local label space are looked at as they were."""
    if federation.label_space == "global" or federation.goal.name != "classification":
        return
    outside = [label for label in data.classes if not 0 <= label < federation.classes]
    if outside:
        yield f"{where} has label {outside[0]}: {_range_of(federation.classes)}."
    if len(data.classes) != federation.num_classes(client):
        stated = federation.num_classes(client)
        yield f"{where} has {len(data.classes)} classes, but {stated} are stated for it: make them agree."


def _problems_of_inputs(inputs: Tensor, place: str, form: _Form) -> Iterator[str]:
    if inputs.shape[1:] != form.shape:
        shapes = f"{tuple(inputs.shape[1:])}, but those of {form.where} have {tuple(form.shape)}"
        yield f"{place}: inputs have shape {shapes}: give all clients one shape (resize or pad)."
    if inputs.dtype != form.dtype:
        kinds = f"{_kind(inputs.dtype)}, but those of {form.where} are {_kind(form.dtype)}"
        yield f"{place}: inputs are {kinds}: convert them to one type."
    if inputs.is_floating_point() and len(inputs):
        bad = ~torch.isfinite(inputs).reshape(len(inputs), -1).all(dim=1)
        if bool(bad.any()):
            count = f"{int(bad.sum())} of {len(inputs)}"
            first = f"first: example {int(bad.nonzero()[0])}"
            yield f"{place}: {count} have NaN or infinite inputs ({first}): clean or drop them."


def _problems_of_targets(batch: Batch, place: str, num_classes: int, goal: GoalName) -> Iterator[str]:
    if len(batch.inputs) != len(batch.targets):
        yield f"{place}: {len(batch.inputs)} inputs but {len(batch.targets)} labels: give one label per input."
    if goal == "regression":
        yield from _problems_of_numbers(batch.targets, place)
    elif goal == "next_token":
        yield from _problems_of_tokens(batch, place, num_classes)
    elif batch.targets.dtype != torch.int64:
        kind = _kind(batch.targets.dtype)
        yield f"{place}: labels are {kind}: class numbers are whole numbers, convert them to int64."
    else:
        yield from _out_of_range(batch.targets, place, "labels", num_classes)


def _problems_of_numbers(targets: Tensor, place: str) -> Iterator[str]:
    if targets.ndim != 1 or not targets.is_floating_point():
        form = f"{_kind(targets.dtype)} of shape {tuple(targets.shape)}"
        yield f"{place}: targets are {form}: for regression give one float32 number per example."
        return
    bad = ~torch.isfinite(targets)
    if bool(bad.any()):
        count = f"{int(bad.sum())} of {len(targets)} targets are NaN or infinite"
        yield f"{place}: {count} (first: example {int(bad.nonzero()[0])}): clean or drop them."


def _problems_of_tokens(batch: Batch, place: str, num_tokens: int) -> Iterator[str]:
    lengths = batch.inputs.shape[-1], batch.targets.shape[-1]
    if batch.inputs.ndim == batch.targets.ndim == 2 and lengths[0] != lengths[1]:
        yield f"{place}: inputs have {lengths[0]} tokens but targets {lengths[1]}: each has one that follows it."
    for what, tokens in (("inputs", batch.inputs), ("targets", batch.targets)):
        if tokens.ndim != 2 or tokens.dtype != torch.int64:
            form = f"{_kind(tokens.dtype)} of shape {tuple(tokens.shape)}"
            yield f"{place}: {what} are {form}: give tokens as int64 of shape (examples, time)."
        else:
            yield from _out_of_range(tokens, place, f"tokens of the {what}", num_tokens)


def _out_of_range(values: Tensor, place: str, what: str, num_classes: int) -> Iterator[str]:
    bad = (values < 0) | (values >= num_classes)
    if bool(bad.any()):
        count = f"{int(bad.sum())} of {values.numel()} {what} are out of range (first: {int(values[bad][0])})"
        yield f"{place}: {count}: {_range_of(num_classes)}."


def _range_of(num_classes: int) -> str:
    return f"labels go from 0 to {num_classes - 1}; correct them, or state the right num_classes"


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
