"""Clusters of gates: groups by Ward, distances of label sets by hand, and a permutation test that can be trusted."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from plures.core.errors import InvalidData
from plures.evaluate.clustering import cluster, jaccard

TWO_GROUPS = {4: [0.0, 0.0], 1: [0.1, 0.0], 7: [10.0, 10.0], 2: [10.0, 10.2], 9: [0.0, 0.1], 5: [10.1, 10.0]}
LABELS = {4: [0, 1], 1: [0, 1], 9: [0, 1], 7: [2, 3], 2: [2, 3], 5: [2, 3]}


def vectors(points=TWO_GROUPS):
    return {client: np.array(point) for client, point in points.items()}


def drawn(count, seed, dimension=3):
    draws = np.random.default_rng(seed)
    return {client: draws.normal(size=dimension) for client in range(count)}


# Groups


def test_two_clear_groups_are_found():
    found = cluster(vectors(), LABELS)
    assert found.clients == (1, 2, 4, 5, 7, 9)
    assert sorted(found.groups(2).values()) == [[1, 4, 9], [2, 5, 7]]
    assert sorted(found.groups(6).values()) == [[1], [2], [4], [5], [7], [9]]
    assert list(found.groups(1).values()) == [[1, 2, 4, 5, 7, 9]]
    order = found.order()
    assert sorted([sorted(order[:3]), sorted(order[3:])]) == [[1, 4, 9], [2, 5, 7]]


def test_the_tree_has_the_distances_of_ward_by_hand():
    """0 and 1 are joined at 1. The centre 0.5 is 5.5 from 6: sqrt(2 * 2 * 1 / (2 + 1)) * 5.5 by Ward's rule."""
    found = cluster(vectors({0: [0.0], 1: [1.0], 2: [6.0]}), {0: [0], 1: [0], 2: [1]})
    assert found.tree[0].tolist() == [0, 1, 1, 2]
    assert found.tree[1, 2] == pytest.approx(math.sqrt(4 / 3) * 5.5, rel=1e-12)
    assert found.tree[1, 3] == 3


def test_it_can_be_written_down():
    found = cluster(vectors(), LABELS)
    told = json.loads(json.dumps(found.as_json()))
    assert told["clients"] == [1, 2, 4, 5, 7, 9]
    assert told["order"] == found.order()
    assert told["tree"] == found.tree.tolist()
    assert (told["spearman"], told["p_value"]) == (found.correlation, found.p_value)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_clients_are_an_error(count):
    with pytest.raises(InvalidData, match=f"need three clients at least, but {count} have a gate"):
        cluster(drawn(count, 0), {client: [client] for client in range(count)})


# Agreement with the labels


def test_jaccard_distances_by_hand():
    """{0, 1} and {1, 2} have 1 of 3 labels in common, {0, 1} and {0, 1} all, {0, 1} and {3} none."""
    sets = [{0, 1}, {1, 2}, {0, 1}, {3}]
    assert jaccard(sets).tolist() == pytest.approx([2 / 3, 0, 1, 2 / 3, 1, 1])


def test_the_correlation_is_spearmans_of_all_pairs():
    points, labels = drawn(8, 1), {client: [client % 3, client % 2 + 3, client // 4 + 5] for client in range(8)}
    found = cluster(points, labels)
    pairs = list(itertools.combinations(range(8), 2))
    near = [np.linalg.norm(points[a] - points[b]) for a, b in pairs]
    far = [1 - len({*labels[a]} & {*labels[b]}) / len({*labels[a]} | {*labels[b]}) for a, b in pairs]
    assert found.correlation == pytest.approx(spearmanr(near, far).statistic, rel=1e-12)


def test_gates_that_follow_the_labels_have_a_small_p_value_which_is_the_share_of_orders_as_good():
    """Of 6! orders, 2 * 3! * 3! keep the two groups: a share of 0.1. More clients, and it is small."""
    assert cluster(vectors(), LABELS).p_value == pytest.approx(0.1, abs=0.02)
    points = {client: point + 50 * (client % 2) for client, point in drawn(14, 2).items()}
    found = cluster(points, {client: [client % 2] for client in points})
    assert found.correlation > 0.8
    assert 0 < found.p_value < 0.005


def test_p_values_of_unrelated_gates_are_spread_out_and_never_zero():
    """Under no relation a p-value is uniform: of 12, some are large, and few are below 0.1."""
    found = [cluster(drawn(9, seed), {client: [client % 3] for client in range(9)}).p_value for seed in range(12)]
    assert all(0 < value <= 1 for value in found)
    assert max(found) > 0.7
    assert sum(value < 0.1 for value in found) <= 4  # more have a chance of 0.004


def test_gates_that_contradict_the_labels_have_a_large_p_value():
    """Clients with the same labels are the far ones."""
    points = vectors({0: [0.0], 1: [9.0], 2: [0.1], 3: [9.1], 4: [0.2], 5: [9.2]})
    found = cluster(points, {0: [0], 1: [0], 2: [1], 3: [1], 4: [2], 5: [2]})
    assert found.correlation < -0.3
    assert found.p_value > 0.9


def test_the_smallest_p_value_is_that_of_the_order_itself_and_not_zero():
    """Clients on a line whose labels overlap as they are near: 2 of 12! orders agree as well, so that of 9,999 drawn
    ones none does, but the order itself counts: 1 / 10,000."""
    points = vectors({client: [float(client)] for client in range(12)})
    found = cluster(points, {client: range(client, client + 12) for client in range(12)})
    assert found.correlation == pytest.approx(1.0)
    assert found.p_value == 1 / 10_000


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        ({client: [1.0, 2.0] for client in range(4)}, {client: [client] for client in range(4)}),
        ({client: [float(client)] for client in range(4)}, {client: [client] for client in range(4)}),
        ({client: [float(client)] for client in range(4)}, {client: [5] for client in range(4)}),
    ],
    ids=["equal gates", "no label in common", "all labels in common"],
)
def test_of_constant_distances_there_is_no_correlation(points, labels):
    found = cluster(vectors(points), labels)
    assert math.isnan(found.correlation)
    assert math.isnan(found.p_value)
    assert len(found.order()) == 4


def test_the_same_seed_gives_the_same_p_value_and_another_seed_another():
    points, labels = drawn(7, 3), {client: [client % 2] for client in range(7)}
    p_values = [cluster(points, labels, seed=seed).p_value for seed in (0, 0, 1, 2)]
    assert p_values[0] == p_values[1]
    assert len(set(p_values)) > 1
    assert p_values[2] == pytest.approx(p_values[0], abs=0.03)


def test_the_order_in_which_clients_come_does_not_matter():
    one = cluster(vectors(), LABELS)
    other = cluster(dict(reversed(vectors().items())), dict(sorted(LABELS.items())))
    assert (one.clients, one.correlation, one.p_value) == (other.clients, other.correlation, other.p_value)
    assert np.array_equal(one.tree, other.tree)


def test_gates_of_different_sizes_have_no_distance():
    vectors = {client: np.ones(3 + client // 2) for client in range(4)}
    with pytest.raises(InvalidData, match="different sizes"):
        cluster(vectors, {client: [0] for client in range(4)})
