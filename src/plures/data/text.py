"""Text as numbers: how it is cut into tokens, a vocabulary of the commonest ones, sequences of one length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plures.core.errors import InvalidData
from plures.data.dealing import Indices

PAD, BOS, EOS, OOV = range(4)
"""Filling after the end, the start of a sequence, the end of a text, any word that is not in the vocabulary."""

SPECIAL = ("<pad>", "<bos>", "<eos>", "<oov>")

WORDS_PER_SEQUENCE = 20
CHARACTERS_PER_SEQUENCE = 80

TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*|\S")


def words_of(text: str) -> list[str]:
    """The tokens of a text: a run of letters and digits, with any apostrophes inside it, or one other sign.

    All in lower case, white space left out: "I don't, O_2!" has the tokens i, don't, the comma, o, _, 2 and !.
    """
    return TOKEN.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Words by number: the four special ones, then the others from the commonest on; build it on training text only.

    Characters are words of one letter here.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[: len(SPECIAL)] != SPECIAL or len(set(self.words)) < len(self.words):
            raise InvalidData(f"A vocabulary begins with {', '.join(SPECIAL)} and has no word twice.")

    @classmethod
    def of(cls, tokens: Iterable[str], size: int | None = None) -> Vocabulary:
        """The `size` commonest tokens; without `size`, all of them."""
        return cls.from_counts(Counter(tokens), size)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], size: int | None = None) -> Vocabulary:
        """The same from how often each token occurs; of equally common ones the first in the alphabet comes first."""
        met = [word for word, count in counts.items() if count > 0 and word not in SPECIAL]
        common = sorted(met, key=lambda word: (-counts[word], word))
        return cls(words=(*SPECIAL, *common[:size]))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, tokens: Sequence[str]) -> Indices:
        """The number of each token; of one that is not in the vocabulary, that of <oov>."""
        found = (self.numbers.get(token, OOV) for token in tokens)
        return np.fromiter(found, dtype=np.int64, count=len(tokens))

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The word of each number."""
        return [self.words[number] for number in numbers]


def sequences(tokens: Indices, length: int) -> tuple[Indices, Indices]:
    """One text as inputs and targets of shape (pieces, length): at each place the target is the token that follows.

    A text is cut into pieces of `length` tokens. The inputs of a piece are <bos> and its tokens but for the last; its
    targets are its tokens. Where the text ends within a piece, <eos> is the last target; then comes padding:
    with length 4, the text "a b c d e f" has inputs "<bos> a b c" and "<bos> e f <pad>", targets "a b c d" and
    "e f <eos> <pad>".
    """
    num_pieces = -(-len(tokens) // length)
    padded = np.full(num_pieces * length, PAD, dtype=np.int64)
    padded[: len(tokens)] = tokens
    padded[len(tokens) : len(tokens) + 1] = EOS  # nowhere, if the last piece is full
    targets = padded.reshape(num_pieces, length)
    inputs = np.empty_like(targets)
    inputs[:, 0] = BOS
    inputs[:, 1:] = targets[:, :-1]
    inputs[inputs == EOS] = PAD
    return inputs, targets
