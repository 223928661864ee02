"""Examples of a client that a run has never seen, checked against what the run's network takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plures.core.errors import InvalidData, did_you_mean
from plures.core.types import Batch
from plures.data import Federation, from_arrays
from plures.data.tables import Features

LOOKED_AT = 8
"""Clients of the run whose inputs say what range is usual."""


def fitted(inputs: Any, targets: Any, federation: Federation) -> Batch:
    """Examples in the form in which the run's data are held; whatever does not fit is one clear error."""
    held = federation.population.load(0).train
    examples = Batch(as_held(inputs, held.inputs, federation), as_targets(targets, federation))
    sizes = len(examples.inputs), len(examples.targets)
    if sizes[0] != sizes[1]:
        raise InvalidData(f"There are {sizes[0]} inputs but {sizes[1]} targets: give one target for each input.")
    if not sizes[0]:
        raise InvalidData("There are no examples: a newcomer needs some to get a model of its own.")
    if examples.targets.shape[1:] != held.targets.shape[1:]:
        raise InvalidData(
            f"The targets have shape {tuple(examples.targets.shape)}, those of the run "
            f"{('examples', *held.targets.shape[1:])}: give the same form."
        )
    return examples


def as_held(inputs: Any, like: Tensor, federation: Federation) -> Tensor:
    """Inputs with the shape and type of the run's; numbers that are none are refused where they mean nothing."""
    given = as_tensor(inputs, "inputs")
    if given.shape[1:] != like.shape[1:]:
        raise InvalidData(
            f"The inputs have shape {tuple(given.shape)}, but the run's have (examples, "
            f"{', '.join(map(str, like.shape[1:]))}). Give them in that shape (images: channels first)."
        )
    if not like.is_floating_point():
        return as_whole(given, like, federation)
    if not isinstance(federation.prepare, Features) and not bool(torch.isfinite(given.double()).all()):
        raise InvalidData("The inputs have numbers that are not finite: correct them, or drop these examples.")
    if not given.is_floating_point() and not isinstance(federation.prepare, Features):
        check_whole(given, like)
    return given.to(like.dtype)


def check_whole(given: Tensor, like: Tensor) -> None:
    """Whole numbers for real ones are bytes that were not prepared, unless the run's own are whole too."""
    if like.numel() and not torch.equal(like, like.round()):
        raise InvalidData(
            f"The inputs are {given.dtype}, but those of the run are {like.dtype}, from {float(like.min()):.3g} to "
            f"{float(like.max()):.3g}: give real numbers, scaled as those of the run are."
        )


def as_whole(given: Tensor, like: Tensor, federation: Federation) -> Tensor:
    """Bytes of images or numbers of tokens."""
    most = 255 if like.dtype == torch.uint8 else federation.classes - 1
    what = "bytes from 0 to 255, as they come from image files" if like.dtype == torch.uint8 else "numbers of tokens"
    if given.is_floating_point():
        raise InvalidData(f"The inputs are {given.dtype}, but those of the run are {what}: do not scale them.")
    if given.numel() and (int(given.min()) < 0 or int(given.max()) > most):
        raise InvalidData(
            f"The inputs go from {int(given.min())} to {int(given.max())}, but those of the run are "
            f"{what}, at most {most}."
        )
    return given.to(like.dtype)


def as_tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidData(f"The {what} are of different lengths: give them in one shape.") from None
    if array.dtype.kind not in "biuf":
        raise InvalidData(f"The {what} are of type {array.dtype}, not numbers.")
    # torch takes no foreign byte order, and warns of arrays that may not be written to.
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), requirements=["C", "W"]))


def as_targets(targets: Any, federation: Federation) -> Tensor:
    """Class numbers, names of classes as the run has them, numbers to predict, or tokens."""
    goal = federation.goal.name
    if goal == "classification" and has_words(targets):
        return by_names([str(word).strip() for word in targets], federation)
    if goal == "regression" and has_words(targets):
        targets = as_numbers(targets)
    values = as_tensor(targets, "targets")
    zeros = torch.zeros(values.shape if goal == "next_token" else (len(values), 1), dtype=torch.int64)
    found = from_arrays(zeros, values, goal).targets if len(values) else values
    if goal != "regression" and len(found):
        least, most = int(found.min()), int(found.max())
        if least < 0 or most >= federation.classes:
            raise InvalidData(
                f"The targets go from {least} to {most}, but the run has classes 0 to {federation.classes - 1}: a "
                "newcomer can only have classes that the network has."
            )
    return found


def has_words(targets: Any) -> bool:
    return not isinstance(targets, Tensor) and np.asarray(targets).dtype.kind in "UO"


def as_numbers(texts: Sequence[str]) -> np.ndarray:
    found = []
    for row, text in enumerate(texts, 1):
        try:
            found.append(float(text))
        except ValueError:
            raise InvalidData(f"Row {row} has the target '{text}', but the run predicts numbers.") from None
    return np.array(found)


def by_names(words: Sequence[str], federation: Federation) -> Tensor:
    """Class numbers from names; where classes have no names, their numbers are."""
    names = list(federation.class_names) or [str(number) for number in range(federation.classes)]
    places = {name: number for number, name in enumerate(names)}
    for word in words:
        if word not in places:
            raise InvalidData(f"The run has no class '{word}'. {did_you_mean(word, names[:50])}")
    return torch.tensor([places[word] for word in words], dtype=torch.int64)


def other_range(inputs: Tensor, federation: Federation) -> str | None:
    """A word of warning where inputs are far larger or smaller than any that the run has seen."""
    if not inputs.is_floating_point() or isinstance(federation.prepare, Features):
        return None
    seen = [federation.population.load(n).train.inputs for n in range(min(LOOKED_AT, federation.num_clients))]
    usual = max(float(values.abs().max()) for values in seen if values.numel())
    own = float(inputs.abs().max())
    if usual == 0 or 0.1 <= own / usual <= 10:
        return None
    return f"Inputs go up to {own:.3g}, those of the run up to {usual:.3g}: are they scaled alike?"
