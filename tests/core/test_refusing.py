"""Uploads that no sum may see: whatever a client sends that does not fit, the round is the one without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.client import Result
from plures.core.context import Conduct
from plures.core.errors import Refused
from plures.core.losses import Tolerance
from plures.core.visit import Upload
from plures.local import steps
from plures.methods import fedavg, fedspa
from plures.wire import Codec
from tests.helpers.faults import BEARING, Noting, Replaying, Second, scripted, second_round, spoiled
from tests.helpers.methods import NormedNetwork, assert_same_bits, network

HIT, NAME, VARIANCE = 1, "body.weight", "norm.running_var"
MASK = f"mask.{NAME}"
ONE = torch.ones(1)

Change = Callable[[torch.Tensor], torch.Tensor]


def ready(second: Second) -> tuple[Second, Mapping[int, Result]]:
    engine = Noting()
    second.played(Conduct(), engine)
    return second, engine.results


@cache
def normed() -> tuple[Second, Mapping[int, Result]]:
    """Dense uploads, and shared running statistics beside them."""
    return ready(second_round(fedavg(budget=steps(2), buffers="shared"), module=network(NormedNetwork)))


@cache
def masked() -> tuple[Second, Mapping[int, Result]]:
    """Sparse uploads that say what they held, and masks that the server is told of."""
    return ready(second_round(fedspa(budget=steps(2), per_coordinate=True)))


def lost_without_a_trace(made: tuple[Second, Mapping[int, Result]], change, tolerance=BEARING):
    """Who is lost, in a round that is to the last bit the one in which the client was not heard of again."""
    second, results = made
    store, other = second.store(), second.store()
    bad = Replaying({**results, HIT: change(results[HIT])})
    done = second.played(Conduct(tolerance=tolerance), bad, store)
    gone = second.played(scripted({(2, HIT): "gone"}), Replaying(results), other)
    assert_same_bits(done.server.shared, gone.server.shared)
    for client in second.states:
        assert_same_bits(store.get(client), other.get(client))
    assert done.report.bytes_down == gone.report.bytes_down
    (lost,) = done.report.lost
    assert lost.client == HIT
    return lost


def uploading(change: Change, name: str = NAME):
    return lambda result: spoiled(result, values={**result.upload.values, name: change(result.upload.values[name])})


def holding(change: Change, name: str = NAME):
    return lambda result: spoiled(result, held={**result.upload.held, name: change(result.upload.held[name])})


def telling(field: str, name: str, change: Change):
    """Another value under a name of `buffers`, `known` or `state`; what was not told before is made of the state."""

    def changed(result):
        values = getattr(result, field)
        like = values[name] if name in values else result.state[name]
        return result._replace(**{field: {**values, name: change(like)}})

    return changed


def with_number(number: float) -> Change:
    return lambda value: value.flatten().index_fill(0, torch.tensor([1]), number).view(value.shape)


NOT_ALIKE: dict[str, Change] = {
    "half precision": lambda value: value.half(),
    "single precision": lambda value: value.float(),
    "bfloat16": lambda value: value.bfloat16(),
    "complex": lambda value: value.to(torch.complex128),
    "whole numbers": lambda value: value.long(),
    "truth values": lambda value: value != 0,
    "sparse": lambda value: value.to_sparse(),
    "without memory": lambda value: value.to("meta"),
    "a list": lambda value: value.tolist(),
    "nobody": lambda value: None,
    "with a graph": lambda value: value.clone().requires_grad_(),
    "flat": lambda value: value.flatten(),
    "turned": lambda value: value.T,
    "one dimension more": lambda value: value[None],
    "one row, to be broadcast": lambda value: value[:1],
    "one number, to be broadcast": lambda value: value[0, 0],
    "no rows": lambda value: value[:0],
}
NO_NUMBERS = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("change", NOT_ALIKE.values(), ids=NOT_ALIKE)
def test_a_tensor_that_is_not_like_the_shared_one_is_refused(change):
    lost = lost_without_a_trace(normed(), uploading(change))
    assert lost.kind == "misfit"
    assert f"'{NAME}'" in lost.reason


def test_a_vector_of_one_is_not_a_number():
    second, results = ready(second_round(fedavg(budget=steps(2)), module=network(WithNumber)))
    lost = lost_without_a_trace((second, results), uploading(lambda value: value[None], "scale"))
    assert "of shape (1,), but the shared part has ()" in lost.reason


class WithNumber(NormedNetwork):
    """One parameter is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.Identity()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        return self.scale * super().forward(inputs)


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_what_is_no_number_is_refused_in_an_upload_in_statistics_and_in_a_loss(number):
    for change in (
        uploading(with_number(number)),
        telling("buffers", VARIANCE, with_number(number)),
        lambda result: result._replace(losses={"shared": torch.tensor(number)}),
    ):
        assert lost_without_a_trace(normed(), change).kind == "diverged"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (
            "a name that nobody shares",
            lambda result: spoiled(result, values={**result.upload.values, "more": ONE}),
        ),
        ("statistics as an upload", lambda result: spoiled(result, values={**result.upload.values, **result.buffers})),
        ("an upload as statistics", lambda result: result._replace(buffers={NAME: result.upload.values[NAME]})),
        ("statistics nobody has", lambda result: result._replace(buffers={"more": ONE})),
        ("statistics of another shape", telling("buffers", VARIANCE, lambda value: value[:1])),
        ("statistics of another type", telling("buffers", VARIANCE, lambda value: value.float())),
        ("a state that nobody is told of", lambda result: result._replace(known={NAME: torch.ones(3, 4)})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_told_under_the_wrong_name_or_in_the_wrong_place_is_refused(name, change):
    assert lost_without_a_trace(normed(), change).kind == "misfit"


HELD_WRONGLY: dict[str, Change] = {
    "counts": lambda held: held.long() * 2,
    "complex": lambda held: held.to(torch.complex64),
    "more than all": lambda held: held.double() * 1.5,
    "less than nothing": lambda held: -held.double(),
    "no numbers": lambda held: held.double() * float("nan"),
    "another shape": lambda held: held[:1],
    "sparse": lambda held: held.double().to_sparse(),
    "a graph": lambda held: held.double().requires_grad_(),
    "nothing, though there are values": torch.zeros_like,
    "so little that values are infinite": lambda held: held.double() * 1e-320,
    "nobody": lambda held: None,
}


@pytest.mark.parametrize("change", HELD_WRONGLY.values(), ids=HELD_WRONGLY)
def test_what_was_held_is_a_share_of_each_value_that_is_sent(change):
    lost = lost_without_a_trace(masked(), holding(change))
    assert lost.kind == "misfit"
    assert f"'{NAME}'" in lost.reason


@pytest.mark.parametrize("change", [lambda held: {}, lambda held: {**held, "more": ONE}], ids=["none", "more"])
def test_what_was_held_has_the_names_of_the_values(change):
    assert lost_without_a_trace(masked(), lambda r: spoiled(r, held=change(r.upload.held))).kind == "misfit"


@pytest.mark.parametrize("field", ["known", "state"])
@pytest.mark.parametrize(
    "change",
    [lambda mask: mask.double(), lambda mask: mask[:1], lambda mask: mask.to_sparse(), lambda mask: mask.long()],
    ids=["numbers", "shape", "sparse", "counts"],
)
def test_masks_that_the_server_is_told_of_are_masks_of_the_same_shape(field, change):
    lost = lost_without_a_trace(masked(), telling(field, MASK, change))
    assert lost.kind == "misfit"
    assert f"'{MASK}'" in lost.reason


# Norms


def test_a_norm_beyond_the_bound_is_too_large_and_one_at_the_bound_is_not():
    """Four numbers of 1 have the norm 2."""
    second, results = normed()
    zeros = {name: torch.zeros_like(value) for name, value in results[HIT].upload.values.items()}
    ones = {**zeros, NAME: torch.zeros_like(zeros[NAME]).index_fill(0, torch.tensor([0]), 1.0)}
    quiet = {client: spoiled(one, values=zeros) for client, one in results.items()}
    quiet[HIT] = spoiled(results[HIT], values=ones)
    counts = [Conduct(tolerance=Tolerance(least_cohort=1, largest_norm=norm)) for norm in (2.0, 1.999)]
    fits, beyond = (second.played(conduct, Replaying(quiet)).report.lost for conduct in counts)
    assert fits == ()
    assert [(one.client, one.kind) for one in beyond] == [(HIT, "too_large")]
    assert "has a norm of 2, more than 1.999" in beyond[0].reason


@pytest.mark.parametrize("factor", [1e9, 1e155, 1e300])
def test_numbers_whose_squares_are_infinite_are_too_large_and_nothing_else(factor):
    assert lost_without_a_trace(normed(), uploading(lambda value: value * factor)).kind in ("too_large", "diverged")


def test_statistics_are_bounded_as_uploads_are():
    lost = lost_without_a_trace(normed(), telling("buffers", VARIANCE, lambda value: value + 1e7))
    assert lost.kind == "too_large"
    assert "running statistics" in lost.reason


def test_a_value_counts_as_it_would_where_sums_are_divided_by_what_was_held():
    """Of a millionth part of each weight: divided by it, an upload is a million times as large."""
    small = holding(lambda held: held.double() * 1e-8)
    assert lost_without_a_trace(masked(), small).kind == "too_large"


def test_numbers_that_a_code_cannot_hold_are_too_large():
    second, results = ready(second_round(fedavg(budget=steps(2)), wire=Codec(upload="float16")))
    bearing = Tolerance(least_cohort=1)
    lost = lost_without_a_trace((second, results), uploading(lambda value: value + 1e5), bearing)
    assert lost.kind == "too_large"
    assert "float16 cannot hold" in lost.reason


def test_where_nothing_is_borne_what_is_refused_ends_the_run():
    second, results = normed()
    bad = Replaying({**results, HIT: uploading(lambda value: value.half())(results[HIT])})
    with pytest.raises(Refused, match=r"as torch.float16.*client client 1, round 2, phase upload.*Correct the method"):
        second.played(Conduct(), bad)


# Whatever else


names = st.sampled_from([NAME, "head.bias", "norm.weight", VARIANCE, "more"])


@st.composite
def tensors(draw) -> torch.Tensor:
    """Of any shape, type and size of numbers, some of them none."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.float16, torch.int64, torch.bool]))
    number = draw(st.sampled_from([0.0, 1.0, -1e5, 1e308, *NO_NUMBERS]))
    value = torch.full(shape, number, dtype=torch.float64)
    return (value.nan_to_num(0.0, 0.0, 0.0) if not dtype.is_floating_point else value).to(dtype)


@settings(max_examples=40, deadline=None)
@given(
    values=st.dictionaries(
        st.sampled_from([NAME, "head.bias", "norm.weight", VARIANCE, "more"]), tensors(), max_size=3
    ),
    held=st.none() | st.dictionaries(st.sampled_from([NAME, "head.bias", "more"]), tensors(), max_size=3),
    buffers=st.dictionaries(st.sampled_from([VARIANCE, NAME, "more"]), tensors(), max_size=2),
)
def test_whatever_is_sent_it_is_refused_or_harmless(values, held, buffers):
    second, results = normed()
    sent = results[HIT]._replace(upload=Upload(values, held), buffers=buffers)
    done = second.played(Conduct(tolerance=BEARING), Replaying({**results, HIT: sent}))
    assert {one.client for one in done.report.lost} <= {HIT}
    for name, value in done.server.shared.items():
        assert value.shape == second.server.shared[name].shape
        assert value.dtype == second.server.shared[name].dtype
        assert value.isfinite().all()
        assert not value.requires_grad
