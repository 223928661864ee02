"""Client state in memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.stores.memory import MemoryStore

commits = st.lists(st.dictionaries(st.integers(0, 9), st.integers(-5, 5), max_size=5), max_size=8)


def test_a_new_store_knows_nobody():
    store = MemoryStore()
    assert store.get(0) is None
    assert (list(store.clients()), store.round) == ([], 0)


def test_a_state_comes_back_as_it_was_committed():
    store, state = MemoryStore(), {"head": torch.arange(3.0), "mask": torch.tensor([True, False])}
    store.commit(1, {4: state})
    assert store.get(4).keys() == state.keys()
    assert all(torch.equal(store.get(4)[name], value) for name, value in state.items())


@given(commits)
@settings(deadline=None)
def test_each_commit_changes_its_cohort_and_nobody_else(rounds):
    store, expected = MemoryStore(), {}
    for round, states in enumerate(rounds, 1):
        store.commit(round, {client: {"v": torch.tensor(value)} for client, value in states.items()})
        expected |= states
        assert {client: store.get(client)["v"].item() for client in store.clients()} == expected
        assert list(store.clients()) == sorted(expected)
        assert store.round == round


def test_a_round_without_states_is_a_round():
    store = MemoryStore()
    store.commit(7, {})
    assert (store.round, list(store.clients())) == (7, [])


def test_the_mapping_given_to_commit_may_be_changed_afterwards():
    store, states = MemoryStore(), {1: {"v": torch.tensor(1)}}
    store.commit(1, states)
    states[2] = {"v": torch.tensor(2)}
    del states[1]
    assert list(store.clients()) == [1]


def test_what_is_staged_is_in_force_with_the_commit_of_its_round():
    store = MemoryStore()
    store.commit(1, {1: {"v": torch.tensor(1)}})
    store.stage(2, {1: {"v": torch.tensor(2)}})
    store.stage(2, {3: {"v": torch.tensor(4)}})
    assert (store.get(1)["v"].item(), store.get(3), store.round) == (1, None, 1)
    store.commit(2)
    assert (store.get(1)["v"].item(), store.get(3)["v"].item(), store.round) == (2, 4, 2)


def test_what_is_discarded_is_never_in_force():
    store = MemoryStore()
    store.stage(1, {1: {"v": torch.tensor(1)}})
    store.discard()
    store.commit(1, {2: {"v": torch.tensor(2)}})
    assert list(store.clients()) == [2]


def test_another_round_than_is_under_way_is_refused():
    store = MemoryStore()
    store.stage(1, {1: {"v": torch.tensor(1)}})
    for wrong in (lambda: store.stage(2, {}), lambda: store.commit(2)):
        with pytest.raises(ValueError, match="round 1 are staged"):
            wrong()
