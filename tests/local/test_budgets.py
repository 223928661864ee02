"""Budgets: which examples, in which order, and when it ends."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.core.seeds import generator
from plures.local import FULL, epochs, steps

sizes = st.integers(1, 60)
counts = st.integers(0, 4)


def drawn(budget, num_examples, seed=0):
    """The batches as lists; a batch of all examples as the list of all."""
    found = budget.batches(num_examples, generator(seed, "test"))
    return [list(range(num_examples)) if batch is None else batch.tolist() for batch in found]


@given(counts, sizes, sizes)
def test_every_epoch_has_every_example_once(count, num_examples, batch):
    batches = drawn(epochs(count, batch), num_examples)
    per_epoch = -(-num_examples // batch)
    assert len(batches) == count * per_epoch
    for first in range(0, len(batches), per_epoch):
        epoch = [index for part in batches[first : first + per_epoch] for index in part]
        assert sorted(epoch) == list(range(num_examples))


@given(counts, sizes, sizes)
def test_only_the_last_batch_of_an_epoch_is_smaller(count, num_examples, batch):
    full, rest = divmod(num_examples, batch)
    expected = ([batch] * full + [rest] * (rest > 0)) * count
    assert [len(part) for part in drawn(epochs(count, batch), num_examples)] == expected


def test_ten_examples_in_batches_of_four_are_four_four_and_two():
    assert [len(part) for part in drawn(epochs(2, 4), 10)] == [4, 4, 2, 4, 4, 2]


def test_epochs_have_orders_of_their_own():
    batches = drawn(epochs(2, 25), 50)
    assert batches[0] + batches[1] != batches[2] + batches[3]
    assert batches[0] + batches[1] != list(range(50))


def test_the_generator_decides_the_order():
    budget = epochs(2, 8)
    assert drawn(budget, 40, seed=1) == drawn(budget, 40, seed=1)
    assert drawn(budget, 40, seed=1) != drawn(budget, 40, seed=2)


@given(st.integers(0, 30), sizes, sizes)
def test_steps_end_after_their_count_whatever_the_data(count, num_examples, batch):
    batches = drawn(steps(count, batch), num_examples)
    assert len(batches) == count
    assert all(len(part) <= batch and len(set(part)) == len(part) for part in batches)


@given(counts, sizes, sizes)
def test_steps_go_through_the_same_batches_as_epochs(count, num_examples, batch):
    per_epoch = -(-num_examples // batch)
    assert drawn(steps(count * per_epoch, batch), num_examples) == drawn(epochs(count, batch), num_examples)


def test_a_cap_cuts_long_epochs_and_leaves_short_ones():
    # 100 examples in batches of 10: 20 updates in 2 epochs, cut to 15. 30 examples: 6 updates, left.
    whole, capped = epochs(2, 10), epochs(2, 10, cap=15)
    assert drawn(capped, 100) == drawn(whole, 100)[:15]
    assert drawn(capped, 30) == drawn(whole, 30)
    assert drawn(epochs(2, 10, cap=0), 100) == []


@pytest.mark.parametrize("budget", [epochs(3, FULL), steps(3), steps(3, FULL), steps(3, 8), epochs(3, 7)])
def test_a_batch_of_all_examples_is_none_and_draws_nothing(budget):
    draws = generator(0, "test")
    before = draws.get_state()
    assert list(budget.batches(7, draws)) == [None, None, None]
    assert torch.equal(draws.get_state(), before)


@pytest.mark.parametrize("budget", [epochs(0), epochs(0, FULL), steps(0), steps(0, 4)])
def test_a_count_of_zero_is_no_batch(budget):
    assert drawn(budget, 10) == []


@pytest.mark.parametrize("budget", [epochs(2), epochs(2, FULL), steps(2), steps(2, 4)])
def test_a_client_without_examples_has_no_batch(budget):
    assert drawn(budget, 0) == []
    assert budget.num_updates(0) == 0


@given(
    st.one_of(
        st.builds(epochs, counts, st.one_of(sizes, st.just(FULL)), st.one_of(st.none(), st.integers(0, 9))),
        st.builds(steps, counts, st.one_of(sizes, st.just(FULL))),
    ),
    sizes,
)
def test_the_number_of_updates_is_known_before(budget, num_examples):
    assert budget.num_updates(num_examples) == len(drawn(budget, num_examples))


def test_indices_are_ready_to_index_with():
    first = next(iter(epochs(1, 2).batches(5, generator(0, "test"))))
    assert first.dtype == torch.int64
    assert first.shape == (2,)


def test_budgets_are_values_and_keep_their_stream():
    assert epochs(1, 32, stream="a") == epochs(1, stream="a") != epochs(1)
    assert hash(steps(5)) == hash(steps(5, FULL))
    assert (epochs(1).stream, steps(1, stream="b").stream) == ("", "b")


@pytest.mark.parametrize(
    "make",
    [
        lambda: epochs(-1),
        lambda: epochs(1.5),
        lambda: epochs(1, 0),
        lambda: epochs(1, "all"),
        lambda: epochs(1, 32.0),
        lambda: epochs(1, cap=-1),
        lambda: steps(-1),
        lambda: steps(True),
        lambda: steps(1, -8),
    ],
)
def test_impossible_options_are_refused(make):
    with pytest.raises(InvalidConfig):
        make()
