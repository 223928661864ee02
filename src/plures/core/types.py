"""The words everything else is written in: parameters, parts, batches, facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

Params = dict[str, Tensor]
"""Flat, named as in `model.named_parameters()`; what a method adds has names of its own."""

Part = str
"""Whose a parameter is: "shared" (and "shared.*") travels, every other part stays on its client."""

SHARED: Part = "shared"
PERSONAL: Part = "personal"
SHARED_BUFFERS: Part = "shared.buffers"
PERSONAL_BUFFERS: Part = "buffers"
RESET_BUFFERS: Part = "reset.buffers"
"""Running statistics forgotten after each visit, and estimated anew for evaluation."""
FROZEN: Part = "frozen"
"""This part and "frozen.*" are the same on all clients from the start: never sent, never moved by rounds."""
KNOWN: Part = "known"
"""This part and "known.*" stay with a client, and the server is told of them: the masks it sends models by."""
CONSTANT_BUFFERS: Part = "frozen.buffers"
"""Buffers that are no running statistics; whatever a layer writes into them is forgotten after the visit."""

Parts = Mapping[str, Part]
"""Every name with its part: total over the parameters and moving buffers of a model."""

Schedule = Callable[[int], float]
"""From the round (the first is 1) to a rate; constant within a round."""


ALIGNED = 64
"""Bytes; torch's own tensors begin at multiples of them."""


class Batch(NamedTuple):
    """Examples of one client: inputs and targets, first dimension the example."""

    inputs: Tensor
    targets: Tensor

    @property
    def num_examples(self) -> int:
        return int(self.targets.shape[0])


class Later:
    """A batch that is fetched when it is first looked at: who sends a client elsewhere need not load its data."""

    def __init__(self, fetch: Callable[[], Batch]) -> None:
        self._fetch = fetch

    @cached_property
    def batch(self) -> Batch:
        return self._fetch()

    @property
    def inputs(self) -> Tensor:
        return self.batch.inputs

    @property
    def targets(self) -> Tensor:
        return self.batch.targets

    @property
    def num_examples(self) -> int:
        return self.batch.num_examples

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.batch)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What weights may depend on: sizes of a client, its cohort and the population."""

    examples: int
    cohort_examples: int
    all_examples: int
    cohort_clients: int
    all_clients: int
    inclusion: float
    """Probability that this client is in a cohort, known before the cohort is drawn."""


def travels(part: Part) -> bool:
    """Whether a part is ever sent: only "shared" and its sub-parts are."""
    return part == SHARED or part.startswith(SHARED + ".")


def stays(part: Part) -> bool:
    """Whether a client keeps a part from visit to visit."""
    return not travels(part) and not is_constant(part)


def is_constant(part: Part) -> bool:
    """Whether a part has its initial value at the start of every visit, for everybody."""
    return part in (RESET_BUFFERS, FROZEN) or part.startswith(FROZEN + ".")


def is_known(part: Part) -> bool:
    """Whether the server is told of what a client keeps."""
    return part == KNOWN or part.startswith(KNOWN + ".")


def is_buffer(part: Part) -> bool:
    """Whether layers write into a part as they run: running statistics, whoever has them, as "gate.buffers"."""
    return part == PERSONAL_BUFFERS or part.endswith("." + PERSONAL_BUFFERS)


def select(params: Params, parts: Parts, accept: Callable[[Part], bool]) -> Params:
    """The parameters whose part is accepted, in order."""
    return {name: value for name, value in params.items() if accept(parts[name])}


def sum_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the values of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def aligned(value: Tensor) -> Tensor:
    """The same numbers where torch itself would have put them.

    Processors round products of matrices otherwise at other places in memory, and what comes from a file, a message or
    numpy may lie anywhere: a run that goes on from a file has to give the bits of one that was not cut.
    """
    return value.clone() if value.device.type == "cpu" and value.data_ptr() % ALIGNED else value
