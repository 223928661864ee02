"""Messages as bytes and back, to the last bit, and their size without either."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidMessage
from plures.core.seeds import generator
from plures.core.wire import Message, Parcel
from plures.wire import CODES, decode, encode, error_bound, size
from plures.wire.bits import DTYPES
from plures.wire.message import FRAME_BYTES, decoded_bytes
from tests.wire.helpers import FLOATS, finite_messages, messages, raw, raw_message

ENOUGH = 10**6


def in_value_order(message):
    """As it arrives: what was held comes in the order of the values, and what was not held is +0."""
    values, held = message.parcel
    if held is None:
        return message
    cleared = {
        name: torch.where(held[name], value, torch.zeros((), dtype=value.dtype))
        if torch.bool == held[name].dtype != value.dtype
        else value
        for name, value in values.items()
    }
    return Message(Parcel(cleared, {name: held[name] for name in values}), message.exact)


def of(**values):
    return Message(Parcel(values))


@given(messages())
@settings(deadline=None, max_examples=150)
def test_a_message_comes_back_to_the_last_bit(message):
    arrived = decode(encode(message), most_bytes=decoded_bytes(message))
    assert raw_message(arrived) == raw_message(in_value_order(message))


@given(messages())
@settings(deadline=None)
def test_the_size_is_known_without_encoding(message):
    assert size(message) == len(encode(message))


@given(finite_messages, st.sampled_from(CODES), st.integers(0, 99))
@settings(deadline=None)
def test_lossy_codes_round_values_alone_within_their_bounds(message, code, seed):
    data = encode(message, code=code, generator=generator(seed, "test"))
    assert len(data) == size(message, code=code) <= size(message)
    arrived, expected = decode(data, most_bytes=decoded_bytes(message)), in_value_order(message)
    assert raw_message(arrived)[1:] == raw_message(expected)[1:]
    for name, value in expected.parcel.values.items():
        error = (arrived.parcel.values[name].double() - value.double()).abs()
        assert bool((error <= error_bound(code, value)).all())
        assert not arrived.parcel.values[name][value == 0].any()


@given(messages())
@settings(deadline=None)
def test_what_arrives_is_the_same_when_sent_on(message):
    data = encode(message)
    assert encode(decode(data, most_bytes=ENOUGH)) == data


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_scalars_and_empty_tensors_keep_dtype_and_shape(dtype, shape):
    message = Message(Parcel({"w": torch.ones(shape, dtype=dtype)}), {"w": torch.zeros(shape, dtype=dtype)})
    assert raw_message(decode(encode(message), most_bytes=ENOUGH)) == raw_message(message)


def test_nothing_held_and_nothing_said_of_it_are_two_things():
    for held in (None, {}):
        assert decode(encode(Message(Parcel({}, held))), most_bytes=0).parcel.held == held


@pytest.mark.parametrize("dtype", FLOATS)
def test_minus_zero_and_nan_with_its_payload_survive_among_zeros(dtype):
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    values = torch.zeros(500, dtype=dtype)
    values[7], values[8] = -0.0, -math.inf
    values.view(integers)[9] = torch.iinfo(integers).max - 5  # a NaN of its own
    arrived = decode(encode(of(w=values)), most_bytes=ENOUGH).parcel.values["w"]
    assert raw(arrived) == raw(values)
    assert size(of(w=values)) < 80


def test_a_dense_message_takes_its_values_and_a_few_bytes_more():
    # Body: bytes (2), flag, number. Record: section, name (1 + 6), dtype, shape (1 + 1 + 1), two codes.
    message = of(weight=torch.ones(5, 20))
    assert size(message) == FRAME_BYTES + 4 + 1 + 7 + 1 + 3 + 2 + 400
    assert size(message, code="float16") == size(message) - 200
    assert size(message, code="int8") == size(message) - 300 + 4


def test_zeros_are_left_out_if_that_is_smaller():
    def payload(values, **kwargs):
        return size(of(w=values), **kwargs) - size(of(w=values[:0]), **kwargs) - 2  # a longer shape and number of bytes

    sparse = torch.zeros(1000)
    sparse[::10] = 1.0  # one index is one byte: 100 of them, and how many bytes they are
    assert payload(sparse) == 100 * 4 + 100 + 1
    assert payload(sparse, code="int8") == 4 + 100 + 101
    assert payload(torch.ones(1000)) == 4000
    nearly_dense = torch.ones(1000)
    nearly_dense[500] = 0.0  # the value saved is smaller than saying which it is
    assert payload(nearly_dense) == 4000


def test_a_mask_of_what_was_held_is_sent_once_with_the_values():
    held = torch.rand(4000, generator=generator(0, "mask")) < 0.5
    values = torch.where(held, torch.ones(()), torch.zeros(()))
    masked = Message(Parcel({"w": values}, {"w": held}))
    assert size(masked) <= 4 * int(held.sum()) + 500 + 30
    assert raw_message(decode(encode(masked), most_bytes=ENOUGH)) == raw_message(masked)
    counted = Message(Parcel({"w": values}, {"w": held.float()}))
    assert size(counted) > 2 * 4 * int(held.sum())
    assert raw_message(decode(encode(counted), most_bytes=ENOUGH)) == raw_message(counted)


def test_zeros_that_were_held_arrive_as_held():
    message = Message(Parcel({"w": torch.zeros(3)}, {"w": torch.tensor([True, False, True])}))
    assert decode(encode(message), most_bytes=ENOUGH).parcel.held["w"].tolist() == [True, False, True]


def test_a_mask_takes_a_bit_an_entry_and_less_if_it_has_blocks():
    def payload(mask):
        return size(Message(Parcel({}), {"m": mask})) - size(Message(Parcel({}), {"m": mask[:0]})) - 2

    half = torch.rand(8000, generator=generator(0, "mask")) < 0.5
    assert payload(half) == 1000
    assert payload(torch.arange(8000) < 4000) == 1 + 1 + 2
    assert payload(torch.ones(8000, dtype=torch.bool)) == 0
    assert payload(torch.zeros(8000, dtype=torch.bool)) == 1


@pytest.mark.parametrize("number", [1.0, math.nan, math.inf])
def test_values_that_are_not_held_must_be_zero(number):
    message = Message(Parcel({"body.w": torch.tensor([1.0, number])}, {"body.w": torch.tensor([True, False])}))
    for use in (encode, size):
        with pytest.raises(InvalidMessage, match=r"'body\.w' has values other than 0 where nothing of it is held"):
            use(message)


def test_minus_zero_is_zero_where_nothing_is_held():
    held = torch.tensor([True, False])
    message = Message(Parcel({"w": torch.tensor([-1.0, -1.0]) * held}, {"w": held}))
    arrived = decode(encode(message), most_bytes=ENOUGH)
    assert raw(arrived.parcel.values["w"]) == raw(torch.tensor([-1.0, 0.0]))


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ({}, "'w', but not what was held"),
        ({"w": torch.ones(2), "other": torch.ones(2)}, "'other', but no such values"),
        ({"w": torch.ones(3)}, r"'w' has the shape \(3,\), but its values have \(2,\)"),
        ({"w": torch.ones(2, 1, dtype=torch.bool)}, "shape"),
    ],
)
def test_what_was_held_has_the_names_and_shapes_of_the_values(held, told):
    for use in (encode, size):
        with pytest.raises(InvalidMessage, match=told):
            use(Message(Parcel({"w": torch.ones(2)}, held)))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(2, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
        torch.zeros((1,) * 9),
        torch.zeros(2).to(torch.float8_e5m2),
    ],
)
def test_tensors_of_other_kinds_are_refused_by_name(tensor):
    with pytest.raises(InvalidMessage, match="'odd' is a tensor of"):
        encode(of(odd=tensor))


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(InvalidMessage, match="UTF-8"):
        encode(of(**{"\ud800": torch.ones(1)}))


def test_an_unknown_code_is_refused_with_a_hint():
    for use in (encode, size):
        with pytest.raises(InvalidConfig, match="Did you mean 'int8'"):
            use(of(), code="int9")


def test_order_of_memory_and_gradients_do_not_matter():
    values = torch.randn(4, 6, 5, 5, generator=generator(0, "v"), requires_grad=True)
    views = [
        values,
        values.to(memory_format=torch.channels_last),
        values[::2, 1:],
        values.mT,
        values[:1].expand(3, 6, 5, 5),
    ]
    for view in views:
        arrived = decode(encode(of(w=view)), most_bytes=ENOUGH).parcel.values["w"]
        assert torch.equal(arrived, view)
        assert not arrived.requires_grad


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("held", [None, torch.tensor([True, False] * 40), torch.ones(80, dtype=torch.bool)])
def test_what_arrives_has_memory_of_its_own(code, held):
    values = torch.ones(80) if held is None else held.float()
    message = Message(
        Parcel({"w": values}, None if held is None else {"w": held}), {"m": values > 0, "n": values.long()}
    )
    data = bytearray(encode(message, code=code, generator=generator(0, "test")))
    arrived = decode(data, most_bytes=ENOUGH)
    before = raw_message(arrived)
    data[:] = bytes(len(data))
    assert raw_message(arrived) == before
    for tensor in (*arrived.parcel.values.values(), *(arrived.parcel.held or {}).values(), *arrived.exact.values()):
        tensor.zero_()


def test_bytes_may_come_in_any_buffer():
    message = of(w=torch.arange(3.0))
    data = encode(message)
    for buffer in (data, bytearray(data), memoryview(data)):
        assert raw_message(decode(buffer, most_bytes=ENOUGH)) == raw_message(message)
