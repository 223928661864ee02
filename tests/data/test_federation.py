"""A federation hands out clients' data: dealt from a pool, ready-made, or made by a function."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import (
    SOURCES,
    ClientData,
    Federation,
    by_class,
    check_federation,
    digits_federation,
    dirichlet,
    federate,
    from_arrays,
    iid,
    partition,
)
from plures.data.dealing import Indices


def numbered(num_examples: int, num_classes: int) -> Batch:
    """Each input is its own position, so that an example can be followed."""
    positions = torch.arange(num_examples)
    return Batch(positions[:, None].to(torch.float32), positions % num_classes)


def positions_in(federation: Federation) -> list[int]:
    clients = (federation.client(client) for client in range(federation.num_clients))
    return sorted(int(x) for data in clients for batch in data.splits.values() for x in batch.inputs[:, 0])


def small_client(client: int) -> ClientData:
    batch = Batch(torch.full((4, 2), float(client)), torch.tensor([0, 1, 0, 1]))
    return ClientData(train=batch, validation=batch, test=batch, classes=(0, 1))


class TooMany:
    """Gives two lists for one client."""

    num_clients = 1

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return [np.arange(4), np.arange(4, 9)]

    assign_test = assign


class Fixed:
    """A user's own partitioner."""

    def __init__(self, *parts: Sequence[Any]) -> None:
        self.parts = [np.array(part) for part in parts]
        self.num_clients = len(parts)

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self.parts

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        return self.parts


def test_the_default_federation_is_twenty_clients_with_two_digits_each() -> None:
    federation = digits_federation()
    check_federation(federation)
    assert (federation.num_clients, federation.classes, federation.label_space) == (20, 10, "global")
    assert federation.input_shape == (1, 8, 8)
    assert all(len(federation.client(client).classes) == 2 for client in range(20))
    assert [federation.num_classes(client) for client in range(20)] == [10] * 20
    assert set().union(*(federation.client(client).classes for client in range(20))) == set(range(10))


@pytest.mark.parametrize("rule", [iid(7), by_class(7, 2), dirichlet(7)])
def test_every_example_of_the_pool_is_in_one_split_of_one_client(rule: Any) -> None:
    federation = partition(numbered(200, 5), rule, seed=4)
    assert positions_in(federation) == list(range(200))
    sizes = [federation.client(client).train.num_examples for client in range(7)]
    assert [federation.num_examples(client) for client in range(7)] == sizes
    assert federation.total_examples == sum(sizes)


def test_inputs_keep_their_labels_when_dealt() -> None:
    federation = partition(numbered(200, 5), dirichlet(7), seed=4)
    for client in range(7):
        for batch in federation.client(client).splits.values():
            assert torch.equal(batch.inputs[:, 0].long() % 5, batch.targets)


def test_arrays_and_datasets_are_dealt_as_batches_are() -> None:
    batch = numbered(60, 3)
    federations = [
        partition(given, iid(4), seed=0)
        for given in (batch, (batch.inputs.numpy(), batch.targets.numpy()), TensorDataset(*batch))
    ]
    assert len({str(federation.fingerprint()) for federation in federations}) == 1


def test_a_test_set_of_its_own_goes_to_the_owners_of_each_class() -> None:
    test = Batch(-1 - numbered(50, 5).inputs, numbered(50, 5).targets)
    federation = partition(numbered(200, 5), by_class(5, 2), seed=1, test=test)
    for client in range(5):
        data = federation.client(client)
        assert bool((data.test.inputs < 0).all())
        assert bool((data.train.inputs >= 0).all())
        assert set(data.test.targets.tolist()) == set(data.train.targets.tolist())
    assert sum(federation.client(client).test.num_examples for client in range(5)) == 50


def test_local_labels_number_the_clients_classes_in_sorted_order() -> None:
    options = {"seed": 2, "num_classes": 9}
    rule = by_class(6, 3)
    original = partition(numbered(300, 9), rule, label_space="global", **options)
    local = partition(numbered(300, 9), rule, label_space="local", **options)
    for client in range(6):
        known, mine = original.client(client), local.client(client)
        assert mine.classes == known.classes == tuple(sorted(mine.classes))
        assert local.num_classes(client) == len(mine.classes) == 3
        for split, batch in mine.splits.items():
            assert [mine.classes[target] for target in batch.targets] == known.splits[split].targets.tolist()
    check_federation(local)


def test_local_classes_are_those_of_all_of_the_clients_data() -> None:
    train = from_arrays(np.zeros((2, 1)), [4, 9])
    test = from_arrays(np.zeros((2, 1)), [7, 9])
    federation = federate([(train, test)], label_space="local")
    data = federation.client(0)
    assert data.classes == (4, 7, 9)
    assert data.train.targets.tolist() == [0, 2]
    assert data.test.targets.tolist() == [1, 2]
    assert (federation.num_classes(0), federation.classes) == (3, 10)


def test_ready_clients_keep_their_names_and_their_data() -> None:
    train, validation, test = (from_arrays(np.full((2, 3), value), [0, 1]) for value in (1.0, 2.0, 3.0))
    federation = federate([(train, test), (train, validation, test), small_client(5)], names=["ann", "bob", "cy"])
    assert list(federation.names) == ["ann", "bob", "cy"]
    assert (federation.names[1], federation.names[1:], federation.name(0)) == ("bob", ["bob", "cy"], "ann")
    assert federation.client(0).validation.num_examples == 0
    assert torch.equal(federation.client(1).validation.inputs, validation.inputs)
    assert federation.total_examples == 2 + 2 + 4
    assert federation.classes == 2


