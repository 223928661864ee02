"""A client's state as bytes, and back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import nn

from plures.stores.blobs import as_blob, checksum, from_blob, owned, written

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
)
SHAPES = ((), (1,), (0,), (3,), (2, 0, 3), (1, 4, 1), (2, 3, 2, 2))

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
kinds = st.tuples(st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.integers(0, 2**31))


def drawn(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Any bits at all; of a bool, 0 and 1 alone."""
    draws = torch.Generator().manual_seed(seed)
    size = torch.empty(shape, dtype=dtype).numel() * torch.empty((), dtype=dtype).element_size()
    limit = 2 if dtype == torch.bool else 256
    return torch.randint(limit, (size,), generator=draws, dtype=torch.uint8).view(dtype).reshape(shape)


def bits(value: torch.Tensor) -> list[int]:
    return value.contiguous().reshape(-1).view(torch.uint8).tolist()


@given(st.dictionaries(names, kinds, max_size=6))
@settings(deadline=None, max_examples=60)
def test_names_their_order_types_shapes_and_bits_come_back(described):
    state = {name: drawn(*kind) for name, kind in described.items()}
    back = from_blob(as_blob(state))
    assert list(back) == list(state)
    for name, value in state.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
        assert bits(back[name]) == bits(value)


def test_the_library_would_write_the_same_values():
    state = {
        "a": torch.tensor([True]),
        "b": torch.arange(3.0, dtype=torch.float64),
        "c": torch.tensor(1, dtype=torch.int8),
    }
    ours, theirs = load(written(state)), load(save(state))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in theirs)


def test_more_than_ten_names_keep_their_order():
    state = {f"layer{number}": torch.tensor(number) for number in reversed(range(25))}
    assert list(from_blob(as_blob(state))) == list(state)


def test_what_is_read_has_memory_of_its_own():
    whole = torch.arange(64.0)
    back = from_blob(as_blob({"a": whole[1:4], "b": torch.arange(3).bool()}))
    for value in back.values():
        assert value.untyped_storage().nbytes() == value.numel() * value.element_size()
        assert value.data_ptr() % 64 == 0


views = {
    "a piece of more": torch.arange(64.0)[1:4],
    "turned": torch.arange(6.0).reshape(2, 3).t(),
    "repeated": torch.ones(1).expand(5),
    "by channels": torch.ones(4, 3, 1, 1).to(memory_format=torch.channels_last),
    "trained": nn.Parameter(torch.ones(3)),
}


@pytest.mark.parametrize("value", views.values(), ids=views.keys())
def test_what_is_held_looks_as_if_it_had_been_read(value):
    held, read = owned({"v": value})["v"], from_blob(as_blob({"v": value}))["v"]
    assert (held.stride(), held.requires_grad, type(held)) == (read.stride(), False, torch.Tensor)
    assert held.untyped_storage().nbytes() == read.untyped_storage().nbytes()
    assert held.equal(value)
    assert read.equal(value)


def test_what_is_its_own_is_not_copied():
    value = torch.ones(3)
    assert owned({"v": value})["v"].data_ptr() == value.data_ptr()


def test_two_names_of_one_tensor_become_two_tensors():
    tied = torch.ones(3)
    held = owned({"a": tied, "b": tied})
    assert held["a"].data_ptr() != held["b"].data_ptr()
    assert list(from_blob(as_blob({"a": tied, "b": tied}))) == ["a", "b"]


def test_a_checksum_knows_whose_the_bytes_are():
    sums = {checksum(client << 32 | round, b"state") for client in range(10) for round in range(10, 20)}
    assert len(sums) == 100
