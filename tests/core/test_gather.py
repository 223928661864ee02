"""What reaches the server: uploads and downloads as a lossy wire leaves them, and capacities that are kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.errors import ClientFailed
from plures.core.method import Capacity
from plures.core.types import PERSONAL, Batch
from plures.core.visit import Upload
from plures.core.wire import Message
from plures.local import steps
from plures.local.uploads import delta
from plures.methods import fedavg
from plures.wire import Codec, error_bound
from tests.core.helpers import Given, Pair, method, pair_clients, phase
from tests.helpers.methods import (
    SIZES,
    Population,
    assert_near,
    assert_same_bits,
    federation,
    network,
    play,
    same_bits,
)

FULL = {"budget": steps(2), "lr": 0.5}
"""Two steps on all examples: nothing is drawn but by the wire."""


@dataclass(frozen=True)
class Watched:
    """A wire that remembers what was sent and what arrived, in order."""

    codec: Codec
    ups: list[tuple[Message, Message]] = field(default_factory=list)
    downs: list[tuple[Message, Message]] = field(default_factory=list)

    def carry(self, message, *, upward, draws):
        arrived, sent = self.codec.carry(message, upward=upward, draws=draws)
        (self.ups if upward else self.downs).append((message, arrived))
        return arrived, sent


def watched(rounds=1, population=None, options=None, **codes):
    wire = Watched(Codec(**codes))
    return play(fedavg(**FULL | (options or {})), rounds, population=population, wire=wire), wire


def values_of(messages):
    return [message.parcel.values for message in messages]


# Codes of one direction


def test_the_server_moves_by_the_uploads_that_have_arrived():
    """By the examples of each client: w - sum_i n_i / n * (what arrived of its change), and not what it had sent."""
    run, wire = watched(upload="int8")
    sent, arrived = (values_of(side) for side in zip(*wire.ups, strict=True))
    start, total = run.servers[0].shared, sum(SIZES)
    expected = {
        name: value - sum(size / total * upload[name] for size, upload in zip(SIZES, arrived, strict=True))
        for name, value in start.items()
    }
    assert_near(run.shared, expected, 1e-14)
    exact = play(fedavg(**FULL), 1)
    for name, value in exact.shared.items():
        bound = max(float(error_bound("int8", upload[name]).max()) for upload in sent)
        assert 0.0 < float((run.shared[name] - value).abs().max()) < bound
    for (_, result), upload, whole in zip(run.results, arrived, sent, strict=True):
        assert_same_bits(result.upload.values, upload)
        assert not same_bits(upload, whole)


def test_a_code_of_uploads_leaves_downloads_as_they_are():
    run, wire = watched(upload="int8")
    for visit, _ in run.results:
        assert_same_bits(visit.received, run.servers[0].shared)
    for before, after in wire.downs:
        assert_same_bits(after.parcel.values, before.parcel.values)


def test_a_client_trains_what_it_has_downloaded_and_the_server_keeps_what_it_had():
    """One step of one client: it uploads lr times the gradient at the rounded values, and w itself is not rounded."""
    population = federation([6])
    run = play(fedavg(budget=steps(1), lr=0.5), 1, population=population, wire=Codec(download="float16"))
    (batch,) = population.batches
    start = run.servers[0].shared
    rounded = {name: value.to(torch.float16).double() for name, value in start.items()}
    ((visit, _),) = run.results
    assert_same_bits(visit.received, rounded)
    there, here = (stepped(start, at, batch) for at in (rounded, start))
    assert_near(run.shared, there, 1e-14)
    assert all(not torch.allclose(there[name], here[name], rtol=1e-9, atol=0.0) for name in start)


def stepped(start, point, batch):
    """`start` after a step of rate 0.5 by the gradient at a point."""
    leaves = {name: value.clone().requires_grad_() for name, value in point.items()}
    loss = F.cross_entropy(functional_call(network(), leaves, (batch.inputs,)), batch.targets)
    grads = torch.autograd.grad(loss, list(leaves.values()))
    return {name: value - 0.5 * grad for (name, value), grad in zip(start.items(), grads, strict=True)}


def test_a_code_of_downloads_leaves_uploads_as_they_are():
    run, wire = watched(download="float16")
    for (before, after), (_, result) in zip(wire.ups, run.results, strict=True):
        assert_same_bits(after.parcel.values, before.parcel.values)
        assert_same_bits(result.upload.values, before.parcel.values)


# Draws of int8


def rounded_twice(way, rounds=2):
    """What arrived of the same values: two clients with the same examples, two rounds in which the server stands still.

    In the order of rounds, and of clients within a round.
    """
    batch = federation([6]).batches[0]
    run, wire = watched(rounds, Population([batch, batch]), {"server": 0.0}, **{way: "int8"})
    assert_same_bits(run.shared, run.servers[0].shared)
    sent, arrived = (values_of(side) for side in zip(*(wire.ups if way == "upload" else wire.downs), strict=True))
    assert len(sent) == 2 * rounds
    for values in sent:
        assert_same_bits(values, sent[0])
    return arrived


@pytest.mark.parametrize("way", ["upload", "download"])
def test_every_client_and_every_round_has_roundings_of_its_own(way):
    arrived = rounded_twice(way)
    for number, values in enumerate(arrived):
        for other in arrived[:number]:
            assert not same_bits(values, other)


@pytest.mark.parametrize("way", ["upload", "download"])
def test_a_run_again_has_the_same_roundings(way):
    for once, again in zip(rounded_twice(way), rounded_twice(way), strict=True):
        assert_same_bits(once, again)


# Capacities


class Four(nn.Module):
    """The product of the inputs with four numbers, all of them shared."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.ones(4, dtype=torch.float64))

    def forward(self, inputs):
        return inputs @ self.numbers


