"""Every method on every fast engine: one round from the same state is that of the sequential engine."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from plures.core.client import Result
from plures.core.loop import train
from plures.core.types import Params
from plures.engines.cached import Cached
from plures.engines.sequential import Sequential
from plures.engines.workers import Workers
from plures.recipes.engines import ENGINES
from plures.stores.memory import MemoryStore
from tests.conformance.table import ROWS, Row
from tests.conformance.test_conformance import is_loose
from tests.helpers.methods import Given, assert_near, assert_same_bits, copy_of, network, play

FAST = {"cached": Cached, "workers": lambda: Workers(2)}
COHORTS = Given([(0, 1, 2, 3, 4), (0, 2), (4, 1, 3)], 0.6)
rows = pytest.mark.parametrize("row", ROWS, ids=str)
fast = pytest.mark.parametrize("make_engine", FAST.values(), ids=FAST)


@cache
def two_rounds(row: Row):
    """A run of two rounds, after which server and clients have a state."""
    return play(row.make(), 2, COHORTS, population=row.population(), module=network(row.network))


def third_round(row: Row, engine) -> tuple[Params, dict[int, Params], list[Result], object]:
    run, store, results = two_rounds(row), MemoryStore(), []
    store.commit(2, {client: run.store.get(client) for client in run.store.clients()})
    (committed,) = train(
        run.program,
        run.population,
        rounds=3,
        sampler=COHORTS,
        engine=engine,
        store=store,
        server=run.server,
        on_result=lambda visit, result: results.append(result),
    )
    return committed.server.shared, {client: store.get(client) for client in store.clients()}, results, committed.report


def assert_as_near(row: Row, found: Params, expected: Params) -> None:
    """Masks and other choices are the same; what has no effect is near in absolute numbers."""
    firm = [name for name in expected if not is_loose(row, name)]
    assert found.keys() == expected.keys()
    assert_near({name: found[name] for name in firm}, {name: expected[name] for name in firm}, 1e-10)
    for name, value in expected.items():
        assert value.dtype == found[name].dtype
        assert value.is_floating_point() or torch.equal(found[name], value), name
        assert torch.allclose(found[name].double(), value.double(), rtol=1e-9, atol=1e-9), name


def test_every_engine_but_the_slow_twin_is_here():
    """The vectorised one has files of its own, with the same test of every row."""
    assert {"sequential", "vectorised"} | set(FAST) == set(ENGINES)
    assert {make().name for make in FAST.values()} == set(FAST)


@rows
@fast
def test_one_round_from_the_same_state_is_that_of_the_sequential_engine(row, make_engine):
    """In float64 to 1e-10; what a round reports of costs is the same."""
    given = copy_of(two_rounds(row).shared)
    shared, states, results, report = third_round(row, Sequential())
    other, kept, found, told = third_round(row, make_engine())
    assert_as_near(row, other, shared)
    assert kept.keys() == states.keys()
    for client, state in states.items():
        assert_as_near(row, kept[client], state)
    for mine, theirs in zip(found, results, strict=True):
        assert (mine.client, mine.passes, mine.used, mine.searched) == (
            theirs.client,
            theirs.passes,
            theirs.used,
            theirs.searched,
        )
        assert mine.losses.keys() == theirs.losses.keys()
        assert_as_near(row, mine.trained, theirs.trained)
    assert (told.bytes_up, told.bytes_down, told.network_passes) == (
        report.bytes_up,
        report.bytes_down,
        report.network_passes,
    )
    assert told.losses == pytest.approx(report.losses, rel=1e-10)
    assert_same_bits(two_rounds(row).shared, given)
