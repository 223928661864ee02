"""States held in memory, with how much they take."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.stores.cache import TENSOR_BYTES, Kept, Shelf, kept

uses = st.lists(st.tuples(st.sampled_from(["put", "get", "take", "drop"]), st.integers(0, 4), st.integers(1, 9)))


def test_a_state_takes_its_values_and_something_for_each_tensor():
    state = {"a": torch.zeros(10, dtype=torch.float64), "b": torch.zeros(3, dtype=torch.bool)}
    assert kept(1, state).num_bytes == 83 + 3 * TENSOR_BYTES


@given(uses)
def test_bytes_are_those_of_what_is_there_and_the_one_used_first_goes_first(uses):
    shelf, order = Shelf(), dict[int, int]()
    for use, client, num_bytes in uses:
        if use == "put":
            shelf.put(client, Kept(1, {}, num_bytes))
            order.pop(client, None)
            order[client] = num_bytes
        elif use == "get":
            found = shelf.get(client)
            assert (found is None) == (client not in order)
            if found is not None:
                order[client] = order.pop(client)
        elif use == "take":
            assert (shelf.take(client) is None) == (order.pop(client, None) is None)
        elif order:
            shelf.drop_oldest()
            del order[next(iter(order))]
        assert [client for client, _ in shelf.items()] == list(order)
        assert (shelf.num_bytes, len(shelf), shelf.clients()) == (sum(order.values()), len(order), sorted(order))
