"""Some clients of a federation as a federation of their own: participants and newcomers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.core.types import Batch
from plures.data import ClientData, Federation, by_class, check_federation, digits_federation, federate, partition


def small_client(client: int) -> ClientData:
    batch = Batch(torch.full((4, 2), float(client)), torch.tensor([0, 1, 0, 1]))
    return ClientData(train=batch, validation=batch, test=batch, classes=(0, 1))


def people(number: int) -> Federation:
    return federate(
        [small_client(client) for client in range(number)], names=[f"p{client}" for client in range(number)]
    )


@given(number=st.integers(2, 30), seed=st.integers(0, 99), data=st.data())
def test_participants_and_newcomers_are_together_everybody(number: int, seed: int, data: st.DataObject) -> None:
    asked: int | float = data.draw(st.one_of(st.integers(1, number - 1), st.floats(0.01, 0.99)))
    federation = people(number)

    participants, newcomers = federation.hold_out(asked, seed)

    names = [*participants.names, *newcomers.names]
    assert sorted(names) == sorted(federation.names)
    assert participants.num_clients >= 1
    wanted = asked if isinstance(asked, int) else min(max(1, round(asked * number)), number - 1)
    assert newcomers.num_clients == wanted
    again, _ = federation.hold_out(asked, seed)
    assert list(again.names) == list(participants.names)


def test_another_seed_holds_out_others() -> None:
    assert len({tuple(people(20).hold_out(5, seed)[1].names) for seed in range(5)}) > 1


def test_clients_keep_their_names_sizes_and_data_under_new_numbers() -> None:
    federation = digits_federation(num_clients=6, label_space="local")
    view = federation.only([4, 1])

    assert (view.num_clients, view.classes, view.label_space) == (2, 10, "local")
    assert list(view.names) == ["4", "1"]
    for number, client in enumerate([4, 1]):
        assert view.num_examples(number) == federation.num_examples(client)
        assert view.num_classes(number) == federation.num_classes(client)
        assert view.client(number) is federation.client(client)
    assert view.total_examples == federation.num_examples(4) + federation.num_examples(1)
    check_federation(view)


def test_nothing_is_copied_and_what_is_kept_ready_is_shared() -> None:
    loads: list[int] = []

    def load(client: int) -> ClientData:
        loads.append(client)
        return small_client(client)

    federation = Federation.from_function(10, load, lambda client: 4, 2, cache_bytes=10**6)
    participants, newcomers = federation.hold_out(0.5, seed=0)
    for view in (participants, newcomers, participants):
        for client in range(view.num_clients):
            view.client(client)

    assert sorted(loads) == list(range(10))
    assert len(federation.cache) == 10
    assert (len(participants.cache), len(newcomers.cache)) == (0, 0)


def test_a_view_of_a_view_looks_at_the_whole() -> None:
    federation = people(10)

    inner = federation.only([9, 7, 5, 3]).only([1, 3])

    assert list(inner.names) == ["p7", "p3"]
    assert inner.population.whole is federation.population
    assert float(inner.client(0).train.inputs[0, 0]) == 7


def test_a_view_has_what_the_federation_has_besides_clients() -> None:
    federation = digits_federation(num_clients=6)
    federation.augment = lambda inputs, generator: inputs

    view = federation.only([0])

    assert (view.goal, view.prepare, view.augment) == (federation.goal, federation.prepare, federation.augment)


def test_the_fingerprint_knows_who_is_in_the_view() -> None:
    federation = people(6)
    prints = [found.fingerprint() for found in (federation, federation.only([0, 1]), federation.only([1, 0]))]

    assert len({found["data"] for found in prints}) == 1
    assert len({found["split"] for found in prints}) == 3


def test_a_view_can_be_sent_to_another_process() -> None:
    examples = Batch(torch.arange(60)[:, None].float(), torch.arange(60) % 3)
    view = partition(examples, by_class(6, 2), seed=0).only([2, 5])

    copy = pickle.loads(pickle.dumps(view))

    assert list(copy.names) == ["2", "5"]
    assert torch.equal(copy.client(1).train.inputs, view.client(1).train.inputs)


@pytest.mark.parametrize("asked", [0, 6, -1, 1.0, 0.0, True, float("nan"), "two"])
def test_newcomers_that_cannot_be_are_told(asked: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"newcomers is .*: give a number of clients from 1 to 5, or a share"):
        people(6).hold_out(asked, seed=0)


def test_one_client_cannot_be_divided() -> None:
    with pytest.raises(InvalidConfig, match=r"newcomers is 0\.5"):
        people(1).hold_out(0.5, seed=0)


@pytest.mark.parametrize("clients", [[], [1, 1]])
def test_a_view_has_some_clients_each_once(clients: list[int]) -> None:
    with pytest.raises(InvalidConfig, match="at least one of them, and each only once"):
        people(3).only(clients)


def test_a_view_of_clients_that_are_not_there_is_refused() -> None:
    with pytest.raises(IndexError, match="numbered 0 to 2"):
        people(3).only([3])
