"""Bad data are found before round 1, all problems at once, each with its client and a remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from plures.core.errors import InvalidData
from plures.core.goals import REGRESSION, Goal, next_token
from plures.core.types import Batch
from plures.data import ClientData, Federation, check_federation, federate, iid, partition
from plures.data.populations import ReadyPopulation


def batch(num_examples: int = 4, **changes: Tensor) -> Batch:
    good = Batch(torch.ones(num_examples, 3), torch.arange(num_examples) % 2)
    return good._replace(**changes)


def federation_with(name: str, *bad: Batch, **options: Any) -> Federation:
    """A good client, then one with the given (train, test)."""
    return federate([(batch(), batch()), bad], names=["good", name], **options)


def problems_of(federation: Federation, sample: int | None = None) -> list[str]:
    with pytest.raises(InvalidData) as caught:
        check_federation(federation, sample)
    return caught.value.problems


def with_value(value: float) -> Tensor:
    inputs = torch.ones(4, 3)
    inputs[2, 1] = value
    return inputs


def test_good_data_pass() -> None:
    check_federation(federation_with("fine", batch(), batch()))


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        (batch(0), batch(0), "client bad is empty: drop it"),
        (batch(1), batch(0), "client bad has one example"),
        (batch(0), batch(1), "client bad has one example"),
        (batch(0), batch(4), "client bad has no train examples"),
        (batch(4), batch(0), "client bad has no test examples"),
        (batch(inputs=with_value(float("nan"))), batch(), "client bad, train examples: 1 of 4 have NaN or infinite"),
        (batch(), batch(inputs=with_value(float("-inf"))), "client bad, test examples: 1 of 4 have NaN or infinite"),
        (batch(targets=torch.tensor([0, -1, 1, -1])), batch(), "2 of 4 labels are out of range (first: -1)"),
        (batch(), batch(targets=torch.tensor([0, 1, 5, 1])), "1 of 4 labels are out of range (first: 5)"),
        (batch(inputs=torch.ones(4, 2)), batch(), "shape (2,), but those of client good have (3,)"),
        (batch(), batch(inputs=torch.ones(4, 3, 1)), "client bad, test examples: inputs have shape (3, 1)"),
        (batch(inputs=torch.ones(4, 3).double()), batch(), "inputs are float64, but those of client good are float32"),
        (batch(targets=torch.tensor([0.0, 1.0, 0.5, 1.0])), batch(), "labels are float32: class numbers are whole"),
        (batch(targets=torch.tensor([0, 1, 0, 1], dtype=torch.int32)), batch(), "labels are int32"),
        (batch(targets=torch.tensor([0, 1, 0])), batch(), "4 inputs but 3 labels"),
    ],
)
def test_each_problem_is_found_alone_and_names_its_client(train: Batch, test: Batch, expected: str) -> None:
    problems = problems_of(federation_with("bad", train, test, num_classes=2))
    assert len(problems) == 1
    assert expected in problems[0]
    assert problems[0].startswith("client bad")
    assert ": " in problems[0] or "cannot be both" in problems[0]


@pytest.mark.parametrize("labels", [[0, -1, 0, -1], [0, 9, 0, 9]])
def test_labels_out_of_range_are_not_hidden_by_local_numbers(labels: list[int]) -> None:
    bad = batch(targets=torch.tensor(labels))
    problems = problems_of(federation_with("bad", bad, bad, num_classes=5, label_space="local"))
    assert problems == [
        f"client bad has label {labels[1]}: labels go from 0 to 4; correct them, or state the right num_classes."
    ]


def test_all_problems_of_all_clients_come_in_one_error() -> None:
    nan = batch(inputs=with_value(float("nan")))
    clients = [(batch(0), batch(0)), (nan, nan), (batch(), batch(targets=torch.tensor([0, 1, 7, 0])))]
    with pytest.raises(InvalidData) as caught:
        check_federation(federate(clients, names=["a", "b", "c"], num_classes=2))
    starts = ["client a is empty", "client b, train", "client b, test", "client c, test"]
    assert [problem.startswith(start) for problem, start in zip(caught.value.problems, starts, strict=True)] == [
        True
    ] * 4
    assert str(caught.value).startswith("4 problems:\n  1. client a is empty")


def test_very_many_problems_are_counted_after_the_first_hundred() -> None:
    problems = problems_of(federate([(batch(0), batch(0))] * 250))
    assert len(problems) == 101
    assert problems[-1] == "And 150 more problems like these."


def test_problems_of_dealt_examples_name_the_client_that_got_them() -> None:
    inputs = torch.ones(40, 3)
    inputs[17] = float("nan")
    [problem] = problems_of(partition((inputs, torch.arange(40) % 2), iid(4), seed=0))
    assert "1 of" in problem
    [problem] = problems_of(partition((torch.ones(40, 3), torch.arange(40) - 1), iid(4), seed=0, num_classes=100))
    assert "(first: -1)" in problem


def test_labels_that_are_all_negative_are_refused() -> None:
    assert problems_of(partition((torch.ones(40, 3), torch.full((40,), -1)), iid(4), seed=0))


def test_a_function_that_misstates_its_clients_is_found_out() -> None:
    good = ClientData(train=batch(), validation=batch(0), test=batch(), classes=(0, 1))
    federation = Federation.from_function(
        3, lambda client: good, lambda client: 9, 2, label_space="local", client_classes=lambda client: 3
    )
    first, second = problems_of(federation, sample=1)
    assert first == "client 0 has 4 training examples, but num_examples says 9: make them agree."
    assert second == "client 0 has 2 classes, but 3 are stated for it: make them agree."


def test_a_sample_reads_only_so_many_clients() -> None:
    asked: list[int] = []
    good = ClientData(train=batch(), validation=batch(0), test=batch(), classes=(0, 1))

    def load(client: int) -> ClientData:
        asked.append(client)
        return good

    check_federation(Federation.from_function(10**6, load, lambda client: 4, 2), sample=3)
    assert asked == [0, 499_999, 999_999]


def test_a_population_without_clients_is_refused() -> None:
    assert problems_of(Federation(ReadyPopulation(clients=[], names=[], classes=2, label_space="global"))) == [
        "There are no clients: a federation has at least one."
    ]


def test_an_empty_first_client_does_not_blame_the_others() -> None:
    nothing = Batch(torch.empty(0), torch.empty(0))
    [problem] = problems_of(federate([(nothing, nothing), (batch(), batch())]))
    assert problem.startswith("client 0 is empty")


def with_goal(goal: Goal, classes: int, *batches: Batch) -> Federation:
    """One client that is trained and tested on the given examples."""
    train, test = batches[0], batches[-1]
    client = ClientData(train=train, validation=batch(0), test=test, classes=())
    population = ReadyPopulation(clients=[client], names=["odd"], classes=classes, label_space="global")
    return Federation(population, goal=goal)


def test_numbers_to_predict_pass_where_the_goal_is_a_regression() -> None:
    check_federation(with_goal(REGRESSION, 1, Batch(torch.ones(4, 3), torch.tensor([0.5, -7.0, 1e9, 0.0]))))


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (torch.tensor([0.5, float("nan"), 1.0, float("inf")]), "2 of 4 targets are NaN or infinite (first: example 1)"),
        (torch.tensor([0, 1, 0, 1]), "targets are int64 of shape (4,): for regression give one float32 number"),
        (torch.ones(4, 1), "targets are float32 of shape (4, 1)"),
    ],
)
def test_targets_that_are_no_numbers_to_predict_are_found(targets: Tensor, expected: str) -> None:
    good = Batch(torch.ones(4, 3), torch.ones(4))
    [problem] = problems_of(with_goal(REGRESSION, 1, Batch(torch.ones(4, 3), targets), good))
    assert problem.startswith("client odd, train examples: ")
    assert expected in problem


def tokens(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


def test_tokens_pass_where_the_next_one_is_predicted() -> None:
    check_federation(with_goal(next_token(), 7, Batch(tokens([1, 4, 5], [1, 6, 0]), tokens([4, 5, 6], [6, 2, 0]))))


@pytest.mark.parametrize(
    ("inputs", "targets", "expected"),
    [
        (tokens([1, 4]), tokens([4, 7]), "1 of 2 tokens of the targets are out of range (first: 7)"),
        (tokens([1, -4]), tokens([4, 5]), "1 of 2 tokens of the inputs are out of range (first: -4)"),
        (tokens([1, 4]), torch.tensor([4]), "targets are int64 of shape (1,): give tokens as int64"),
        (tokens([1, 4]), tokens([4, 5]).float(), "targets are float32 of shape (1, 2)"),
        (tokens([1, 4]), tokens([4, 5], [4, 5]), "1 inputs but 2 labels"),
        (tokens([1, 4]), tokens([4]), "inputs have 2 tokens but targets 1"),
    ],
)
def test_tokens_that_are_none_are_found(inputs: Tensor, targets: Tensor, expected: str) -> None:
    good = Batch(tokens([1, 4]), tokens([4, 5]))
    [problem] = problems_of(with_goal(next_token(), 7, good, Batch(inputs, targets)))
    assert problem.startswith("client odd, test examples: ")
    assert expected in problem
