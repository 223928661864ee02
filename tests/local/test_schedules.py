"""Schedules at points computed by hand."""

import math

import pytest

from plures.core.errors import InvalidConfig
from plures.core.rates import check_count, check_decay, check_positive
from plures.local import SCHEDULES, as_schedule, constant, cosine, exponential, inverse_sqrt, linear, power

EXACT = {"rel": 1e-14, "abs": 1e-16}

EXAMPLES = {
    "constant": constant(0.1),
    "exponential": exponential(0.1, 0.998),
    "linear": linear(0.1, rounds=20),
    "cosine": cosine(0.1, rounds=20),
    "inverse_sqrt": inverse_sqrt(0.1),
    "power": power(1.0, b=2.0, p=0.75),
}


def test_every_registered_schedule_has_an_example_here():
    assert EXAMPLES.keys() == SCHEDULES.keys()


def test_constant_is_the_same_in_every_round():
    assert [constant(0.3)(round) for round in (1, 2, 1000)] == [0.3, 0.3, 0.3]


def test_exponential_starts_at_start_and_decays_each_round():
    # FedSpa's 0.1 * 0.998^t with t = 0 in round 1.
    rate = exponential(0.1, 0.998)
    assert rate(1) == 0.1
    assert rate(3) == pytest.approx(0.1 * 0.998 * 0.998, **EXACT)


def test_exponential_with_every_is_step_decay():
    # Halve every 500 rounds: rounds 1..500 at 0.5, 501..1000 at 0.25, 1001 at 0.125.
    rate = exponential(0.5, 0.5, every=500)
    assert [rate(round) for round in (1, 500, 501, 1000, 1001)] == [0.5, 0.5, 0.25, 0.25, 0.125]


def test_linear_rises_over_a_tenth_and_then_falls_to_zero():
    # 40 rounds, 4 of them rising: 1/4, 2/4, 3/4, 4/4 of the peak; then 36 equal steps down to 0 in round 40.
    rate = linear(2.0, rounds=40)
    assert [rate(round) for round in (1, 2, 3, 4)] == [0.5, 1.0, 1.5, 2.0]
    assert rate(5) == pytest.approx(2.0 * 35 / 36, **EXACT)
    assert rate(22) == pytest.approx(1.0, **EXACT)
    assert rate(40) == 0.0
    assert rate(41) == 0.0


def test_linear_without_warm_up_starts_at_start_and_ends_at_end():
    # From 1.0 to 0.2 over 4 steps of 0.2.
    rate = linear(1.0, rounds=5, warmup=0.0, end=0.2)
    assert [rate(round) for round in range(1, 7)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2], **EXACT)


def test_warm_up_length_is_not_cut_by_rounding_errors():
    # 0.29 * 100 is 28.999999999999996 in binary: 29 rounds rise all the same.
    rate = linear(1.0, rounds=100, warmup=0.29)
    assert rate(28) == pytest.approx(28 / 29, **EXACT)
    assert rate(29) == 1.0


def test_cosine_is_at_start_half_and_end_where_the_wave_is():
    # FedSpa's a/2 * (1 + cos(t pi / (T - 1))), T = 5: cosines 1, sqrt(1/2), 0, -sqrt(1/2), -1.
    rate = cosine(0.5, rounds=5)
    root = math.sqrt(0.5)
    expected = [0.5, 0.25 * (1 + root), 0.25, 0.25 * (1 - root), 0.0]
    assert [rate(round) for round in range(1, 6)] == pytest.approx(expected, rel=1e-12, abs=1e-16)


def test_cosine_with_warm_up_and_end():
    # 12 rounds, 2 rising, so the wave spans rounds 2..12: half way in round 7.
    rate = cosine(1.0, rounds=12, end=0.2, warmup=2 / 12)
    assert [rate(1), rate(2)] == [0.5, 1.0]
    assert rate(7) == pytest.approx(0.6, rel=1e-12)
    assert rate(12) == pytest.approx(0.2, rel=1e-12)
    assert rate(50) == pytest.approx(0.2, rel=1e-12)


@pytest.mark.parametrize("make", [linear, cosine])
def test_a_run_of_one_round_has_the_start_rate(make):
    assert make(0.3, rounds=1)(1) == 0.3


def test_inverse_sqrt_at_square_rounds():
    assert [inverse_sqrt(0.6)(round) for round in (1, 4, 9)] == pytest.approx([0.6, 0.3, 0.2], **EXACT)


def test_power_at_hand_computed_points():
    # 2 / (4 + t)^0.5: t = 0 -> 2/2; t = 5 -> 2/3; t = 12 -> 2/4.
    rate = power(2.0, b=4.0, p=0.5)
    assert [rate(1), rate(6), rate(13)] == pytest.approx([1.0, 2 / 3, 0.5], **EXACT)


def test_as_schedule_keeps_schedules_and_wraps_numbers():
    rate = cosine(0.1, rounds=3)
    assert as_schedule(rate) is rate
    assert as_schedule(0.2) == constant(0.2)
    assert as_schedule(1)(7) == 1.0


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_schedules_are_values(name):
    again = {
        "constant": constant(0.1),
        "exponential": exponential(0.1, 0.998),
        "linear": linear(0.1, rounds=20),
        "cosine": cosine(0.1, rounds=20),
        "inverse_sqrt": inverse_sqrt(0.1),
        "power": power(1.0, b=2.0, p=0.75),
    }[name]
    assert again == EXAMPLES[name]
    assert hash(again) == hash(EXAMPLES[name])


def test_the_repr_of_a_schedule_says_all_of_it():
    assert repr(exponential(0.1, 0.998)) == "Exponential(start=0.1, factor=0.998, every=1)"
    assert repr(constant(0.5)) == "Constant(value=0.5)"


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf, -math.inf, True, "0.1", None])
@pytest.mark.parametrize(
    "make",
    [
        constant,
        as_schedule,
        inverse_sqrt,
        lambda rate: exponential(rate, 0.5),
        lambda rate: exponential(0.1, rate),
        lambda rate: linear(rate, rounds=10),
        lambda rate: linear(0.1, rounds=10, end=rate),
        lambda rate: linear(0.1, rounds=10, warmup=rate),
        lambda rate: cosine(rate, rounds=10),
        lambda rate: cosine(0.1, rounds=10, end=rate),
        lambda rate: power(rate, b=1.0, p=1.0),
        lambda rate: power(0.1, b=rate, p=1.0),
        lambda rate: power(0.1, b=1.0, p=rate),
    ],
)
def test_a_rate_that_is_no_finite_number_or_negative_is_refused(make, rate):
    with pytest.raises(InvalidConfig, match="must be a finite number"):
        make(rate)


@pytest.mark.parametrize(
    "make",
    [
        lambda: exponential(0.1, 0.5, every=0),
        lambda: linear(0.1, rounds=0),
        lambda: linear(0.1, rounds=2.5),
        lambda: linear(0.1, rounds=10, warmup=1.5),
        lambda: cosine(0.1, rounds=-1),
        lambda: power(0.1, b=0.0, p=1.0),
        lambda: check_decay("momentum", 1.0),
        lambda: check_positive("eps", 0.0),
        lambda: check_count("steps", True),
    ],
)
def test_impossible_options_are_refused(make):
    with pytest.raises(InvalidConfig):
        make()


def test_the_message_names_the_option_and_the_value():
    with pytest.raises(
        InvalidConfig, match=r"start of a linear schedule must be a finite number, 0 or more, not -1\.0"
    ):
        linear(-1.0, rounds=10)
