"""Clients that are lost, on every engine: the same ones for the same reasons, and the others as if nothing had been."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from plures.core.context import Conduct
from plures.core.errors import ClientFailed, InvalidData
from plures.core.loop import train
from plures.core.losses import Tolerance
from plures.core.roles import Engine
from plures.core.types import Batch
from plures.engines.cached import Cached
from plures.engines.sequential import Sequential
from plures.engines.vectorised import Vectorised
from plures.engines.workers import Workers
from plures.local import epochs
from plures.methods import fedalt, fedavg, pfedhn, pflego
from plures.participation import Faults, uniform
from plures.stores.memory import MemoryStore
from tests.helpers.faults import BEARING, program_of, scripted
from tests.helpers.methods import (
    Given,
    Population,
    TinyNetwork,
    assert_near,
    assert_same_bits,
    federation,
    network,
)

ENGINES: dict[str, Callable[[], Engine]] = {
    "sequential": Sequential,
    "cached": Cached,
    "vectorised": Vectorised,
    "workers": lambda: Workers(2),
}
engines = pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
BUDGET = epochs(2, batch=3)
EVERYBODY = (0, 1, 2, 3, 4)


def run(engine: Engine, method=None, rounds: int = 3, conduct: Conduct | None = None, **given):
    """Server, states and reports of a run."""
    population = given.get("population") or federation()
    program, store = program_of(method or fedalt(budget=BUDGET), population, given.get("module")), MemoryStore()
    done = train(
        program,
        population,
        rounds=rounds,
        sampler=given.get("sampler") or Given([EVERYBODY]),
        engine=engine,
        store=store,
        conduct=conduct,
        on_commit=given.get("on_commit"),
    )
    reports = list(done)
    return SimpleNamespace(
        shared=reports[-1].server.shared if reports else None,
        states={client: store.get(client) for client in store.clients()},
        reports=[committed.report for committed in reports],
        lost=[one for committed in reports for one in committed.report.lost],
        store=store,
    )


def assert_same(left, right) -> None:
    assert_same_bits(left.shared, right.shared)
    assert left.states.keys() == right.states.keys()
    for client, state in left.states.items():
        assert_same_bits(state, right.states[client])
    assert left.reports == right.reports


# The same losses everywhere

SOAK = Conduct(tolerance=Tolerance(least_cohort=0, deadline=5.0, largest_norm=1e6), faults=Faults(rate=0.5))


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(fedalt(budget=BUDGET), id="fedalt"),
        pytest.param(pflego(tau=3), id="pflego", marks=pytest.mark.slow),
        pytest.param(pfedhn(budget=BUDGET, hidden=8), id="pfedhn", marks=pytest.mark.slow),
    ],
)
def test_engines_lose_the_same_clients_for_the_same_reasons_and_agree_on_the_rest(method):
    runs = {name: run(make(), method, 4, SOAK, sampler=uniform(4)) for name, make in ENGINES.items()}
    plain = runs.pop("sequential")
    assert len({one.kind for one in plain.lost}) > 3
    for other in runs.values():
        assert other.lost == plain.lost
        assert [report.bytes_down for report in other.reports] == [report.bytes_down for report in plain.reports]
        assert_near(other.shared, plain.shared, 1e-9)


@engines
def test_the_same_run_twice_has_the_same_losses_and_bits(make_engine):
    once, again = (run(make_engine(), conduct=SOAK, sampler=uniform(4)) for _ in range(2))
    assert_same(once, again)


@engines
def test_who_is_lost_after_its_work_changes_nothing_for_the_others(make_engine):
    """The first round of the others is, to the last bit, the one in which everybody arrives."""
    calm, hit = run(make_engine(), rounds=1), run(make_engine(), rounds=1, conduct=scripted({(1, 2): "nan"}))
    assert list(hit.states) == [0, 1, 3, 4]
    for client, state in hit.states.items():
        assert_same_bits(state, calm.states[client])


# Errors while clients work


def with_unknown_classes(client: int = 2) -> Population:
    """One client has labels that the network has no outputs for."""
    batches = list(federation().batches)
    batches[client] = batches[client]._replace(targets=batches[client].targets + 7)
    return Population(batches)


WHOLE = epochs(1, batch=50)


@engines
def test_a_client_that_fails_is_lost_and_named_and_the_others_go_on(make_engine):
    found = run(make_engine(), fedavg(budget=WHOLE), 2, Conduct(tolerance=BEARING), population=with_unknown_classes())
    assert [(one.client, one.name, one.kind) for one in found.lost] == [(2, "client 2", "failed")] * 2
    assert "out of bounds. (client client 2, round 1, phase shared)" in found.lost[0].reason
    others = run(make_engine(), fedavg(budget=WHOLE), 2, sampler=Given([(0, 1, 3, 4)]))
    assert_near(found.shared, others.shared, 1e-12)


@engines
def test_where_nothing_is_borne_a_failure_ends_the_run_with_one_error(make_engine):
    with pytest.raises(ClientFailed, match=r"IndexError: .*client client 2, round 1, phase shared") as found:
        run(make_engine(), fedavg(budget=WHOLE), 2, population=with_unknown_classes())
    assert type(found.value) is ClientFailed
    assert workers_left() == []


# Data that disappear


@dataclass(frozen=True)
class OnDisk(Population):
    """Clients whose examples are read from a file whenever they are wanted."""

    folder: Path = field(default_factory=Path)
    wrong: type[Exception] | None = None
    """What a client raises whose file is gone; None: what the system says."""

    def client(self, client: int) -> SimpleNamespace:
        file = self.folder / f"{client}.pt"
        if self.wrong is not None and not file.exists():
            raise self.wrong(f"client {client} has no examples.")
        return SimpleNamespace(train=Batch(*torch.load(file)))


def on_disk(folder: Path, wrong: type[Exception] | None = None) -> OnDisk:
    batches = federation().batches
    for client, batch in enumerate(batches):
        torch.save(tuple(batch), folder / f"{client}.pt")
    return OnDisk(batches, folder, wrong)


def removing(folder: Path, client: int, after: int = 1):
    """The file of a client disappears once a round is whole."""

    def on_commit(committed) -> None:
        if committed.server.round == after:
            (folder / f"{client}.pt").unlink()

    return on_commit


@engines
@pytest.mark.parametrize("wrong", [None, pytest.param(InvalidData, marks=pytest.mark.slow)], ids=["no file", "invalid"])
def test_a_client_whose_data_disappear_is_lost_and_keeps_what_it_had(tmp_path, make_engine, wrong):
    population = on_disk(tmp_path, wrong)
    bearing = Conduct(tolerance=BEARING)
    found = run(make_engine(), conduct=bearing, population=population, on_commit=removing(tmp_path, 3))
    assert [(one.client, one.name, one.kind) for one in found.lost] == [(3, "client 3", "failed")] * 2
    assert "The examples cannot be read" in found.lost[0].reason
    assert "Are its files where they were" in found.lost[0].reason
    first = run(make_engine(), rounds=1)
    assert_same_bits(found.states[3], first.states[3])
    others = run(make_engine(), sampler=Given([EVERYBODY, (0, 1, 2, 4), (0, 1, 2, 4)]))
    assert_near(found.shared, others.shared, 1e-12)


@engines
def test_a_strict_run_whose_data_disappear_ends_with_one_clear_error(tmp_path, make_engine):
    with pytest.raises(
        ClientFailed, match=r"cannot be read: FileNotFoundError.*client 3, round 2, phase data"
    ) as found:
        run(make_engine(), population=on_disk(tmp_path), on_commit=removing(tmp_path, 3))
    assert found.value.__cause__ is not None
    assert workers_left() == []


# Workers that die


def workers_left() -> list[str]:
    return [child.name for child in multiprocessing.active_children() if child.name == "plures worker"]


class Counting(Workers):
    """Counts workers that were replaced."""

    deaths = 0

    def replaced(self, worker):
        self.deaths += 1
        return super().replaced(worker)


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_workers_that_are_killed_are_replaced_and_nothing_else_changes(count):
    killing = Conduct(tolerance=BEARING, faults=Faults(kill_worker=0.5))
    engine = Counting(count)
    killed = run(engine, conduct=killing)
    assert engine.deaths == sum(
        killing.faults.kills_worker(11, round, client) for round in (1, 2, 3) for client in EVERYBODY
    )
    assert engine.deaths > 3
    assert killed.lost == []
    assert_same(killed, run(Workers(count)))
    assert_same(killed, run(Cached()))


def test_a_worker_that_is_killed_in_a_round_of_another_shape_is_replaced_too():
    method, killing = pfedhn(budget=BUDGET, hidden=8), scripted({(1, 0): "kill_worker", (1, 3): "kill_worker"})
    assert_same(run(Workers(2), method, 1, killing), run(Cached(), method, 1))


class Deadly(TinyNetwork):
    """Kills every worker that trains client 2."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = os.getpid()

    def forward(self, inputs):
        if len(inputs) == 7 and self.training and os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(inputs)


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_client_that_workers_die_of_is_lost_where_that_is_borne(count):
    engine = Counting(count)
    found = run(engine, fedavg(budget=WHOLE), 2, Conduct(tolerance=BEARING), module=network(Deadly))
    assert [(one.client, one.kind) for one in found.lost] == [(2, "failed")] * 2
    assert "A worker died 3 times with this client (client client 2, round 1, phase work)" in found.lost[0].reason
    assert engine.deaths == 6
    others = run(Cached(), fedavg(budget=WHOLE), 2, sampler=Given([(0, 1, 3, 4)]), module=network(Deadly))
    assert_same_bits(found.shared, others.shared)


