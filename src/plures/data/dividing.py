"""What a split respects: chance alone, groups that stay whole, or time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from plures.core.errors import InvalidConfig, InvalidData, did_you_mean
from plures.data.datasets import DataSet
from plures.data.dealing import Indices, keyed_generator
from plures.data.splitting import ClientIndices, Divide, Ratios, cut, randomly, undivided

SplitBy = Literal["random", "group", "time"]
"""random: by a shuffle. group: recordings or drawings stay whole. time: the latest examples are tested on."""


def divider(split_by: str, dataset: DataSet, seed: int) -> Divide:
    """How one client's examples are divided; an error if the data set does not know what that takes."""
    known = get_args(SplitBy)
    if split_by not in known:
        raise InvalidConfig(f"split_by is '{split_by}'. {did_you_mean(split_by, known)}")
    if split_by == "group":
        return by_group(_known(dataset, dataset.groups, "group", "which examples belong together"), dataset, seed)
    if split_by == "time":
        return by_time(_known(dataset, dataset.times, "time", "when its examples are from"))
    return randomly(seed)


def by_time(times: Indices) -> Divide:
    """Earlier examples are trained on, later ones validate, the latest are tested on."""
    return lambda indices, ratios, client: cut(indices[np.argsort(times[indices], kind="stable")], ratios)


def by_group(groups: Indices, dataset: DataSet, seed: int) -> Divide:
    """Whole groups, as near to the shares as their sizes allow.

    Groups of one label each (drawings of a character) are divided label by label: of 20 drawings of every
    character, shares of 3/4 and 1/4 leave 15 and 5. Groups with several labels (recordings) are just shuffled.
    """

    def divide(indices: Indices, ratios: Ratios, client: int) -> ClientIndices:
        found, group_of, sizes = np.unique(groups[indices], return_inverse=True, return_counts=True)
        ends = _ends(len(found), ratios)
        if ends is None:
            return undivided(indices)
        order = _order(group_of, dataset.labels[indices], keyed_generator(seed, "split", "group", client))
        places = np.empty(len(found), dtype=np.int64)
        places[order] = np.arange(len(found))
        first, second = _cuts(np.cumsum(sizes[order]), ratios, ends)
        side = np.digitize(places[group_of], [first, second])
        return ClientIndices(*(indices[side == part] for part in range(3)))

    return divide


def refuse_divided_groups(groups: Indices, assigned: Sequence[Indices], names: Sequence[str]) -> None:
    """An error if clients share a group: one would train on what tells of the other's test examples."""
    owners: dict[int, int] = {}
    for client, indices in enumerate(assigned):
        for group in np.unique(groups[indices]).tolist():
            other = owners.setdefault(group, client)
            if other != client:
                both = f"clients {names[other]} and {names[client]} both have examples of group {group}"
                remedy = "deal whole groups, as the rule 'natural' does, or use split_by = 'random'"
                raise InvalidData(f"A split by group would leak, for {both}: {remedy}.")


def _known(dataset: DataSet, values: Indices | None, split_by: str, what: str) -> Indices:
    if values is None:
        problem = f"split_by = '{split_by}' cannot be used, for the data set '{dataset.name}' does not say {what}"
        raise InvalidData(f"{problem}: use split_by = 'random'.")
    return values


def _order(group_of: Indices, labels: Indices, rng: np.random.Generator) -> Indices:
    """Groups in random order; of one label each, with every label spread evenly from first to last."""
    shuffled = rng.permutation(int(group_of.max()) + 1)
    first = np.unique(group_of, return_index=True)[1]
    label_of = labels[first]
    if (labels != label_of[group_of]).any():
        return shuffled
    ranks = np.empty(len(shuffled))
    for label in np.unique(label_of):
        members = shuffled[label_of[shuffled] == label]
        ranks[members] = (np.arange(len(members)) + 0.5) / len(members)
    return shuffled[np.argsort(ranks[shuffled], kind="stable")]


def _ends(num_groups: int, ratios: Ratios) -> tuple[int, int] | None:
    """Groups that are kept for validation and test, and for test: one for each that is asked for."""
    validation, test = (1 if ratio else 0 for ratio in ratios[1:])
    return None if num_groups < 1 + validation + test else (validation + test, test)


def _cuts(totals: Indices, ratios: Ratios, ends: tuple[int, int]) -> tuple[int, int]:
    """How many groups come before validation and before test; `totals` are examples up to each group."""
    wanted = totals[-1] * np.cumsum(ratios)[:2]
    first = min(max(1, _nearest(totals, wanted[0])), len(totals) - ends[0])
    second = min(max(first + ends[0] - ends[1], _nearest(totals, wanted[1])), len(totals) - ends[1])
    return first, second if ratios[1] else first


def _nearest(totals: Indices, wanted: float) -> int:
    return 1 + int(np.abs(totals - wanted).argmin())
