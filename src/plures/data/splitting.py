"""Each client's examples divided into train, validation and test, by ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


Divide = Callable[[Indices, Ratios, int], ClientIndices]
"""(one client's examples, shares, its number) -> its splits; what cannot be divided is left to train on."""


def split_clients(
    assigned: Sequence[Indices],
    ratios: Ratios,
    *,
    seed: int,
    names: Sequence[str],
    tests: Sequence[Indices] | None = None,
) -> list[ClientIndices]:
    """Split every client by a shuffle of its own; with test sets, only into train and validation (3:1 by default)."""
    split = divide_clients(assigned, ratios, randomly(seed), tests)
    refuse_small_clients(split, ratios, names, own_test=tests is not None)
    return split


def divide_clients(
    assigned: Sequence[Indices], ratios: Ratios, divide: Divide, tests: Sequence[Indices] | None = None
) -> list[ClientIndices]:
    """The splits of every client; some may lack what was asked for."""
    check_ratios(ratios, own_test=tests is not None)
    shares = ratios if tests is None else without_test(ratios)
    split = [divide(indices, shares, client) for client, indices in enumerate(assigned)]
    if tests is None:
        return split
    return [client._replace(test=test) for client, test in zip(split, tests, strict=True)]


def randomly(seed: int) -> Divide:
    """Each client's examples shuffled by a generator of its own."""
    return lambda indices, ratios, client: split_client(indices, ratios, seed=seed, client=client)


def split_client(indices: Indices, ratios: Ratios, *, seed: int, client: int) -> ClientIndices:
    """One client's examples, shuffled by a generator of its own and cut in three."""
    return cut(keyed_generator(seed, "split", client).permutation(indices), ratios)


def cut(in_order: Indices, ratios: Ratios) -> ClientIndices:
    """The first examples to train on, the next to validate, the last to test."""
    num_train, num_validation, _ = split_sizes(len(in_order), ratios)
    if num_train < 1:
        return undivided(in_order)
    held_out = in_order[num_train:]
    return ClientIndices(in_order[:num_train], held_out[:num_validation], held_out[num_validation:])


def undivided(indices: Indices) -> ClientIndices:
    """Too few to be divided."""
    return ClientIndices(indices, indices[:0], indices[:0])


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


def without_test(ratios: Ratios) -> Ratios:
    """The shares of train and validation where there are test examples already."""
    train, validation, _ = ratios
    return train / (train + validation), validation / (train + validation), 0.0


def refuse_small_clients(
    split: Sequence[ClientIndices], ratios: Ratios, names: Sequence[str], *, own_test: bool
) -> None:
    """An error that names every client which lacks a split that was asked for."""
    shares = without_test(ratios) if own_test else ratios
    problems = []
    for client, name in zip(split, names, strict=True):
        asked = [part for part, share in zip(ClientIndices._fields, shares, strict=True) if share]
        if not all(len(getattr(client, part)) for part in asked):
            problems.append(_too_small(name, sum(len(getattr(client, part)) for part in asked), asked))
        elif not len(client.test):
            problems.append(f"Client {name} has no test examples: drop it (min_test), or use the test rule 'own'.")
    if problems:
        raise InvalidData(first_of(problems))


def _too_small(name: str, num_examples: int, asked: Sequence[str]) -> str:
    has = "one example" if num_examples == 1 else f"{num_examples} examples"
    return f"Client {name} has {has}, too few for {', '.join(asked)}: use fewer clients, or drop this one."
