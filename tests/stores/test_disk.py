"""Client state in a file: what is in force, what lasts, and what is taken of memory."""

import gc
import sqlite3

import pytest
import torch

from plures.core.errors import RunFolderError
from plures.stores.cache import kept
from plures.stores.disk import DiskStore

NO_CACHE = 0
"""Everything is written at once, and read again."""


def state(value: float, size: int = 1000) -> dict[str, torch.Tensor]:
    return {"head.weight": torch.full((size,), value), "head.bias": torch.tensor(value)}


def value(store: DiskStore, client: int) -> float | None:
    held = store.get(client)
    return None if held is None else held["head.bias"].item()


def values(store: DiskStore) -> dict[int, float]:
    return {client: value(store, client) for client in store.clients()}


caches = pytest.mark.parametrize("cache_bytes", [NO_CACHE, 20_000, 2**20], ids=["no cache", "small", "large"])


@caches
def test_a_round_is_in_force_with_its_commit_and_not_before(open_store, cache_bytes):
    store = open_store(cache_bytes=cache_bytes)
    store.commit(1, {1: state(1.0)})
    for client in range(20):
        store.stage(2, {client: state(2.0)})
        assert values(store) == {1: 1.0}
    store.commit(2, {30: state(3.0)})
    assert values(store) == dict.fromkeys(range(20), 2.0) | {30: 3.0}
    assert store.round == 2


@caches
def test_what_is_discarded_is_never_in_force(open_store, cache_bytes):
    store = open_store(cache_bytes=cache_bytes)
    store.commit(1, {1: state(1.0)})
    store.stage(2, {client: state(2.0) for client in range(20)})
    store.discard()
    store.commit(2, {2: state(5.0)})
    assert values(store) == {1: 1.0, 2: 5.0}
    store.save(2)
    assert values(open_store(read_only=True)) == {1: 1.0, 2: 5.0}


@caches
def test_a_client_may_be_staged_anew(open_store, cache_bytes):
    store = open_store(cache_bytes=cache_bytes)
    for attempt in (1.0, 2.0):
        store.stage(1, {client: state(attempt) for client in range(20)})
    store.stage(1, {3: state(7.0)})
    store.commit(1)
    assert values(store) == dict.fromkeys(range(20), 2.0) | {3: 7.0}


@caches
def test_what_was_saved_is_there_when_the_file_is_opened_again_and_the_rest_is_not(open_store, cache_bytes):
    store = open_store(cache_bytes=cache_bytes)
    store.commit(1, {client: state(1.0) for client in range(20)})
    store.save(1)
    store.commit(2, {client: state(2.0) for client in range(10, 30)})
    store.stage(3, {client: state(3.0) for client in range(20, 40)})
    store.close()
    again = open_store()
    assert (values(again), again.round) == (dict.fromkeys(range(20), 1.0), 1)


def test_a_state_comes_back_with_its_names_in_order_and_its_bits(open_store):
    own = {
        "z": torch.tensor([0.1, -0.0, torch.nan, torch.inf]),
        "a": torch.tensor([True, False]),
        "m": torch.tensor(3, dtype=torch.int64),
        "half": torch.tensor([0.1], dtype=torch.bfloat16),
        "none": torch.empty(0, 3, dtype=torch.float64),
    }
    open_store().commit(1, {7: own})
    store = open_store(cache_bytes=NO_CACHE)
    store.commit(1, {7: own})
    back = store.get(7)
    assert list(back) == list(own)
    for name, expected in own.items():
        assert (back[name].dtype, back[name].shape) == (expected.dtype, expected.shape)
        assert torch.equal(back[name].reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))


def test_a_store_without_states_leaves_no_file(open_store, path):
    store = open_store()
    for round in range(1, 4):
        store.commit(round, {})
        store.save(round)
        store.forget_before(round)
    store.close()
    assert not path.exists()
    assert list(open_store(read_only=True).clients()) == []
    resumed = open_store()
    resumed.roll_back(3)
    assert resumed.round == 3


def test_states_that_fit_in_memory_are_written_at_a_save_alone(open_store, path):
    store = open_store(cache_bytes=2**20)
    store.commit(1, {client: state(1.0) for client in range(20)})
    assert not path.exists()
    store.save(1)
    assert path.stat().st_size > 20 * 4000


def test_a_closed_store_leaves_one_file(open_store, path):
    store = open_store(cache_bytes=NO_CACHE)
    store.commit(1, {client: state(1.0) for client in range(20)})
    store.save(1)
    store.commit(2, {client: state(2.0) for client in range(20)})
    assert [file.name for file in path.parent.iterdir()] != [path.name], "there is a journal while something is open"
    store.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_closed_store_says_so_rather_than_that_nobody_has_a_state(open_store):
    with open_store() as store:
        store.commit(1, {1: state(1.0)})
        store.save(1)
    with pytest.raises(RunFolderError, match="closed"):
        store.get(5)


