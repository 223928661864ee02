"""Robust sums against plain loops in double precision, and what hostile uploads cannot do to them."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import TooFewClients
from plures.core.sums import empty_sum, in_blocks
from plures.core.visit import Upload
from plures.server import clipped, krum, median, trimmed_mean
from plures.server.robust_rules import COLUMNS
from tests.core.helpers import numbers, same_bits

NEAR = {"rel": 1e-12, "abs": 1e-12}
"""Sums of at most 40 numbers below 1e3, each addition of which rounds by 1e-16."""

PLACES = 3
real = st.floats(-1e3, 1e3, allow_nan=False)
row = st.lists(real, min_size=PLACES, max_size=PLACES)
rows = st.lists(row, min_size=1, max_size=20)
cut_shares = st.sampled_from([0.0, 0.1, 0.2, 0.25, 1 / 3, 0.4])
quick = settings(deadline=None, max_examples=40)


def upload_of(values, held=None):
    """Two tensors: the first place by itself, the others together."""
    split = {"a": numbers(*values[:1]).reshape(()), "b": numbers(*values[1:])}
    if held is None:
        return Upload(split)
    how_much = torch.tensor(held, dtype=torch.bool if isinstance(held[0], bool) else torch.float64)
    masks = {"a": how_much[0], "b": how_much[1:]}
    return Upload({name: torch.where(masks[name] > 0, value, 0.0) for name, value in split.items()}, masks)


def total_of(new_sum, uploads, *, shares=None, divisors=None, per_coordinate=False, block=16):
    """As a round sums: within each block, then the blocks."""
    shares = shares or [1.0] * len(uploads)
    total = new_sum()
    for some in in_blocks(zip(uploads, shares, divisors or shares, strict=True), block):
        part = new_sum()
        for upload, share, divisor in some:
            part.add(upload, share=share, divisor=divisor, per_coordinate=per_coordinate)
        total.merge(part)
    return total


def flat(direction):
    return [*direction["a"].reshape(-1).tolist(), *direction["b"].reshape(-1).tolist()]


def direction_of(new_sum, uploads, *, divided=True, **settings):
    return flat(total_of(new_sum, uploads, **settings).direction(divided=divided))


# The oracles


def trimmed(values, share):
    """The paper's trimmed mean, with the share rounded up, and one or two values left at least."""
    cut = min(math.ceil(share * len(values) - 1e-9), (len(values) - 1) // 2)
    kept = sorted(values)[cut : len(values) - cut]
    return math.fsum(kept) / len(kept)


def krum_scores(points, attackers):
    scores = []
    for one in points:
        others = sorted(math.fsum((a - b) ** 2 for a, b in zip(one, other, strict=True)) for other in points)
        scores.append(math.fsum(others[1 : len(points) - attackers - 1]))  # without the point itself: n - f - 2
    return scores


def mean_of(points):
    return [math.fsum(place) / len(points) for place in zip(*points, strict=True)]


# Coordinate by coordinate


@given(rows)
@quick
def test_the_median_is_that_of_each_coordinate(points):
    expected = [statistics.median(place) for place in zip(*points, strict=True)]
    assert direction_of(median(), [upload_of(point) for point in points]) == pytest.approx(expected, **NEAR)


@given(rows, cut_shares)
@quick
def test_the_trimmed_mean_leaves_out_a_share_at_each_end(points, share):
    expected = [trimmed(place, share) for place in zip(*points, strict=True)]
    found = direction_of(trimmed_mean(share), [upload_of(point) for point in points])
    assert found == pytest.approx(expected, **NEAR)


masked_rows = st.lists(
    st.tuples(row, st.lists(st.booleans(), min_size=PLACES, max_size=PLACES), st.floats(0.1, 10)),
    min_size=1,
    max_size=20,
)


@given(masked_rows, cut_shares | st.just(0.5), st.sampled_from(["divided", "undivided", "per coordinate"]))
@quick
def test_only_those_who_held_a_coordinate_have_a_say_in_it(clients, share, weight):
    uploads = [upload_of(point, held) for point, held, _ in clients]
    shares = [weight for *_, weight in clients]
    found = direction_of(
        median() if share == 0.5 else trimmed_mean(share),
        uploads,
        shares=shares,
        divisors=[2.0 * given for given in shares],
        per_coordinate=weight == "per coordinate",
        divided=weight != "undivided",
    )
    length = {"divided": 0.5, "undivided": math.fsum(shares), "per coordinate": None}[weight]
    for place in range(PLACES):
        mine = [point[place] for point, held, _ in clients if held[place]]
        middle = trimmed(mine, share) if mine else 0.0
        factor = 1.0 if length is None else length * len(mine) / len(clients)
        assert found[place] == pytest.approx(factor * middle, rel=1e-12, abs=1e-10)


def test_what_was_held_is_told_only_if_uploads_say_so():
    whole, half = upload_of([1.0, 2.0, 3.0]), upload_of([1.0, 2.0, 3.0], [True, False, False])
    assert total_of(median(), [whole, whole]).held == {}
    assert flat(total_of(median(), [half, half]).held) == [2.0, 0.0, 0.0]
    assert flat(total_of(median(), [whole, half]).held) == [2.0, 1.0, 1.0]


def test_what_is_held_in_part_is_sent_in_part():
    # Clients hold 0.1, 0.5 and all of a coordinate whose values are 30, 10 and 20: the median of the whole is 20.
    uploads = [upload_of([value * held] * 3, [held] * 3) for value, held in [(30.0, 0.1), (10.0, 0.5), (20.0, 1.0)]]
    assert direction_of(median(), uploads, per_coordinate=True) == pytest.approx([20.0] * 3, **NEAR)
    # By the mean of what was held, where a method does not divide by it.
    assert direction_of(median(), uploads) == pytest.approx([20.0 * 1.6 / 3] * 3, **NEAR)


def test_a_tensor_that_some_do_not_upload_is_not_held_by_them():
    with_b = [upload_of([1.0, value, value]) for value in (5.0, 7.0)]
    without_b = Upload({"a": numbers(1.0).reshape(())})
    total = total_of(median(), [*with_b, without_b])
    assert flat(total.direction(divided=True)) == pytest.approx([1.0, 4.0, 4.0], **NEAR)  # 6 times two of three


def test_large_tensors_are_looked_at_piece_by_piece():
    draws = torch.Generator().manual_seed(0)
    values = [torch.randn(3, COLUMNS, generator=draws)[:, : COLUMNS - 5] for _ in range(7)]
    total = total_of(median(), [Upload({"w": value}) for value in values])
    found = total.direction(divided=True)["w"]
    assert torch.equal(found, torch.stack(values).median(dim=0).values)
    assert found.dtype == torch.float32
    assert krum_of(values) == krum_of([value.double() for value in values])


def krum_of(values):
    total = total_of(krum(2), [Upload({"w": value}) for value in values])
    found = total.direction(divided=True)["w"]
    return next(place for place, value in enumerate(values) if torch.equal(value, found))


def test_counters_are_whole_numbers_among_real_ones():
    uploads = [Upload({"n": torch.tensor(count)}) for count in (3, 4, 1000, 5)]
    found = total_of(median(), uploads).direction(divided=True)["n"]
    assert found.dtype == torch.get_default_dtype()
    assert found.item() == 4.5


# Krum


clouds = st.integers(5, 12).flatmap(lambda count: st.lists(row, min_size=count, max_size=count))


@given(clouds, st.integers(0, 1), st.integers(1, 12))
@quick
def test_krum_takes_the_uploads_nearest_to_their_neighbours(points, attackers, keep):
    scores = krum_scores(points, attackers)
    keep = min(keep, len(points) - attackers)
    found = direction_of(krum(attackers, keep=keep), [upload_of(point) for point in points])
    nearest = sorted(scores)[keep - 1]
    # Scores that are equal but for roundings may change places: any choice among them will do.
    sure = [place for place, score in enumerate(scores) if score < nearest * (1 - 1e-9) - 1e-9]
    maybe = [place for place, score in enumerate(scores) if abs(score - nearest) <= nearest * 1e-9 + 1e-9]
    choices = itertools.islice(itertools.combinations(maybe, keep - len(sure)), 1000)
    means = [mean_of([points[place] for place in [*sure, *choice]]) for choice in choices]
    assert any(found == pytest.approx(mean, **NEAR) for mean in means)


def test_krum_by_hand():
    # On a line 0, 1, 3 and 100 twice. Of one attacker two neighbours count: 1 + 9, 1 + 4, 4 + 9, 0 + 97^2, the same.
    uploads = [upload_of([value, 0.0, 0.0]) for value in (0.0, 1.0, 3.0, 100.0, 100.0)]
    assert direction_of(krum(1), uploads)[0] == 1.0
    assert direction_of(krum(1, keep=3), uploads)[0] == pytest.approx(4 / 3, **NEAR)
    assert direction_of(krum(0.2, keep=99), uploads)[0] == pytest.approx(26.0, **NEAR)  # four at most, of five


def test_krum_takes_the_first_of_equal_scores():
    uploads = [upload_of([value, 0.0, 0.0]) for value in (0.0, 1.0, 2.0)]
    assert direction_of(krum(0), uploads)[0] == 0.0


def test_krum_knows_only_what_was_held():
    held = [[True, True, False]] * 3 + [[True, True, True]]
    points = [[0.0, 1.0, 9.0], [0.0, 2.0, -9.0], [0.0, 1.1, 9.0], [0.0, 1.0, 5.0], [0.0, 1.05, 0.0]]
    uploads = [upload_of(*pair) for pair in zip(points, [*held, held[0]], strict=True)]
    total = total_of(krum(1), uploads)
    assert flat(total.direction(divided=True)) == [0.0, 1.05, 0.0]
    assert flat(total.held) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(("attackers", "count"), [(1, 4), (0.2, 4), (0.4, 14), (3, 8)])
def test_krum_refuses_a_round_that_is_too_small(attackers, count):
    total = total_of(krum(attackers), [upload_of([1.0, 2.0, 3.0])] * count)
    with pytest.raises(TooFewClients, match=rf"a round has {count} in all\. Call a larger cohort"):
        total.direction(divided=True)
    assert krum(attackers).too_few(count) is not None
    assert krum(attackers).too_few(count + 1) is None


# Norms


@given(masked_rows, st.floats(0.01, 3e3))
@quick
def test_what_is_too_long_is_shortened_and_then_summed_by_weight(clients, norm):
    lengths = [math.hypot(*point) for point, *_ in clients]
    shares = [share for *_, share in clients]
    check_clipped(clipped(norm), [norm] * len(clients), clients, lengths, shares)
    check_clipped(clipped("median"), [statistics.median(lengths)] * len(clients), clients, lengths, shares)


def check_clipped(rule, norms, clients, lengths, shares):
    factors = [min(1.0, norm / length) if length else 1.0 for norm, length in zip(norms, lengths, strict=True)]
    uploads = [upload_of(point) for point, *_ in clients]
    parts = [[f * s * value for value in c[0]] for f, s, c in zip(factors, shares, clients, strict=True)]
    summed = [math.fsum(place) for place in zip(*parts, strict=True)]
    found = direction_of(rule, uploads, shares=shares, divided=False)
    assert found == pytest.approx(summed, rel=1e-12, abs=1e-10)
    found = direction_of(rule, uploads, shares=shares, divided=True)
    assert found == pytest.approx([value / math.fsum(shares) for value in summed], rel=1e-12, abs=1e-10)


def test_counters_are_neither_long_nor_shortened():
    uploads = [Upload({"n": torch.tensor(100), "w": numbers(3.0, 4.0)})]
    found = total_of(clipped(1.0), uploads).direction(divided=True)
    assert found["n"].item() == 100.0
    assert found["w"].tolist() == pytest.approx([0.6, 0.8], **NEAR)


# Where they are the plain sum


@given(masked_rows, st.booleans(), st.booleans(), st.booleans())
@quick
def test_without_a_bound_clipping_changes_no_bit(clients, masked, per_coordinate, divided):
    uploads = [upload_of(point, held if masked else None) for point, held, _ in clients]
    settings = {"shares": [share for *_, share in clients], "per_coordinate": per_coordinate}
    plain, same = (total_of(new, uploads, **settings) for new in (empty_sum, clipped(math.inf)))
    assert same_bits(same.direction(divided=divided), plain.direction(divided=divided))
    assert same_bits(same.held, plain.held)
    assert same.num_added == plain.num_added == len(clients)


@given(st.lists(st.sampled_from([[3.0, 4.0, 0.0], [0.0, 0.0, 5.0]]), min_size=1, max_size=40), st.floats(0.1, 3.0))
@quick
def test_uploads_of_one_length_are_not_clipped_to_their_median(points, share):
    uploads = [upload_of(point) for point in points]
    plain, same = (total_of(new, uploads, shares=[share] * len(points)) for new in (empty_sum, clipped("median")))
    assert same_bits(same.direction(divided=True), plain.direction(divided=True))


@given(masked_rows, st.booleans(), st.booleans(), st.floats(0.1, 3.0))
@quick
def test_a_mean_that_leaves_out_nothing_is_the_plain_one_of_equal_weights(clients, per_coordinate, divided, factor):
    uploads = [upload_of(point, held) for point, held, _ in clients]
    settings = {"shares": [0.25] * len(clients), "per_coordinate": per_coordinate}
    rules = [trimmed_mean(0.0), *([krum(0, keep=len(clients))] if len(clients) > 2 else [])]
    plain = total_of(empty_sum, uploads, **settings)
    plain.scale(factor)
    for rule in rules:
        total = total_of(rule, uploads, **settings)
        total.scale(factor)
        found = flat(total.direction(divided=divided))
        assert found == pytest.approx(flat(plain.direction(divided=divided)), rel=1e-11, abs=1e-10)
        assert [value > 0 for value in flat(total.held)] == [value > 0 for value in flat(plain.held)]


@pytest.mark.parametrize("rule", [median(), trimmed_mean(0.2), krum(3, keep=4), clipped("median")])
def test_block_bounds_change_no_bit(rule):
    draws = torch.Generator().manual_seed(1)
    uploads = [Upload({"w": torch.randn(4, 5, generator=draws)}) for _ in range(40)]
    directions = [total_of(rule, uploads, block=size).direction(divided=True) for size in (1, 3, 16, 40)]
    assert all(same_bits(found, directions[0]) for found in directions)


def test_what_is_added_after_a_look_counts():
    total = total_of(median(), [upload_of([1.0] * 3)])
    assert flat(total.direction(divided=True)) == [1.0] * 3
    total.merge(total_of(median(), [upload_of([3.0] * 3)]))
    assert flat(total.direction(divided=True)) == [2.0] * 3
    total.scale(2.0)
    assert flat(total.direction(divided=False)) == [8.0] * 3


# What hostile clients cannot do


wild = st.sampled_from([-1e300, -1e30, 0.0, 1e30, 1e300]) | real


@given(st.integers(1, 5), st.data())
@quick
def test_a_fifth_of_the_clients_cannot_lead_a_coordinate_out_of_the_honest_range(fifth, data):
    honest = [data.draw(row) for _ in range(4 * fifth)]
    hostile = [data.draw(st.lists(wild, min_size=PLACES, max_size=PLACES)) for _ in range(fifth)]
    uploads = data.draw(st.permutations([upload_of(point) for point in [*honest, *hostile]]))
    for rule in (median(), trimmed_mean(0.2)):
        found = direction_of(rule, uploads, shares=[data.draw(st.floats(1, 1e9)) for _ in uploads])
        for place, value in enumerate(found):
            low, high = min(point[place] for point in honest), max(point[place] for point in honest)
            assert low - 1e-9 <= value <= high + 1e-9


@given(st.integers(1, 4), st.floats(1e6, 1e300), st.data())
@quick
def test_krum_takes_none_of_the_far_uploads(attackers, far, data):
    honest = [data.draw(row) for _ in range(attackers + 3)]
    hostile = [[data.draw(st.sampled_from([-far, far])) for _ in range(PLACES)] for _ in range(attackers)]
    found = direction_of(krum(attackers), [upload_of(point) for point in [*hostile, *honest]])
    assert found in honest


def test_a_huge_number_of_examples_moves_no_rule_that_counts_heads():
    uploads = [upload_of([value, 0.0, 0.0]) for value in (1.0, 2.0, 3.0, 4.0, 1e30)]
    for rule, expected in ((median(), 3.0), (trimmed_mean(0.2), 3.0), (krum(1), 2.0)):
        assert direction_of(rule, uploads, shares=[1.0, 1.0, 1.0, 1.0, 1e12])[0] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_upload_of_the_largest_numbers_is_shortened_like_any_other(dtype):
    largest = torch.full((3,), torch.finfo(dtype).max, dtype=dtype)
    uploads = [Upload({"w": value}) for value in (largest, *torch.eye(3, dtype=dtype))]
    found = total_of(clipped("median"), uploads).direction(divided=True)["w"]
    assert bool((found <= 1.0).all())
    assert bool((found >= 0.25).all())


def test_what_is_sent_in_part_is_as_long_as_the_whole_where_sums_are_divided_by_it():
    # A tenth of (3, 4): sent as (0.3, 0.4), which says (3, 4), of length 5. Alone, it is the mean of those who held it.
    upload = Upload({"w": numbers(0.3, 0.4)}, {"w": numbers(0.1, 0.1)})
    found = total_of(clipped(1.0), [upload], per_coordinate=True).direction(divided=True)["w"]
    assert found.tolist() == pytest.approx([0.6, 0.8], **NEAR)
    found = total_of(clipped(1.0), [upload]).direction(divided=True)["w"]
    assert found.tolist() == [0.3, 0.4]
