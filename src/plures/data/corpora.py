"""From texts with their authors to a data set of sequences, whose vocabulary is learnt from training texts alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch

from plures.core.errors import InvalidData, first_of
from plures.core.goals import next_token
from plures.core.types import Batch
from plures.data.datasets import DataSet
from plures.data.dealing import Indices
from plures.data.text import CHARACTERS_PER_SEQUENCE, SPECIAL, WORDS_PER_SEQUENCE, Vocabulary, sequences, words_of

Unit = Literal["word", "character"]
UNITS = get_args(Unit)


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """One text of one client, as tokens."""

    owner: str
    tokens: Sequence[str]
    time: int | None = None
    """When it was written, such as a day's number; without it, texts count as written in the order they come in."""
    test: bool = False


@dataclass(frozen=True)
class FitVocabulary:
    """Renumbers tokens: the `size` commonest of the training sequences get numbers of their own, all others <oov>."""

    size: int | None

    def __call__(self, dataset: DataSet, train: Indices) -> DataSet:
        # Targets hold every token once, inputs all but the last of a piece.
        seen = dataset.examples.targets.numpy()[train]
        counts = np.bincount(seen.ravel(), minlength=len(dataset.class_names))
        met = zip(dataset.class_names, counts.tolist(), strict=True)
        vocabulary = Vocabulary.from_counts(dict(met), self.size)
        numbers = torch.from_numpy(vocabulary.encode(dataset.class_names))
        return replace(
            dataset,
            examples=Batch(*(numbers[tokens] for tokens in dataset.examples)),
            test=None if dataset.test is None else Batch(*(numbers[tokens] for tokens in dataset.test)),
            class_names=vocabulary.words,
        )


def tokens_of(text: str, unit: Unit) -> Sequence[str]:
    """Words by the rule of `words_of`, or characters as they are."""
    return words_of(text) if unit == "word" else text


def usual_length(unit: Unit) -> int:
    """Tokens of a sequence unless said otherwise."""
    return WORDS_PER_SEQUENCE if unit == "word" else CHARACTERS_PER_SEQUENCE


def text_dataset(
    name: str, texts: Iterable[Text], *, length: int, vocabulary: int | None, whole_texts: bool = False
) -> DataSet:
    """Sequences of `length` tokens, owned by the texts' owners; with `whole_texts`, all of a text are one group.

    Until it is fitted, the vocabulary has every token, in the order of their first occurrence.
    """
    train, test = _Pieces(), _Pieces()
    numbers, owners = _numbering(*SPECIAL), _numbering()
    for text in texts:
        tokens = np.fromiter((numbers[token] for token in text.tokens), np.int64, len(text.tokens))
        (test if text.test else train).add(*sequences(tokens, length), owners[text.owner], text.time)
    _refuse_untrained(name, tuple(owners), train)
    return DataSet(
        name=name,
        examples=train.batch(),
        test=test.batch() if test.inputs else None,
        owners=train.for_each_piece(train.owners),
        test_owners=test.for_each_piece(test.owners) if test.inputs else None,
        owner_names=tuple(owners),
        groups=train.for_each_piece(range(len(train.inputs))) if whole_texts else None,
        times=train.times_of_pieces(),
        class_names=tuple(numbers),
        goal=next_token(),
        fit=FitVocabulary(vocabulary),
    )


class _Pieces:
    """Sequences of train or of test, text by text."""

    def __init__(self) -> None:
        self.inputs: list[Indices] = []
        self.targets: list[Indices] = []
        self.owners: list[int] = []
        self.times: list[int | None] = []

    def add(self, inputs: Indices, targets: Indices, owner: int, time: int | None) -> None:
        if len(inputs):
            self.inputs.append(inputs)
            self.targets.append(targets)
            self.owners.append(owner)
            self.times.append(time)

    def batch(self) -> Batch:
        return Batch(*(torch.from_numpy(np.concatenate(part)) for part in (self.inputs, self.targets)))

    def for_each_piece(self, values: Iterable[int]) -> Indices:
        return np.repeat(np.fromiter(values, np.int64, len(self.inputs)), [len(pieces) for pieces in self.inputs])

    def times_of_pieces(self) -> Indices:
        known = [time for time in self.times if time is not None]
        if len(known) == len(self.times):
            return self.for_each_piece(known)
        return np.arange(sum(len(pieces) for pieces in self.inputs))


def _numbering(*first: str) -> defaultdict[str, int]:
    """Gives each word that is asked for the next number, from 0."""
    numbers = defaultdict(None, {word: number for number, word in enumerate(first)})
    numbers.default_factory = numbers.__len__
    return numbers


def _refuse_untrained(name: str, owners: tuple[str, ...], train: _Pieces) -> None:
    if not train.inputs:
        raise InvalidData(f"{name}: there is no text to train on: give files with text, or ask less of clients.")
    untrained = sorted(set(range(len(owners))) - set(train.owners))
    if untrained:
        lines = [
            f"{name}: client '{owners[owner]}' has no training text: give it some, or remove it" for owner in untrained
        ]
        raise InvalidData(first_of([f"{line}." for line in lines]))
