"""Sums over fixed blocks of the cohort, and sums per coordinate."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.client import run_client
from plures.core.method import Weight
from plures.core.sums import BLOCK, accumulate, empty_sum, in_blocks
from plures.core.visit import Upload
from plures.engines.sequential import Sequential
from plures.local import delta, epochs, sgd
from plures.server import fedadam, global_ht, samples, uniform
from tests.core.helpers import (
    Given,
    class_clients,
    class_program,
    mean_output,
    method,
    network,
    numbers,
    pair_clients,
    pair_program,
    phase,
    rounds_of,
    same_bits,
)

real = st.floats(-1e3, 1e3, allow_nan=False)
uploads = st.lists(st.tuples(real, real, st.floats(0.01, 100)), min_size=1, max_size=3 * BLOCK)


def in_block_sum(rows):
    """As a round sums: within each block, then the blocks."""
    total = empty_sum()
    for block in in_blocks(rows):
        part = empty_sum()
        for values, share in block:
            part.add(Upload(values), share=share, divisor=share, per_coordinate=False)
        total.merge(part)
    return total


@given(st.lists(st.integers(), max_size=70), st.integers(1, 20))
@settings(deadline=None)
def test_blocks_are_cut_by_position_and_hold_every_item_in_order(items, size):
    blocks = list(in_blocks(iter(items), size))
    assert [item for block in blocks for item in block] == items
    assert all(len(block) == size for block in blocks[:-1])
    assert all(0 < len(block) <= size for block in blocks)


def test_a_block_has_sixteen_clients():
    assert [len(block) for block in in_blocks(range(40))] == [16, 16, 8]


@given(uploads)
@settings(deadline=None, max_examples=60)
def test_a_sum_over_blocks_is_the_plain_weighted_mean(rows):
    total = in_block_sum([({"a": numbers(a, b), "b": numbers(b)}, share) for a, b, share in rows])
    weights = sum(share for *_, share in rows)
    size = sum(share * max(abs(a), abs(b)) for a, b, share in rows) / weights
    direction = total.direction(divided=True)
    expected = [sum(share * row[place] for *row, share in rows) / weights for place in (0, 1)]
    # Each of at most 48 additions rounds by 1e-16 of the sum of sizes.
    assert direction["a"].tolist() == pytest.approx(expected, abs=1e-13 * size + 1e-300)
    assert direction["b"].tolist() == pytest.approx(expected[1:], abs=1e-13 * size + 1e-300)
    assert total.num_added == len(rows)
    assert total.divisor == pytest.approx(weights, rel=1e-13)


@given(uploads)
@settings(deadline=None, max_examples=30)
def test_a_sum_that_is_not_divided_is_the_plain_weighted_sum(rows):
    total = in_block_sum([({"a": numbers(a)}, share) for a, _, share in rows])
    size = sum(share * abs(a) for a, _, share in rows)
    assert total.direction(divided=False)["a"].item() == pytest.approx(
        sum(share * a for a, _, share in rows), abs=1e-13 * size + 1e-300
    )


def test_adding_does_not_change_what_was_uploaded():
    first, second = {"a": numbers(1, 2)}, {"a": numbers(3, 4)}
    total = in_block_sum([(first, 1.0), (second, 1.0)])
    assert first["a"].tolist() == [1, 2]
    assert second["a"].tolist() == [3, 4]
    assert total.values["a"].tolist() == [4, 6]


@pytest.mark.parametrize("values", [[torch.tensor([1, 2]), torch.tensor([3, 4])], [torch.tensor([True, True])] * 2])
def test_whole_numbers_are_summed_as_real_ones(values):
    # 2 * (1, 2) + 0.5 * (3, 4) = (3.5, 6); 2 * (1, 1) + 0.5 * (1, 1) = (2.5, 2.5).
    totals = {}
    accumulate(totals, {"n": values[0]}, 2.0)
    accumulate(totals, {"n": values[1]}, 0.5)
    assert totals["n"].dtype == torch.get_default_dtype()
    assert totals["n"].tolist() == ([3.5, 6.0] if values[0].dtype == torch.int64 else [2.5, 2.5])


def test_per_coordinate_each_coordinate_is_divided_by_what_was_held_of_it():
    # Shares 1 and 3. Sums (1*2, 1*2 + 3*4, 0) over held (1, 1 + 3, 0).
    total = empty_sum()
    total.add(Upload({"a": numbers(2, 2, 0)}, {"a": numbers(1, 1, 0)}), share=1.0, divisor=1.0, per_coordinate=True)
    total.add(Upload({"a": numbers(0, 4, 0)}, {"a": numbers(0, 1, 0)}), share=3.0, divisor=3.0, per_coordinate=True)
    assert total.held["a"].tolist() == [1, 4, 0]
    assert total.direction(divided=True)["a"].tolist() == [2.0, 3.5, 0.0]


def test_per_coordinate_an_upload_that_says_nothing_held_everything():
    total = empty_sum()
    total.add(Upload({"a": numbers(2, 2)}), share=1.0, divisor=1.0, per_coordinate=True)
    total.add(
        Upload({"a": numbers(8, 0)}, {"a": torch.tensor([True, False])}), share=1.0, divisor=1.0, per_coordinate=True
    )
    assert total.direction(divided=True)["a"].tolist() == [5.0, 2.0]


def test_per_coordinate_what_was_uploaded_but_not_held_does_not_count():
    total = empty_sum()
    total.add(Upload({"a": numbers(2, 7)}, {"a": numbers(1, 0)}), share=1.0, divisor=1.0, per_coordinate=True)
    assert total.direction(divided=True)["a"].tolist() == [2.0, 0.0]


def test_held_may_be_a_fraction():
    # A client that held a tenth of a block: 0.1 * upload / 0.1.
    total = empty_sum()
    total.add(Upload({"a": numbers(0.3)}, {"a": numbers(0.1)}), share=2.0, divisor=2.0, per_coordinate=True)
    assert total.direction(divided=True)["a"].item() == pytest.approx(3.0, rel=1e-15)


def test_held_as_a_mask_loses_no_precision():
    # (0.1 * 3) / (0.1 * 1) = 3.
    total = empty_sum()
    total.add(Upload({"a": numbers(3)}, {"a": torch.tensor([True])}), share=0.1, divisor=0.1, per_coordinate=True)
    assert total.direction(divided=True)["a"].item() == pytest.approx(3.0, rel=1e-14)


masks = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=2 * BLOCK + 3)


@given(masks, st.data())
@settings(deadline=None, max_examples=40)
def test_per_coordinate_the_direction_is_the_mean_over_those_who_held_it(held, data):
    values = [data.draw(st.lists(real, min_size=4, max_size=4)) for _ in held]
    total = empty_sum()
    for block in in_blocks(zip(values, held, strict=True)):
        part = empty_sum()
        for row, mask in block:
            kept = numbers(*row) * torch.tensor(mask)
            part.add(Upload({"a": kept}, {"a": torch.tensor(mask)}), share=1.0, divisor=1.0, per_coordinate=True)
        total.merge(part)
    direction = total.direction(divided=True)["a"].tolist()
    for place in range(4):
        mine = [row[place] for row, mask in zip(values, held, strict=True) if mask[place]]
        expected = sum(mine) / len(mine) if mine else 0.0
        assert direction[place] == pytest.approx(expected, rel=1e-12, abs=1e-12)


class ReadsAhead(Sequential):
    """Takes visits long before it works, works in an order of its own, and answers in order."""

    def __init__(self, ahead):
        self.ahead = ahead

    def run(self, program, visits):
        for group in in_blocks(visits, self.ahead):
            done = {v.client: run_client(program.method, program.binding(v.client), v) for v in reversed(group)}
            yield from (done[visit.client] for visit in group)


@pytest.mark.parametrize(("ahead", "weight"), [(3, samples), (17, global_ht), (100, uniform)])
def test_the_sum_has_the_same_bits_however_far_an_engine_reads_ahead(ahead, weight):
    clients = class_clients(tuple(range(1, 36)))
    training = phase(("shared", "personal"), budget=epochs(1, batch=16))
    program = class_program(method(training, personal=("3.*",), upload=delta, weight=weight), network(dropout=0.3))
    expected = rounds_of(program, clients, 2)
    again = rounds_of(program, clients, 2, engine=ReadsAhead(ahead))
    assert same_bits(again[-1].server.shared, expected[-1].server.shared)
    assert again[-1].report == expected[-1].report


def holds(*kept):
    """Client i uploads 1 for a and for b where its turn in `kept` says so; turns go round by round."""

    def upload(visit, trained):
        turn = kept[visit.round - 1][visit.client]
        mask = {name: numbers(float(name in turn))[0] for name in trained.shared}
        return Upload({name: 1.0 * held for name, held in mask.items()}, mask)

    return upload


@pytest.mark.parametrize("server", [sgd(1.0), sgd(0.5, momentum=0.9, weight_decay=0.1), fedadam(0.1)])
def test_what_nobody_holds_keeps_its_bits_whatever_the_server_remembers(server):
    # In round 1 everybody holds both; in round 2 nobody holds b; in round 3 nobody holds anything.
    clients = pair_clients([(1, 1, 0)], [(1, 1, 0), (1, 1, 0)])
    upload = holds([{"a", "b"}, {"a", "b"}], [{"a"}, set()], [set(), set()])
    program = pair_program(phase(), personal=(), upload=upload, server=server, per_coordinate=True, weight=uniform)
    first, second, third = (done.server.shared for done in rounds_of(program, clients, 3))
    assert first["b"] != 1.0
    assert second["a"] != first["a"]
    assert torch.equal(second["b"], first["b"])
    assert same_bits(third, second)


def test_without_per_coordinate_an_absent_coordinate_counts_as_zero():
    # One of two clients uploads 1 for b: the mean is 0.5, and b = 1 - 0.5.
    clients = pair_clients([(1, 1, 0)], [(1, 1, 0)])
    program = pair_program(phase(), personal=(), upload=holds([{"a", "b"}, {"a"}]), weight=uniform)
    assert rounds_of(program, clients)[-1].server.shared["b"] == 0.5


def test_a_weight_without_a_divisor_scales_the_sum():
    # Both clients' a moves by 0.1 * 3: with shares of 2 each and no division, a = 2 - 2 * 2 * 0.3.
    twice = Weight("twice", lambda facts: 2.0, None)
    program = pair_program(phase(), loss=mean_output, weight=twice)
    done = rounds_of(program, pair_clients([(3, 0, 0)], [(3, 0, 0)]))[-1]
    assert done.server.shared["a"].item() == pytest.approx(2 - 4 * 0.3, rel=1e-15)


def test_the_order_of_the_cohort_changes_no_more_than_rounding():
    clients = class_clients(tuple(range(1, 21)))
    program = class_program(method(phase(), personal=("3.*",)))
    there, back = (
        rounds_of(program, clients, 1, sampler=Given(tuple(order)))[-1].server.shared
        for order in (range(20), reversed(range(20)))
    )
    for name, value in there.items():
        torch.testing.assert_close(back[name], value, rtol=1e-13, atol=1e-15)
