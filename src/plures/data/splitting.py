"""Each client's examples divided into train, validation and test, by ratio."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from plures.core.errors import InvalidConfig, InvalidData, first_of
from plures.data.dealing import Indices, keyed_generator

Ratios = tuple[float, float, float]
"""Shares of train, validation and test; they sum to 1."""

DEFAULT_RATIOS: Ratios = (0.6, 0.2, 0.2)


class ClientIndices(NamedTuple):
    """Positions of one client's examples; those of `test` count in the test set where there is one."""

    train: Indices
    validation: Indices
    test: Indices


def split_clients(
    assigned: Sequence[Indices],
    ratios: Ratios,
    *,
    seed: int,
    names: Sequence[str],
    tests: Sequence[Indices] | None = None,
) -> list[ClientIndices]:
    """Split every client by a shuffle of its own; with test sets, only into train and validation (3:1 by default)."""
    check_ratios(ratios, own_test=tests is not None)
    shares = ratios if tests is None else _without_test(ratios)
    too_small = [
        _too_small(names[client], len(indices), shares)
        for client, indices in enumerate(assigned)
        if split_sizes(len(indices), shares)[0] < 1
    ]
    if too_small:
        raise InvalidData(first_of(too_small))
    split = [split_client(indices, shares, seed=seed, client=client) for client, indices in enumerate(assigned)]
    if tests is None:
        return split
    return [client._replace(test=test) for client, test in zip(split, tests, strict=True)]


def split_client(indices: Indices, ratios: Ratios, *, seed: int, client: int) -> ClientIndices:
    """One client's examples, shuffled by a generator of its own and cut in three."""
    num_train, num_validation, _ = split_sizes(len(indices), ratios)
    shuffled = keyed_generator(seed, "split", client).permutation(indices)
    held_out = shuffled[num_train:]
    return ClientIndices(shuffled[:num_train], held_out[:num_validation], held_out[num_validation:])


def split_sizes(num_examples: int, ratios: Ratios) -> tuple[int, int, int]:
    """Sizes of train, validation and test; what is asked for gets at least one. Train below 1: too few examples."""
    validation, test = (max(1, int(num_examples * ratio + 0.5)) if ratio else 0 for ratio in ratios[1:])
    while num_examples - validation - test < 1 and max(validation, test) > 1:
        if validation > test:
            validation -= 1
        else:
            test -= 1
    return num_examples - validation - test, validation, test


def check_ratios(ratios: Ratios, *, own_test: bool) -> None:
    """An error unless the ratios are three shares that leave something to train and to test on."""
    if len(ratios) != 3 or not all(isfinite(ratio) and ratio >= 0 for ratio in ratios):
        raise InvalidConfig(f"split is {ratios}: give three shares (train, validation, test) such as (0.6, 0.2, 0.2).")
    problems = []
    if abs(sum(ratios) - 1) > 1e-6:
        problems.append(f"split {ratios} sums to {sum(ratios):g}: the shares of train, validation, test sum to 1.")
    if ratios[0] == 0:
        problems.append(f"split {ratios} leaves nothing to train on: give train a positive share.")
    if ratios[2] == 0 and not own_test:
        problems.append(f"split {ratios} leaves nothing to test on: give test a positive share, or give a test set.")
    if problems:
        raise InvalidConfig(problems)


def _without_test(ratios: Ratios) -> Ratios:
    train, validation, _ = ratios
    return train / (train + validation), validation / (train + validation), 0.0


def _too_small(name: str, num_examples: int, ratios: Ratios) -> str:
    parts = ("train", "validation", "test")
    asked = ", ".join(part for part, ratio in zip(parts, ratios, strict=True) if ratio)
    has = "one example" if num_examples == 1 else f"{num_examples} examples"
    return f"Client {name} has {has}, too few for {asked}: use fewer clients, or drop this one."
