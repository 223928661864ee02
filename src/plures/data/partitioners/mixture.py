"""Clients of several kinds in one federation: a share of the examples dealt by each of several rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from torch import Tensor

from plures.core.errors import InvalidConfig
from plures.core.seeds import derive_seed
from plures.data.dealing import Indices, Owners, apportion, by_client, keyed_generator
from plures.data.partitioners.following import follow_training
from plures.data.partitioners.protocols import PURPOSE, AnyPartitioner, ChangesInputs, NeedsDataSet, Partitioner


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The first rule's clients come first, then the second's. A rule sees only its own share of the examples."""

    shares: tuple[float, ...]
    rules: tuple[Partitioner, ...]

    @property
    def num_clients(self) -> int:
        return sum(rule.num_clients for rule in self.rules)

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        found: list[Indices] = []
        for number, own in enumerate(by_client(self._owners(len(labels), seed), len(self.rules))):
            dealt = self.rules[number].assign(labels[own], self._seed(seed, number))
            found += [own[positions] for positions in dealt]
        return found

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        """Test examples of a class go to the rules as its training examples do."""
        rng = keyed_generator(seed, PURPOSE, "mixture", "test")
        owners = self._owners(len(labels), seed)
        tested = follow_training(owners, labels, test_labels, len(self.rules), rng)
        found: list[Indices] = []
        for number, rule in enumerate(self.rules):
            own = np.flatnonzero(tested == number)
            dealt = rule.assign_test(labels[owners == number], test_labels[own], self._seed(seed, number))
            found += [own[positions] for positions in dealt]
        return found

    def refuse_inputs(self, inputs: Tensor) -> None:
        for rule in self.rules:
            if isinstance(rule, ChangesInputs):
                rule.refuse_inputs(inputs)

    def change(self, inputs: Tensor, *, client: int, split: str, seed: int) -> Tensor:
        """By the rule that the client is of, if it changes inputs."""
        for number, rule in enumerate(self.rules):
            if client < rule.num_clients:
                if not isinstance(rule, ChangesInputs):
                    break
                return rule.change(inputs, client=client, split=split, seed=self._seed(seed, number))
            client -= rule.num_clients
        return inputs

    def _owners(self, num_examples: int, seed: int) -> Owners:
        """The rule that deals each example."""
        sizes = apportion(num_examples, np.array(self.shares))
        in_order = np.repeat(np.arange(len(self.rules)), sizes)
        return keyed_generator(seed, PURPOSE, "mixture").permutation(in_order)

    def _seed(self, seed: int, number: int) -> int:
        """Two equal rules do not deal equally."""
        return derive_seed(seed, PURPOSE, "mixture", number)


def mixture(parts: Sequence[tuple[float, AnyPartitioner]]) -> Mixture:
    """Pairs (share of the examples, rule); the shares sum to 1."""
    problems = []
    if not parts:
        problems.append("mixture has no parts: give pairs (share, rule), such as (0.5, iid(10)).")
    for share, rule in parts:
        if isinstance(share, bool) or not isinstance(share, int | float) or not (isfinite(share) and share > 0):
            problems.append(f"A share of the mixture is {share!r}: it must be a number above 0.")
        if isinstance(rule, NeedsDataSet):
            kind = type(rule).__name__
            problems.append(f"{kind} needs the whole data set, so it cannot be a part of a mixture: use it alone.")
    if not problems and abs(sum(share for share, _ in parts) - 1) > 1e-6:
        problems.append(f"The shares of the mixture sum to {sum(share for share, _ in parts):g}: they sum to 1.")
    if problems:
        raise InvalidConfig(problems)
    rules = tuple(rule for _, rule in parts if not isinstance(rule, NeedsDataSet))
    return Mixture(shares=tuple(float(share) for share, _ in parts), rules=rules)
