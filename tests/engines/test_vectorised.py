"""The vectorised engine against the plain one: every method of the table, one round from the same state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
import torch

from plures.core.client import Result
from plures.core.context import RoundContext
from plures.core.program import Program
from plures.core.types import Params
from plures.core.visit import Visit
from plures.engines import lockstep as lockstep_module
from plures.engines import vectorised
from plures.engines.sequential import Sequential
from plures.engines.vectorised import Vectorised
from plures.methods import METHODS
from plures.participation import uniform
from tests.conformance.table import ROWS, Row
from tests.helpers.methods import Played, assert_near, assert_same_bits, equal_bits, network, play

DOUBLE, SINGLE = 1e-10, 1e-5
IN_LOCKSTEP = {
    "ditto": 2,
    "fedalt": 2,
    "fedavg": 1,
    "fedbabu": 1,
    "fedper": 1,
    "fedprox": 1,
    "fedrep": 2,
    "fedsim": 1,
    "fedspa": 1,
    "finetune": 1,
    "lg_fedavg": 1,
    "local": 1,
    "pflego": 1,  # the joint step; its inner steps have a solver
    "scaffold": 1,
    "subsampling": 1,
}
"""Methods that must run in lockstep, with how many of their phases, in the first row of each."""
BY_HAND = {"ditto", "fedavg", "fedbabu", "fedper", "fedprox", "fedrep", "fedspa", "finetune", "lg_fedavg", "local"}
"""Those of plain SGD, with a view and a penalty that a chain of layers knows."""


def is_quick(row: Row) -> bool:
    """Rows that can be in lockstep, and the first one of every other method."""
    first = row.variant == next(iter(row.entry.variants))
    return first or (row.method in IN_LOCKSTEP and not row.variant.startswith("normed"))


rows = pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[] if is_quick(row) else pytest.mark.slow) for row in ROWS], ids=str
)
first_rows = [next(row for row in ROWS if row.method == method) for method in IN_LOCKSTEP]


@pytest.fixture
def lockstep(monkeypatch) -> Counter[str]:
    """Counts the phases that are taken in lockstep, and lets what fails there fail the test."""
    counted: Counter[str] = Counter()
    taken = vectorised.lockstep

    def counting(phase, *others):
        counted[phase.name] += 1
        return taken(phase, *others)

    monkeypatch.setattr(vectorised, "lockstep", counting)
    monkeypatch.setattr(vectorised, "FAILURES", ())
    return counted


@cache
def two_rounds(row: Row, dtype: torch.dtype = torch.float64) -> Played:
    """Two rounds of the plain engine, of three clients each, so that some have been visited and some have not."""
    return play(row.make(), 2, uniform(3), population=row.population(), module=network(row.network).to(dtype))


def visits_to(run: Played) -> list[Visit]:
    """What everybody finds in the next round."""
    context = RoundContext(
        program=run.program,
        engine=Sequential(),
        population=run.population,
        store=run.store,
        server=run.server,
        clients=tuple(range(run.population.num_clients)),
        inclusion=1.0,
    )
    return list(context.visits())


def both(program: Program, visits: Sequence[Visit]) -> list[tuple[Result, Result]]:
    plain = list(Sequential().run(program, visits))
    return list(zip(plain, Vectorised().run(program, visits), strict=True))


def assert_agree(wanted: Result, found: Result, rel: float) -> None:
    assert found.client == wanted.client
    for expected, actual in zip(tensors(wanted), tensors(found), strict=True):
        assert_near_or_equal(actual, expected, rel)
    assert (found.passes, found.forward_passes, found.whole_passes) == (
        wanted.passes,
        wanted.forward_passes,
        wanted.whole_passes,
    )
    assert (found.used, found.searched) == (wanted.used, wanted.searched)
    assert found.seconds.keys() == wanted.seconds.keys()
    assert (found.upload.held is None) == (wanted.upload.held is None)


def tensors(result: Result) -> list[Params]:
    sent = (result.upload.values, result.upload.held or {}, result.buffers, result.known)
    return [result.state, result.trained, result.losses, *sent]


def assert_near_or_equal(actual: Params, expected: Params, rel: float) -> None:
    """Real numbers near, masks and counters equal."""
    assert list(actual) == list(expected)
    discrete = [name for name, value in expected.items() if not value.is_floating_point()]
    assert_same_bits({n: actual[n] for n in discrete}, {n: expected[n] for n in discrete})
    assert {n: v.dtype for n, v in actual.items()} == {n: v.dtype for n, v in expected.items()}
    assert_near(actual, expected, rel)


@rows
def test_a_round_is_that_of_the_plain_engine(row, lockstep):
    run = two_rounds(row)
    visits = visits_to(run)
    for wanted, found in both(run.program, visits):
        assert_agree(wanted, found, DOUBLE)
    reasons = Vectorised().reasons(run.program, visits[0])
    assert sum(lockstep.values()) == reasons.count(None)
    if row in first_rows:
        assert reasons.count(None) == IN_LOCKSTEP[row.method]


@pytest.mark.parametrize("row", [row for row in first_rows if row.method in BY_HAND], ids=str)
def test_plain_steps_on_a_chain_are_taken_by_hand(row, monkeypatch):
    """Nothing but speed would tell: autograd gives the same."""
    monkeypatch.setattr(lockstep_module, "MappedSteps", None)
    monkeypatch.setattr(vectorised, "FAILURES", ())
    run = two_rounds(row)
    assert len(list(Vectorised().run(run.program, visits_to(run)))) == run.population.num_clients


def test_the_methods_that_must_run_in_lockstep_are_methods():
    assert set(IN_LOCKSTEP) < set(METHODS)


@pytest.mark.parametrize("row", first_rows, ids=str)
def test_a_round_in_single_precision_is_that_of_the_plain_engine(row, lockstep):
    """What is trained, and losses; uploads are small differences of it, of which fewer digits are left."""
    run = two_rounds(row, torch.float32)
    for wanted, found in both(run.program, visits_to(run)):
        assert_near_or_equal(found.trained, wanted.trained, SINGLE)
        assert_near_or_equal(found.losses, wanted.losses, SINGLE)
    assert lockstep


@pytest.mark.parametrize("row", first_rows, ids=str)
def test_the_same_visits_give_the_same_bits_again(row):
    run = two_rounds(row)
    visits = visits_to(run)
    once, again = (list(Vectorised().run(run.program, visits)) for _ in range(2))
    for left, right in zip(once, again, strict=True):
        for expected, actual in zip(tensors(left), tensors(right), strict=True):
            assert_same_bits(actual, expected)


@pytest.mark.parametrize("row", first_rows, ids=str)
def test_nothing_given_is_written_into_and_nothing_moved_is_shared_with_others(row):
    """Of each tensor, the storage behind it: nobody's slice of everybody's stack."""
    run = two_rounds(row)
    visits = visits_to(run)
    given = [value for visit in visits for value in (visit.received | visit.state).values()]
    before = [value.clone() for value in given]
    results = list(Vectorised().run(run.program, visits))
    assert all(equal_bits(left, right) for left, right in zip(given, before, strict=True))
    taken = {value.untyped_storage().data_ptr() for value in given}
    for result in results:
        for values in (result.state, result.trained, result.upload.values):
            for name, value in values.items():
                storage = value.untyped_storage()
                if storage.data_ptr() not in taken:
                    assert storage.nbytes() == value.numel() * value.element_size(), name
