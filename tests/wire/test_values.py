"""Values as they are, or rounded within a stated error."""

import math
import struct

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidMessage
from plures.core.seeds import generator
from plures.wire import CODES, error_bound
from plures.wire.bits import DTYPES
from plures.wire.values import int8_step, read_values, used_code, value_bytes, write_values
from tests.wire.helpers import FLOATS, raw

LOSSY = [code for code in CODES if code != "exact"]


def carried(code, tensor, seed=0):
    encoded = write_values("w", code, tensor, generator(seed, "test"))
    assert len(encoded) == value_bytes(code, tensor.dtype, tensor.numel())
    return read_values(code, memoryview(encoded), tensor.dtype)


@st.composite
def finite_values(draw, dtypes=FLOATS, limit=None):
    """Any finite bits of a dtype, of very different sizes, subnormal ones too."""
    dtype = draw(st.sampled_from(dtypes))
    width = {torch.float16: 16, torch.bfloat16: 32, torch.float32: 32, torch.float64: 64}[dtype]
    most = torch.finfo(dtype).max if limit is None else min(limit, torch.finfo(dtype).max)
    number = st.floats(-most, most, width=64 if limit else width)
    tensor = torch.tensor(draw(st.lists(number, min_size=1, max_size=20)), dtype=torch.float64).to(dtype)
    return tensor.clamp(-most, most) if limit else torch.nan_to_num(tensor)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != torch.bool])
def test_exact_values_are_their_own_bytes_the_lowest_first(dtype):
    tensor = torch.tensor([1, 0, 3], dtype=dtype)
    forms = {torch.float32: "f", torch.float64: "d", torch.float16: "e", torch.uint8: "B", torch.int8: "b"}
    forms |= {torch.int16: "h", torch.int32: "i", torch.int64: "q"}
    encoded = write_values("w", "exact", tensor, None)
    if dtype in forms:
        assert encoded == struct.pack(f"<3{forms[dtype]}", 1, 0, 3)
    else:  # bfloat16 is the upper half of float32
        assert encoded == b"".join(struct.pack("<f", number)[2:] for number in (1, 0, 3))
    assert raw(read_values("exact", memoryview(encoded), dtype)) == raw(tensor)


@given(finite_values(limit=60_000.0), st.sampled_from(LOSSY), st.integers(0, 999))
@settings(deadline=None, max_examples=300)
def test_every_code_keeps_its_bound(tensor, code, seed):
    error = (carried(code, tensor, seed).double() - tensor.double()).abs()
    assert bool((error <= error_bound(code, tensor)).all())


@given(finite_values(dtypes=[torch.float32, torch.float64]), st.integers(0, 999))
@settings(deadline=None, max_examples=300)
def test_int8_is_off_by_less_than_a_step(tensor, seed):
    if tensor.abs().max() > 127 * 3.4e38:
        return
    step = int8_step("it", tensor)
    assert step == struct.unpack("<f", struct.pack("<f", step))[0]
    error = (carried("int8", tensor, seed).double() - tensor.double()).abs()
    assert bool((error < step).all() if step else (error == 0).all())


@given(finite_values(dtypes=[torch.float32, torch.float64], limit=3e38))
@example(torch.tensor([5e-324], dtype=torch.float64))
@settings(deadline=None)
def test_a_step_is_a_127th_of_the_largest_and_hardly_more(tensor):
    largest = float(tensor.abs().max())
    step = int8_step("it", tensor)
    assert 127 * step >= largest
    assert step <= largest / 127 * (1 + 2**-16) or step <= largest / 127 + 2**-149