def test_a_client_that_workers_die_of_ends_a_strict_run():
    with pytest.raises(ClientFailed, match=r"died 3 times.*client 2, round 1"):
        run(Workers(2), fedavg(budget=WHOLE), module=network(Deadly))
    assert workers_left() == []


class Startled(Workers):
    """Some of its workers die before they are given anything."""

    def __init__(self, count: int, stillborn: int) -> None:
        super().__init__(count)
        self.stillborn = stillborn

    def replaced(self, worker):
        fresh = super().replaced(worker)
        if self.stillborn:
            self.stillborn -= 1
            fresh.process.kill()
            fresh.process.join()
        return fresh


def test_a_worker_that_dies_before_it_is_given_anything_is_replaced_too():
    killing = scripted({(1, 0): "kill_worker"})
    assert_same(run(Startled(2, 1), conduct=killing, rounds=1), run(Cached(), rounds=1))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of open files")
def test_nothing_is_left_of_workers_that_died():
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    killing = Conduct(tolerance=BEARING, faults=Faults(kill_worker=0.5))
    run(Workers(2), rounds=1)
    before, others = open_files(), children_of(os.getpid())
    engine = Counting(2)
    run(engine, conduct=killing)
    assert engine.deaths > 3
    assert open_files() == before
    assert children_of(os.getpid()) == others  # of other tests


def children_of(parent: int) -> set[int]:
    """Numbers of all processes that this one has started, also of those that have ended and that nobody asked after."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            owner = file.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(owner) == parent:
            found.add(int(file.parent.name))
    return found
