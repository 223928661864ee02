"""Validation examples go to training, and nothing else moves."""

from __future__ import annotations

import pickle

import pytest
import torch

from plures.core.types import Batch
from plures.data import digits, federate, partition
from plures.data.merging import merge_validation
from plures.data.partitioners import by_class, feature_shift

RULES = {"by class": by_class(10, 2), "every client with a style of its own": feature_shift(by_class(10, 2), noise=0.3)}


@pytest.fixture(params=RULES.values(), ids=RULES.keys())
def both(request):
    whole = partition(digits(), request.param, seed=3, label_space="local")
    return whole, merge_validation(whole)


def test_train_is_train_and_validation_of_the_same_split(both):
    whole, merged = both
    for client in range(whole.num_clients):
        before, after = whole.client(client), merged.client(client)
        for part in ("inputs", "targets"):
            old = torch.cat([getattr(before.train, part), getattr(before.validation, part)])
            assert torch.equal(getattr(after.train, part), old)
        assert before.validation.num_examples > 0
        assert after.validation.num_examples == 0


def test_test_examples_and_classes_are_the_same_bit_for_bit(both):
    whole, merged = both
    for client in range(whole.num_clients):
        before, after = whole.client(client), merged.client(client)
        assert torch.equal(before.test.inputs, after.test.inputs)
        assert torch.equal(before.test.targets, after.test.targets)
        assert before.classes == after.classes
        assert whole.num_classes(client) == merged.num_classes(client)
        assert whole.name(client) == merged.name(client)


def test_sizes_count_what_is_trained_on(both):
    _, merged = both
    sizes = [merged.client(client).train.num_examples for client in range(merged.num_clients)]
    assert [merged.num_examples(client) for client in range(merged.num_clients)] == sizes
    assert merged.total_examples == sum(sizes)


def test_the_split_has_a_fingerprint_of_its_own(both):
    whole, merged = both
    assert merged.fingerprint()["data"] == whole.fingerprint()["data"]
    assert merged.fingerprint()["split"] != whole.fingerprint()["split"]


def test_clients_with_data_of_their_own_and_views_are_merged_too():
    def batch(size: int, label: int) -> Batch:
        return Batch(torch.full((size, 2), float(label)), torch.full((size,), label))

    whole = federate([(batch(3, 0), batch(2, 1), batch(1, 0)), (batch(4, 1), batch(1, 0), batch(2, 1))])
    merged = merge_validation(whole.only([1]))
    assert merged.client(0).train.targets.tolist() == [1, 1, 1, 1, 0]
    assert merged.num_examples(0) == 5
    assert pickle.loads(pickle.dumps(merged)).client(0).train.num_examples == 5  # as worker processes get it
