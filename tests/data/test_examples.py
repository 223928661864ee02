"""Arrays of numpy and torch, and torch Datasets, all become the same kind of batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from plures.core.errors import InvalidData
from plures.core.types import Batch
from plures.data import Examples, as_examples, digits, from_arrays, from_dataset


class Listed(Dataset[Any]):
    """A map-style Dataset of the items it is given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    """Has no length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_examples_are_the_batches_of_the_core() -> None:
    assert Examples is Batch


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float64, torch.float64),
        (np.float32, torch.float32),
        (np.float16, torch.float32),
        (np.uint8, torch.float32),
        (np.int64, torch.float32),
        (np.bool_, torch.float32),
        (np.dtype(">f4"), torch.float32),
    ],
)
def test_inputs_become_float32_unless_they_are_float64(given: Any, kept: torch.dtype) -> None:
    batch = from_arrays(np.ones((3, 2), dtype=given), np.array([0, 1, 2]))
    assert batch.inputs.dtype == kept
    assert bool((batch.inputs == 1).all())


def test_arrays_of_numpy_and_torch_and_lists_give_the_same_examples() -> None:
    inputs, labels = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, 0, 2, 1])
    expected = from_arrays(inputs, labels)
    for given in [
        (torch.tensor(inputs), torch.tensor(labels)),
        (inputs.tolist(), labels.tolist()),
        (inputs[::-1][::-1], labels.astype(np.uint8)),
        (torch.tensor(inputs, requires_grad=True), torch.tensor(labels, dtype=torch.float32)),
    ]:
        batch = as_examples(given)
        assert torch.equal(batch.inputs.to(torch.float32), expected.inputs)
        assert torch.equal(batch.targets, expected.targets)
        assert batch.targets.dtype == torch.int64
        assert not batch.inputs.requires_grad


def test_read_only_arrays_can_be_used() -> None:
    inputs = np.ones((2, 2), dtype=np.float32)
    inputs.flags.writeable = False
    assert from_arrays(inputs, [0, 1]).num_examples == 2


def test_float32_arrays_are_not_copied() -> None:
    inputs = np.zeros((2, 2), dtype=np.float32)
    batch = from_arrays(inputs, [0, 1])
    inputs[0, 0] = 7
    assert float(batch.inputs[0, 0]) == 7


def test_a_dataset_gives_the_examples_of_its_items() -> None:
    inputs, labels = torch.rand(5, 1, 2, 2), torch.tensor([3, 1, 0, 1, 2])
    for dataset in [
        TensorDataset(inputs, labels),
        Listed([(x, int(y)) for x, y in zip(inputs, labels, strict=True)]),
        Listed([[x.numpy(), np.int32(y)] for x, y in zip(inputs, labels, strict=True)]),
    ]:
        batch = from_dataset(dataset)
        assert torch.equal(batch.inputs, inputs)
        assert torch.equal(batch.targets, labels)


def test_digits_are_1797_images_with_pixels_from_0_to_1() -> None:
    batch = digits().examples
    assert batch.inputs.shape == (1797, 1, 8, 8)
    assert batch.inputs.dtype == torch.float32
    assert (float(batch.inputs.min()), float(batch.inputs.max())) == (0.0, 1.0)
    assert batch.targets.unique().tolist() == list(range(10))


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.ones((3, 2)), [0, 1], "3 inputs but 2 labels"),
        (np.ones((0, 2)), [], "no examples"),
        (np.ones((2, 2)), [0.5, 1.0], "label of example 0 is 0.5"),
        (np.ones((2, 2)), [0.0, np.nan], "label of example 1 is nan"),
        (np.ones((2, 2)), [np.inf, 0.0], "label of example 0 is inf"),
        (np.ones((2, 2)), [[0], [1]], r"shape \(2, 1\).*ravel"),
        (np.ones((2, 2)), ["cat", "dog"], "not numbers.*encode"),
        (np.ones((2, 2), dtype=complex), [0, 1], "complex"),
        ([[1.0, 2.0], [3.0]], [0, 1], "same shape"),
    ],
)
def test_arrays_that_are_no_examples_are_refused(inputs: Any, labels: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        from_arrays(inputs, labels)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Listed([]), "empty"),
        (Stream(), "Stream, which has no length"),
        (Listed([torch.ones(2)]), "Item 0 .* not a pair"),
        (Listed([(torch.ones(2), 0), (torch.ones(3), 1)]), r"Item 1 .*\(3,\).*\(2,\)"),
        (Listed([(torch.ones(2), "cat")]), "item 0 .*'cat'"),
        (Listed([(torch.ones(2), 0), (torch.ones(2), 1.5)]), "example 1 is 1.5"),
    ],
)
def test_datasets_that_are_no_examples_are_refused(dataset: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        from_dataset(dataset)


def test_a_tuple_of_three_is_no_pair() -> None:
    with pytest.raises(InvalidData, match="tuple of 3"):
        as_examples((torch.ones(1), torch.ones(1), torch.ones(1)))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.bool_])
def test_targets_of_a_regression_become_float32(kind: Any) -> None:
    batch = from_arrays(np.ones((2, 3)), np.array([0, 1], dtype=kind), goal="regression")
    assert batch.targets.dtype == torch.float32
    assert batch.targets.tolist() == [0.0, 1.0]


def test_tokens_stay_whole_numbers() -> None:
    batch = from_arrays(np.array([[1, 5], [1, 6]], dtype=np.uint8), [[5, 2], [6, 2]], goal="next_token")
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.inputs.tolist() == [[1, 5], [1, 6]]
    assert batch.targets.tolist() == [[5, 2], [6, 2]]


@pytest.mark.parametrize(
    ("goal", "inputs", "targets", "message"),
    [
        ("regression", np.ones((2, 2)), [[0.5], [1.0]], r"of shape \(2, 1\): give one real number per example"),
        ("regression", np.ones((2, 2)), [0.5, np.nan], "target of example 1 is nan: correct it"),
        ("regression", np.ones((2, 2)), [0.5, 1e300], "target of example 1 is 1e\\+300"),
        ("regression", np.ones((2, 2)), [0.5], "2 inputs but 1 labels"),
        ("regression", np.ones((2, 2)), [1j, 0], "complex"),
        ("regression", np.ones((0, 2)), [], "no examples"),
        ("next_token", [[1, 2]], [2], r"targets are int64 of shape \(1,\): tokens are whole numbers"),
        ("next_token", [[1.0, 2.0]], [[2, 3]], r"inputs are float64 of shape \(1, 2\)"),
        ("next_token", [[1, 2]], [[2, 3, 4]], r"shapes \(1, 2\) and \(1, 3\)"),
        ("next_token", [[1, 2]], [[2, 3], [3, 4]], "1 inputs but 2 labels"),
    ],
)
def test_arrays_that_do_not_fit_the_goal_are_refused(goal: Any, inputs: Any, targets: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        from_arrays(inputs, targets, goal=goal)