@given(st.sampled_from([torch.float32, torch.float64]), st.integers(-140, 120))
@settings(deadline=None)
def test_whole_steps_arrive_exactly(dtype, exponent):
    tensor = torch.arange(-127, 128, dtype=dtype) * 2.0**exponent
    assert torch.equal(carried("int8", tensor), tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_int8_is_unbiased(dtype):
    # A value's rounding has a standard deviation of at most half a step, so that the mean of n draws has 0.5 / sqrt(n);
    # six of these leave less than one chance in 10**7 for 51 values.
    values = torch.linspace(-1, 1, 51, dtype=dtype) ** 3
    times = 20_000
    mean = carried("int8", values.repeat(times)).double().reshape(times, -1).mean(0)
    assert bool(((mean - values.double()).abs() < 6 * 0.5 / math.sqrt(times) * int8_step("it", values)).all())


def test_int8_draws_from_its_generator_alone():
    values = torch.randn(1000, generator=generator(0, "values"))
    assert raw(carried("int8", values, seed=1)) == raw(carried("int8", values, seed=1))
    assert raw(carried("int8", values, seed=1)) != raw(carried("int8", values, seed=2))
    with pytest.raises(InvalidConfig, match="generator"):
        write_values("w", "int8", values, None)


@pytest.mark.parametrize("code", LOSSY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_stay_zeros(code, dtype):
    assert not carried(code, torch.zeros(9, dtype=dtype)).any()
    mixed = torch.tensor([0.0, 5.0, 0.0, -3.0], dtype=dtype)
    assert (carried(code, mixed) == 0).tolist()[::2] == [True, True]


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_largest_numbers_stay_finite_in_int8(dtype):
    most = min(torch.finfo(dtype).max, 1e40)
    tensor = torch.tensor([most, -most, most / 3], dtype=dtype)
    assert bool(carried("int8", tensor).isfinite().all())
    assert bool(((carried("int8", tensor).double() - tensor.double()).abs() <= error_bound("int8", tensor)).all())


def test_float16_refuses_what_it_cannot_hold_and_names_another():
    with pytest.raises(InvalidMessage, match=r"'w' has values that float16 cannot hold.*bfloat16"):
        carried("float16", torch.tensor([1.0, 70_000.0]))
    assert carried("bfloat16", torch.tensor([1.0, 70_000.0])).tolist() == [1.0, 70_144.0]


def test_bfloat16_refuses_what_it_cannot_hold_and_names_another():
    with pytest.raises(InvalidMessage, match=r"bfloat16 cannot hold.*exact"):
        carried("bfloat16", torch.tensor([1e39], dtype=torch.float64))


@pytest.mark.parametrize("code", ["float16", "bfloat16"])
def test_infinities_and_nan_pass_through_short_floats(code):
    arrived = carried(code, torch.tensor([math.inf, -math.inf, math.nan, -0.0]))
    assert arrived[:2].tolist() == [math.inf, -math.inf]
    assert bool(arrived[2].isnan())
    assert math.copysign(1, arrived[3]) == -1


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_int8_refuses_what_is_not_finite(number):
    tensor = torch.tensor([1.0, number])
    with pytest.raises(InvalidMessage, match="'w' has values that are no finite numbers"):
        carried("int8", tensor)
    with pytest.raises(InvalidMessage, match="no finite numbers"):
        error_bound("int8", tensor)


def test_int8_refuses_a_step_that_float32_cannot_hold():
    with pytest.raises(InvalidMessage, match="'w' has values too large"):
        carried("int8", torch.tensor([1e300], dtype=torch.float64))


def test_bounds_are_as_stated():
    values = torch.tensor([127.0, -1.0, 0.0])
    assert error_bound("exact", values).tolist() == [0.0, 0.0, 0.0]
    assert error_bound("float16", values).tolist() == [127 * 2.0**-11, 2.0**-11, 2.0**-24]
    assert error_bound("bfloat16", values).tolist() == [127 * 2.0**-8, 2.0**-8, 2.0**-133]
    assert error_bound("int8", values).tolist() == [1.0, 1.0, 1.0]
    assert error_bound("int8", torch.tensor([127, 3])).tolist() == [0.0, 0.0]


def test_a_code_is_used_only_where_it_may_round_and_saves_bytes():
    assert used_code("int8", torch.float32, 100) == "int8"
    assert used_code("int8", torch.float32, 1) == "exact"  # a step and a level are 5 bytes, the value 4
    assert used_code("int8", torch.float16, 4) == "exact"
    assert used_code("int8", torch.float16, 5) == "int8"
    assert used_code("float16", torch.float16, 100) == "exact"
    assert used_code("float16", torch.bfloat16, 100) == "exact"
    assert used_code("float16", torch.float64, 1) == "float16"
    assert used_code("int8", torch.int64, 100) == "exact"
    assert used_code("bfloat16", torch.bool, 100) == "exact"


@pytest.mark.parametrize("step", [math.nan, math.inf, -1.0])
def test_a_step_that_is_none_is_refused(step):
    with pytest.raises(InvalidMessage, match="no levels"):
        read_values("int8", memoryview(struct.pack("<f", step) + b"\1"), torch.float32)


def test_a_level_that_is_none_is_refused():
    with pytest.raises(InvalidMessage, match="no levels"):
        read_values("int8", memoryview(struct.pack("<f", 1.0) + b"\x80"), torch.float32)