def held_bytes() -> int:
    """Of all tensors there are."""
    gc.collect()
    dense = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.layout is torch.strided]
    return sum(one.untyped_storage().nbytes() for one in dense)


def test_no_more_is_held_in_memory_than_was_allowed(open_store):
    before, one = held_bytes(), kept(1, state(0.0)).num_bytes
    store = open_store(cache_bytes=10 * one)
    for round in (1, 2):
        for client in range(100):
            store.stage(round, {client: state(float(round))})
        assert held_bytes() - before <= 10 * one
        store.commit(round)
        for client in range(100):
            assert value(store, client) == round
        assert held_bytes() - before <= 10 * one
    store.save(2)
    assert held_bytes() - before <= 10 * one


def test_a_large_buffer_is_not_kept_for_a_small_view_of_it(open_store):
    before, store = held_bytes(), open_store()
    store.commit(1, {client: {"v": torch.zeros(100_000)[client : client + 2]} for client in range(10)})
    assert held_bytes() - before < 1000


def test_what_was_used_last_stays_in_memory(open_store):
    one = kept(1, state(0.0)).num_bytes
    store = open_store(cache_bytes=5 * one)
    store.commit(1, {client: state(1.0) for client in range(5)})
    store.save(1)
    first = store.get(0)
    store.commit(2, {9: state(2.0)})
    assert store.get(0) is first
    assert value(store, 1) == 1.0


def test_a_checkpoint_that_is_kept_can_be_gone_back_to(open_store):
    store = open_store(cache_bytes=NO_CACHE)
    for round in range(1, 7):
        store.commit(round, {client: state(float(round)) for client in range(round)})
        store.save(round)
    store.forget_before(3)
    store.close()
    again = open_store()
    again.roll_back(4)
    assert (values(again), again.round) == (dict.fromkeys(range(4), 4.0), 4)
    assert (values(open_store()), open_store().round) == (dict.fromkeys(range(4), 4.0), 4)
    again.commit(5, {9: state(9.0)})
    again.save(5)
    assert values(open_store()) == dict.fromkeys(range(4), 4.0) | {9: 9.0}


def test_a_reader_may_look_at_a_round_that_is_kept(open_store):
    store = open_store()
    for round in range(1, 4):
        store.commit(round, {client: state(float(round)) for client in range(round)})
        store.save(round)
    assert values(open_store(read_only=True, as_of=2)) == {0: 2.0, 1: 2.0}
    assert values(open_store(read_only=True)) == dict.fromkeys(range(3), 3.0)


def test_rounds_that_are_not_there_are_refused(open_store):
    store = open_store()
    for round in range(1, 7):
        store.commit(round, {0: state(float(round))})
        store.save(round)
    store.forget_before(4)
    for wrong in (lambda: store.roll_back(3), lambda: open_store(read_only=True, as_of=3)):
        with pytest.raises(RunFolderError, match=r"personal\.db has states from round 4 on; those of round 3 are gone"):
            wrong()
    for wrong in (lambda: store.roll_back(7), lambda: open_store(read_only=True, as_of=7)):
        with pytest.raises(RunFolderError, match=r"personal\.db was saved after round 6: it has no states of round 7"):
            wrong()
    assert value(store, 0) == 6.0


def test_a_reader_is_told_that_its_round_is_gone(open_store):
    store = open_store()
    store.commit(1, {0: state(1.0), 1: state(1.0)})
    store.save(1)
    reader = open_store(read_only=True)
    store.commit(2, {0: state(2.0)})
    store.save(2)
    assert value(reader, 0) == 1.0
    store.forget_before(2)
    with pytest.raises(RunFolderError, match="those of round 1 are gone"):
        reader.get(1)


def test_old_versions_take_no_room_once_they_are_forgotten(open_store, path):
    store, sizes, used = open_store(cache_bytes=NO_CACHE), [], []
    for round in range(1, 13):
        store.commit(round, {client: state(float(round)) for client in range(20)})
        store.save(round)
        store.forget_before(round)
        sizes.append(path.stat().st_size)
        used.append(store.stored_bytes())
    assert sizes[1:] == [sizes[1]] * 11, "the first save beside the one before it makes the file as long as it gets"
    assert max(used) <= 1.2 * used[0]


def test_the_checkpoint_before_the_last_takes_room_and_none_before_that(open_store):
    store, used = open_store(cache_bytes=NO_CACHE), []
    for round in range(1, 13):
        store.stage(round, {client: state(float(round)) for client in range(20)})
        store.commit(round)
        store.save(round)
        store.forget_before(round - 1)
        used.append(store.stored_bytes())
    assert max(used) <= 2.2 * used[0]
    assert values(open_store(read_only=True, as_of=11)) == dict.fromkeys(range(20), 11.0)


def test_clients_that_are_not_visited_again_lose_their_older_versions_too(open_store):
    store, used = open_store(), []
    for round in (1, 2):
        store.commit(round, {client: state(float(round)) for client in range(20)})
        store.save(round)
        store.forget_before(1)
        used.append(store.stored_bytes())
    store.forget_before(2)
    assert store.stored_bytes() <= 1.2 * used[0] < used[1]