def all_four(params, inputs):
    return dict(params)


def first_two(params, inputs):
    return {name: value * torch.tensor([1.0, 1.0, 0.0, 0.0]) for name, value in params.items()}


def send_two(visit, trained):
    """Changes of the first two numbers alone."""
    values = first_two(delta(visit, trained).values, None)
    return Upload(values, {name: torch.tensor([True, True, False, False]) for name in values})


def limited(*, trains=2, predicts=2, uploads=2, **changes):
    """One visit of a client that can afford two of four numbers, in a method that uses and uploads so many."""
    own = method(
        phase(view=first_two if trains == 2 else all_four),
        personal=(),
        predict=first_two if predicts == 2 else all_four,
        upload=send_two if uploads == 2 else delta,
        capacity=Capacity(unit="density", usual=0.5, sizes=lambda network, capacity: {"numbers": 2}, **changes),
    )
    batch = federation([6]).batches[0]
    population = Population([Batch(batch.inputs, batch.inputs.sum(dim=1) + 1.0)])
    return play(own, 1, population=population, module=Four(), loss=F.mse_loss)


def test_a_client_may_use_and_upload_all_of_its_capacity():
    assert limited().reports[0].used == 1.0


@pytest.mark.parametrize(
    ("more", "uses", "uploads"),
    [("uploads", 2, 4), ("trains", 4, 2), ("predicts", 4, 2)],
)
def test_more_than_its_capacity_is_a_defect_whether_uploaded_or_used(more, uses, uploads):
    told = f"uses {uses} and uploads {uploads} values, but its capacity is 2 .client client 0, round 1, phase refresh"
    with pytest.raises(ClientFailed, match=told):
        limited(**{more: 4})


def test_where_a_capacity_is_not_about_uploads_more_may_be_uploaded_and_no_more_used():
    assert limited(uploads=4, limits_uploads=False).reports[0].used == 1.0
    with pytest.raises(ClientFailed, match="uses 4 and uploads 0 values, but its capacity is 2"):
        limited(predicts=4, uploads=4, limits_uploads=False)


def test_the_largest_share_used_in_the_cohort_is_told_whoever_has_it():
    """Of a and b client 1 uses both, and the others a alone: their b is 0, and nobody trains it."""
    clients = pair_clients(*[[(1, 1, 0)]] * 3)
    sparse = method(
        phase(),
        start=lambda beginning: {"b": beginning.state["b"] * (beginning.client == 1)},
        predict=lambda params, inputs: params,
        capacity=Capacity(unit="density", usual=1.0, sizes=lambda network, capacity: {}),
    )
    cohorts = [(1, 0, 2), (0, 1, 2), (0, 2, 1), (0, 2), (1,)]
    run = play(sparse, 5, Given(*cohorts), population=clients, module=Pair(), loss=lambda output, _: output.mean())
    assert run.program.binding(0).names(PERSONAL) == ["b"]
    assert [report.used for report in run.reports] == [1.0, 1.0, 1.0, 0.5, 1.0]


def test_without_capacities_nothing_is_told_of_what_is_used():
    assert play(fedavg(**FULL), 1).reports[0].used is None
