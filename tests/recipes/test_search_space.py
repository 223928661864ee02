"""What may stand in [tune.search], and what is wrong with the rest."""

from __future__ import annotations

import pytest

from plures.core.errors import InvalidConfig
from plures.recipes.search_space import Choice, Range, corners, grid, num_points, read_space


def test_lists_and_ranges_are_read():
    space = read_space({"method_options.lr": {"low": 0.1, "high": 1.0, "log": True}, "rounds": [1, 2]})
    assert space == {"method_options.lr": Range(low=0.1, high=1.0, log=True), "rounds": Choice(values=(1, 2))}


def test_keys_without_quotes_are_the_same_keys():
    nested = {"method_options": {"lr": {"low": 0.1, "high": 1.0}, "budget": {"epochs": [1, 2]}}}
    assert list(read_space(nested)) == ["method_options.lr", "method_options.budget.epochs"]


def test_a_range_of_whole_numbers_has_whole_ends():
    space = read_space({"rounds": {"low": 1, "high": 5}, "server.lr": {"low": 1.0, "high": 5}})
    assert isinstance(space["rounds"], Range)
    assert isinstance(space["server.lr"], Range)
    assert (space["rounds"].whole, space["server.lr"].whole) == (True, False)


def test_a_step_ends_at_or_below_high():
    found = read_space({"server.lr": {"low": 0.1, "high": 1.0, "step": 0.2}})["server.lr"]
    assert list(found.all()) == [0.1, 0.3, 0.5, 0.7, 0.9]
    whole = read_space({"rounds": {"low": 1, "high": 6, "step": 2}})["rounds"]
    assert list(whole.all()) == [1, 3, 5]


def test_a_grid_has_every_point_in_the_order_of_the_file():
    space = read_space({"method": ["a", "b"], "rounds": {"low": 1, "high": 2}})
    assert num_points(space) == 4
    points = [tuple(point.values()) for point in grid(space)]
    assert points == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_of_many_corners_the_edges_are_tried():
    space = read_space({f"method_options.o{number}": {"low": 0, "high": 9} for number in range(8)})
    tried = corners(space)
    assert len(tried) == 2 * 8 * 2  # 2**8 corners are too many: from both ends, every key at both
    for key in space:
        assert {point[key] for point in tried} == {0, 9}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "nothing to search"),
        ({"rounds": []}, "rounds has an empty list"),
        ({"rounds": 3}, "rounds = 3 is neither a list nor a range"),
        ({"rounds": [1, 2, 1]}, "has a value twice"),
        ({"method_options.half": [True, 1]}, "has a value twice"),
        ({"method_options.lr": {"low": 1.0, "high": 0.1}}, "goes from 1.0 to 0.1, which is empty"),
        ({"method_options.lr": {"low": 0.0, "high": 0.1, "log": True}}, "begins above 0"),
        ({"method_options.lr": {"low": 0.1}}, "has no 'high'"),
        ({"method_options.lr": {"low": 0.1, "high": 1.0, "steps": 2}}, "has no 'steps'. Did you mean 'step'"),
        ({"method_options.lr": {"low": 0.1, "high": 1.0, "step": 2.0}}, "fits between 0.1 and 1.0"),
        ({"method_options.lr": {"low": 0.1, "high": 1.0, "step": 0.1, "log": True}}, "both log and step"),
        ({"method_options.lr": {"low": "a", "high": 1.0}}, "low = 'a': give a number"),
        ({"method_options.lr": {"low": 0.1, "high": 1.0, "log": "yes"}}, "give true or false"),
        ({"seed": [0, 1]}, "seed, which cannot be searched"),
        ({"evaluation.every": [1, 2]}, "evaluation.every, which cannot be searched"),
        ({"data": [{}], "data.clients": [2]}, "both data and data.clients"),
    ],
)
def test_what_cannot_be_searched_is_told(table, says):
    with pytest.raises(InvalidConfig, match=says.replace("(", r"\(")):
        read_space(table)


def test_every_problem_is_told_at_once():
    with pytest.raises(InvalidConfig) as told:
        read_space({"rounds": [], "seed": [1], "method_options.lr": {"low": 2, "high": 1}})
    assert len(told.value.problems) == 3