def test_what_was_looked_at_during_a_round_is_not_taken_for_what_it_left(open_store):
    one = kept(1, state(0.0)).num_bytes
    store = open_store(cache_bytes=3 * one)
    store.commit(1, {client: state(1.0) for client in range(10)})
    store.stage(2, {client: state(2.0) for client in range(10)})
    assert value(store, 4) == 1.0
    store.commit(2)
    assert value(store, 4) == 2.0


def test_versions_left_by_another_process_are_forgotten_as_well(open_store):
    store = open_store()
    for round in range(1, 6):
        store.commit(round, {client: state(float(round)) for client in range(20)})
        store.save(round)
    full = store.stored_bytes()
    store.close()
    again = open_store()
    again.forget_before(5)
    assert again.stored_bytes() < full / 4
    assert values(again) == dict.fromkeys(range(20), 5.0)


def test_what_is_not_written_yet_counts_as_well(open_store):
    store = open_store()
    store.commit(1, {client: state(1.0) for client in range(20)})
    assert 20 * 4000 < store.stored_bytes() < 20 * 8000
    store.save(1)
    assert 20 * 4000 < store.stored_bytes() < 20 * 8000


@pytest.mark.parametrize("is_staged", [False, True])
def test_what_changed_between_two_saves_is_written_once(open_store, is_staged):
    store = open_store(cache_bytes=NO_CACHE)
    store.commit(1, {client: state(1.0) for client in range(20)})
    store.save(1)
    once = store.stored_bytes()
    for round in range(2, 12):
        states = {client: state(float(round)) for client in range(20)}
        if is_staged:
            store.stage(round, states)
        store.commit(round, {} if is_staged else states)
    store.save(11)
    assert store.stored_bytes() < 2.2 * once
    assert values(open_store(read_only=True, as_of=1)) == dict.fromkeys(range(20), 1.0)


def test_to_forget_does_not_make_a_round_under_way_last(open_store):
    store = open_store(cache_bytes=NO_CACHE)
    store.commit(1, {1: state(1.0)})
    store.save(1)
    store.stage(2, {client: state(2.0) for client in range(20)})
    store.forget_before(1)
    store.close()
    again = open_store()
    again.commit(2, {})
    assert values(again) == {1: 1.0}


def test_a_save_must_be_of_the_committed_round_and_not_within_one(open_store):
    store = open_store()
    store.commit(3, {1: state(1.0)})
    with pytest.raises(ValueError, match="the store is at round 3"):
        store.save(2)
    store.stage(4, {1: state(2.0)})
    with pytest.raises(ValueError, match="round 4 is under way"):
        store.save(3)
    store.discard()
    store.save(3)


def test_states_of_rounds_that_are_over_are_refused(open_store):
    store = open_store()
    store.commit(3, {1: state(1.0)})
    store.save(3)
    for wrong in (
        lambda: store.stage(3, {1: state(2.0)}),
        lambda: store.commit(2, {1: state(2.0)}),
        lambda: store.commit(3, {1: state(2.0)}),
    ):
        with pytest.raises(ValueError, match="Round 3 is committed"):
            wrong()
    assert value(store, 1) == 1.0


def test_a_reader_cannot_write(open_store):
    store = open_store()
    store.commit(1, {1: state(1.0)})
    store.save(1)
    reader = open_store(read_only=True)
    for wrong in (
        lambda: reader.stage(2, {1: state(2.0)}),
        lambda: reader.commit(2),
        lambda: reader.save(1),
        lambda: reader.forget_before(1),
        lambda: reader.roll_back(0),
    ):
        with pytest.raises(RunFolderError, match="opened for reading"):
            wrong()
    assert value(reader, 1) == 1.0


def test_states_are_given_to_the_device_that_was_asked_for(open_store):
    store = open_store(device="meta")
    store.commit(1, {1: state(1.0)})
    assert {one.device.type for one in store.get(1).values()} == {"meta"}
    store.save(1)
    assert value(open_store(), 1) == 1.0


def test_clients_are_told_in_order_however_many_there_are(open_store):
    store = open_store(cache_bytes=NO_CACHE)
    even, odd = range(0, 24_000, 2), range(1, 24_000, 2)
    store.commit(1, {client: {"v": torch.zeros(1)} for client in even})
    store.cache_bytes = 2**30
    store.commit(2, {client: {"v": torch.zeros(1)} for client in odd})
    assert list(store.clients()) == list(range(24_000))


@pytest.mark.parametrize(("size", "page_bytes"), [(1000, 4096), (300_000, 65536)])
@caches
def test_the_size_of_pages_follows_that_of_states(open_store, path, cache_bytes, size, page_bytes):
    store = open_store(cache_bytes=cache_bytes)
    store.commit(1, {1: state(1.0, size)})
    store.save(1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA page_size").fetchone()[0] == page_bytes
    connection.close()
