"""Which clients' gates are alike, and whether those are clients with like labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import dendrogram, fcluster, linkage
from scipy.spatial.distance import pdist
from scipy.stats import rankdata

from plures.core.errors import InvalidData

PERMUTATIONS = 9_999


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Clients by the distance of their gates, after Ward."""

    clients: tuple[int, ...]
    tree: np.ndarray
    """Scipy's linkage matrix: which two are joined, at which distance, and how many clients that makes."""
    correlation: float
    """Spearman's, of gate distance and Jaccard distance of label sets over all pairs of clients."""
    p_value: float
    """Share of permutations of the clients with a correlation at least as large."""

    def groups(self, count: int) -> dict[int, list[int]]:
        """The clients in so many groups."""
        numbers = fcluster(self.tree, count, criterion="maxclust")
        found: dict[int, list[int]] = {}
        for client, number in zip(self.clients, numbers.tolist(), strict=True):
            found.setdefault(number, []).append(client)
        return dict(sorted(found.items()))

    def order(self) -> list[int]:
        """Clients from left to right, as a dendrogram shows them."""
        leaves = dendrogram(self.tree, no_plot=True)["leaves"]
        return [self.clients[leaf] for leaf in leaves]

    def as_json(self) -> dict[str, Any]:
        return {
            "clients": list(self.clients),
            "tree": self.tree.tolist(),
            "order": self.order(),
            "spearman": self.correlation,
            "p_value": self.p_value,
        }


def cluster(vectors: Mapping[int, np.ndarray], labels: Mapping[int, Sequence[int]], *, seed: int = 0) -> Clusters:
    """Clients by Ward's rule on Euclidean distances, and the agreement of these with the clients' label sets."""
    clients = tuple(sorted(vectors))
    if len(clients) < 3:
        raise InvalidData(f"Clusters need three clients at least, but {len(clients)} have a gate.")
    if len({len(vector) for vector in vectors.values()}) > 1:
        raise InvalidData("Clients have gates of different sizes, which have no distance: their networks differ.")
    points = np.stack([vectors[client] for client in clients])
    near = pdist(points)
    far = jaccard([set(labels[client]) for client in clients])
    correlation, p_value = permutation_test(near, far, len(clients), seed)
    return Clusters(clients=clients, tree=linkage(points, "ward"), correlation=correlation, p_value=p_value)


def jaccard(sets: Sequence[set[int]]) -> np.ndarray:
    """1 - common / all labels, of each pair, in the order of scipy's pdist."""
    pairs = [(first, second) for number, first in enumerate(sets) for second in sets[number + 1 :]]
    return np.array([1 - len(first & second) / max(1, len(first | second)) for first, second in pairs])


def permutation_test(near: np.ndarray, far: np.ndarray, count: int, seed: int) -> tuple[float, float]:
    """Spearman's correlation, and how often clients in another order have as large a one (Mantel's test).

    Pairs of clients are not independent of each other, so that the usual p-value would be wrong.
    """
    if np.ptp(near) == 0 or np.ptp(far) == 0:
        return float("nan"), float("nan")
    ranks = rankdata(near)
    square = np.zeros((count, count))
    upper = np.triu_indices(count, 1)
    square[upper] = rankdata(far)
    square += square.T
    found = correlation_of(ranks, square[upper])
    draws = np.random.default_rng(seed)
    as_large = 0
    for _ in range(PERMUTATIONS):
        order = draws.permutation(count)
        as_large += correlation_of(ranks, square[order][:, order][upper]) >= found - 1e-12
    return found, (as_large + 1) / (PERMUTATIONS + 1)


def correlation_of(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left - left.mean(), right - right.mean()
    return float(left @ right / np.sqrt((left @ left) * (right @ right)))