def test_a_population_of_a_hundred_thousand_holds_only_what_fits_the_cache() -> None:
    loads: list[int] = []

    def load(client: int) -> ClientData:
        loads.append(client)
        return small_client(client)

    one = small_client(0).num_bytes
    federation = Federation.from_function(100_000, load, lambda client: 4, 2, cache_bytes=10 * one)
    assert (federation.num_clients, federation.total_examples, len(federation.names)) == (100_000, 400_000, 100_000)
    assert federation.name(99_999) == "99999"
    assert loads == []
    for client in range(0, 100_000, 500):
        assert float(federation.client(client).train.inputs[0, 0]) == client
        assert len(federation.cache) <= 10
        assert federation.cache.held_bytes <= federation.cache.limit_bytes
    assert len(federation.cache) == 10
    check_federation(federation, sample=50)


def test_the_cache_keeps_what_was_used_last() -> None:
    loads: list[int] = []

    def load(client: int) -> ClientData:
        loads.append(client)
        return small_client(client)

    one = small_client(0).num_bytes
    federation = Federation.from_function(10, load, lambda client: 4, 2, cache_bytes=2 * one)
    for client in (0, 1, 0, 2, 0, 1):
        federation.client(client)
    # 2 pushes 1 out, because 0 was used since; then 1 is loaded again.
    assert loads == [0, 1, 2, 1]


def test_a_client_larger_than_the_cache_is_loaded_each_time() -> None:
    federation = Federation.from_function(2, small_client, lambda client: 4, 2, cache_bytes=1)
    assert federation.client(0) is not federation.client(0)
    assert (len(federation.cache), federation.cache.held_bytes) == (0, 0)


def test_a_federation_can_be_sent_to_another_process() -> None:
    federation = digits_federation(num_clients=5)
    federation.client(0)
    copy = pickle.loads(pickle.dumps(federation))
    assert len(copy.cache) == 0
    assert copy.fingerprint() == federation.fingerprint()
    assert torch.equal(copy.client(3).train.inputs, federation.client(3).train.inputs)


def test_the_pool_is_held_once_however_many_clients_there_are() -> None:
    examples = numbered(1000, 4)
    federation = partition(examples, iid(100), seed=0)
    assert federation.population.pool.inputs.data_ptr() == examples.inputs.data_ptr()


def test_sources_have_names() -> None:
    assert SOURCES["digits"].load().examples.num_examples == 1797


@pytest.mark.parametrize("client", [-1, 3, 10**9])
def test_there_is_no_client_outside_the_population(client: int) -> None:
    federation = federate([small_client(0)] * 3)
    for ask in (federation.client, federation.name, federation.num_examples, federation.num_classes):
        with pytest.raises(IndexError, match="numbered 0 to 2"):
            ask(client)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: federate([]), InvalidData, "no clients"),
        (lambda: federate([small_client(0)], names=["a", "b"]), InvalidData, "1 clients but 2 names"),
        (lambda: federate([small_client(0)] * 2, names=["a", "a"]), InvalidData, "Two clients are called 'a'"),
        (lambda: federate([numbered(4, 2)]), InvalidData, "Client 0 is no client data"),
        (lambda: federate([(numbered(4, 2),)]), InvalidData, "Client 0 is no client data"),
        (lambda: federate([small_client(0)], label_space="lokal"), InvalidConfig, "Did you mean 'local'"),
        (lambda: federate([small_client(0)], num_classes=0), InvalidConfig, "num_classes is 0"),
        (lambda: partition(numbered(9, 3), iid(2), seed=0, label_space="x"), InvalidConfig, "label_space is 'x'"),
        (lambda: partition(numbered(9, 3), iid(9), seed=0), InvalidData, "Client 0 has one example"),
        (lambda: partition(numbered(9, 3), Fixed([0, 1, 2], []), seed=0), InvalidData, "client 1 no examples"),
        (lambda: partition(numbered(9, 3), Fixed([0, 1, 9]), seed=0), InvalidData, "outside 0 to 8"),
        (lambda: partition(numbered(9, 3), Fixed([0.5, 1.0]), seed=0), InvalidData, "other than .* whole numbers"),
        (lambda: partition(numbered(9, 3), TooMany(), seed=0), InvalidData, "2 lists of positions for 1 clients"),
        (lambda: Federation.from_function(0, small_client, lambda client: 4, 2), InvalidData, "num_clients is 0"),
        (
            lambda: Federation.from_function(3, small_client, lambda client: 4, 2, label_space="local"),
            InvalidConfig,
            "client_classes",
        ),
    ],
)
def test_a_federation_that_cannot_be_says_why(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_users_own_partitioner_is_used_as_it_is() -> None:
    federation = partition(numbered(12, 3), Fixed(range(5), range(5, 12)), seed=0, names=["left", "right"])
    data = federation.client(1)
    assert sorted(int(x) for batch in data.splits.values() for x in batch.inputs) == list(range(5, 12))
    assert federation.name(1) == "right"


def test_a_function_gives_clients_with_label_spaces_of_their_own() -> None:
    federation = Federation.from_function(
        5, small_client, lambda client: 4, 10, label_space="local", client_classes=lambda client: 2, name="u{}".format
    )
    check_federation(federation)
    assert (federation.num_classes(3), federation.classes, federation.name(3)) == (2, 10, "u3")
