"""Workers: the same bits whatever their number, errors that travel, and workers that die."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import plures
from plures.core.errors import ClientFailed, Diverged, InvalidConfig
from plures.data import digits_federation
from plures.engines import workers
from plures.engines.arena import Arena, read, written
from plures.engines.cached import Cached
from plures.engines.workers import Round, Worker, Workers
from plures.local import epochs
from plures.methods import METHODS, fedalt, fedavg, pflego
from plures.models import mlp
from tests.helpers.methods import TinyNetwork, assert_same_bits, federation, network, play

CLIENTS = digits_federation(num_clients=12, classes_per_client=2)
BUDGET = epochs(1, batch=10)


def ran(engine, method=None, **options):
    method = fedalt(budget=BUDGET) if method is None else method
    return plures.run(method, CLIENTS, mlp, rounds=3, cohort=7, engine=engine, **options)


def children() -> list[str]:
    return [child.name for child in multiprocessing.active_children() if child.name == "plures worker"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_workers_gives_the_bits_of_one_process(count):
    assert ran(Workers(count)).fingerprint == ran("cached").fingerprint


@pytest.mark.parametrize("name", ["pfedhn", "pfedgate", "fedem", "fedspa", "scaffold", "fedmask"])
def test_methods_with_rounds_masks_and_networks_of_their_own_too(name):
    one, many = (play(METHODS[name].make(), 2, engine=engine) for engine in (Cached(), Workers(2)))
    assert_same_bits(many.shared, one.shared)
    for client, state in one.final.items():
        assert_same_bits(many.final[client], state)


@pytest.mark.parametrize("method", [fedavg(budget=BUDGET), fedalt(budget=BUDGET)], ids=["fedavg", "fedalt"])
def test_workers_score_clients_as_one_process_does(method):
    plan = plures.EvaluationPlan(models="all", every=2)
    one, many = (ran(engine, method, evaluation=plan) for engine in ("cached", Workers(2)))
    assert {"personal", "post_local", "finetuned"} <= {evaluation.model for evaluation in many.evaluations}
    assert many.evaluations == one.evaluations


def test_scores_are_found_by_the_workers(monkeypatch):
    found = Workers(2)
    at_work = list[int]()
    monkeypatch.setattr(found, "share", lambda work: found.works.append(noting(work)))
    monkeypatch.setattr(found, "map", lambda work, items: Workers.map(found, of_equal(found.works, work), items))
    result = ran(found, evaluation=plures.EvaluationPlan(models=["personal"], splits=["test"]))
    at_work += [score.values["process"] for score in result.scores("personal")]
    assert len(at_work) == CLIENTS.num_clients
    assert os.getpid() not in at_work


class noting:  # noqa: N801 - a function with a memory
    """Work whose scores tell the process that found them."""

    def __init__(self, work) -> None:
        self.work = work

    def __call__(self, item):
        found = self.work(item)
        for score in found.values() if isinstance(found, dict) else found:
            score.values["process"] = os.getpid()
        return found


def of_equal(works, work):
    return next(one for one in works if one.work == work)


def test_results_come_in_the_order_of_the_visits_and_nobody_is_left_behind():
    run = play(fedavg(budget=epochs(2, batch=3)), 2, population=federation(tuple(range(30, 0, -1))), engine=Workers(3))
    assert [result.client for _, result in run.results] == [*range(30)] * 2
    assert children() == []


def test_workers_end_with_the_run_also_where_it_is_interrupted():
    class Impatient:
        def started(self, *told) -> None: ...

        def round_done(self, *told) -> None:
            assert len(children()) == 2
            raise KeyboardInterrupt

        def ended(self) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        ran(Workers(2), watcher=Impatient())
    assert children() == []


class Deadly(TinyNetwork):
    """Kills its process, as often as the file has lines, when it is trained in a worker."""

    def __init__(self, file: Path, parent: int) -> None:
        super().__init__()
        self.file, self.parent = file, parent

    def forward(self, inputs: Tensor) -> Tensor:
        left = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        if left and self.training and os.getpid() != self.parent:
            self.file.write_text(left[1:], encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(inputs)


def deadly(tmp_path, times: int) -> nn.Module:
    (tmp_path / "left").write_text("x" * times, encoding="utf-8")
    return network(lambda: Deadly(tmp_path / "left", os.getpid()))


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_dies_is_replaced_and_its_client_done_again(tmp_path, times):
    run = play(fedavg(), 2, module=deadly(tmp_path, times), engine=Workers(1))
    assert (tmp_path / "left").read_text(encoding="utf-8") == ""
    assert_same_bits(run.shared, play(fedavg(), 2, engine=Cached()).shared)


def test_a_client_whose_workers_die_again_and_again_is_named(tmp_path):
    with pytest.raises(ClientFailed, match=r"died 3 times.*client 0, round 1") as found:
        play(fedavg(), 1, module=deadly(tmp_path, 99), engine=Workers(1))
    assert found.value.round == 1
    assert children() == []


class Failing(TinyNetwork):
    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) == 7:  # client 2 alone has so many
            raise ValueError("seven is too many")
        return super().forward(inputs)


def test_an_error_in_a_worker_is_the_error_of_one_process():
    messages = []
    for engine in (Cached(), Workers(2)):
        with pytest.raises(ClientFailed, match="seven is too many") as found:
            play(fedavg(budget=epochs(1, batch=50)), 1, module=network(Failing), engine=engine)
        messages.append((str(found.value), found.value.client, found.value.phase))
    assert messages[0] == messages[1]


def test_divergence_is_told_as_ever():
    with pytest.raises(Diverged, match="Lower the learning rate"):
        ran(Workers(2), fedavg(lr=1e30, budget=BUDGET))


def test_messages_larger_than_their_room_go_by_the_pipe(monkeypatch):
    monkeypatch.setattr(workers, "ROOM", 0)
    monkeypatch.setattr(workers, "LEAST_ROOM", 0)
    assert ran(Workers(2), pflego(tau=3)).fingerprint == ran("cached", pflego(tau=3)).fingerprint


@pytest.mark.parametrize("room", [0, 100, 10_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_what_is_written_is_read_again_and_what_was_one_tensor_is_one(room, dtype):
    arena = Arena(room)
    value = torch.arange(12).reshape(3, 4).to(dtype)
    message = {"a": value, "b": [value, value.T, value[:0], torch.ones((), dtype=dtype)], "c": ("text", 1.5)}
    found = read(written(message, arena), arena)
    assert found["c"] == ("text", 1.5)
    for mine, theirs in zip([found["a"], *found["b"]], [value, *message["b"]], strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)
    assert found["a"] is found["b"][0] or room < 12 * value.element_size()


def test_what_was_read_does_not_change_with_the_memory_it_came_from():
    arena = Arena(1000)
    found = read(written(torch.ones(5), arena), arena)
    written(torch.zeros(5), arena)
    assert torch.equal(found, torch.ones(5))


@pytest.mark.parametrize("count", [0, -1])
def test_no_worker_is_no_engine(count):
    with pytest.raises(InvalidConfig, match="one or more"):
        Workers(count)


class Turns(Round):
    """A round whose workers finish in an order that chance decides, without any process."""

    def __init__(self, visits: int, count: int, seed: int) -> None:
        fakes = [Worker(process=None, pipe=None, outbox=[], inbox=[]) for _ in range(count)]
        super().__init__(SimpleNamespace(workers=fakes, close=lambda: None), range(visits))
        self.chance, self.slowest = random.Random(seed), 0

    def send(self, worker, number, visit):
        worker.busy.append((number, visit))
        assert number < self.following + 8 * len(self.engine.workers)
        return worker

    def take_in(self):
        waiting = [worker for worker in self.engine.workers if worker.busy]
        if self.chance.random() < 0.05:
            self.slowest = self.chance.randrange(len(self.engine.workers))
        faster = [worker for worker in waiting if worker is not self.engine.workers[self.slowest]]
        worker = self.chance.choice(faster if faster and self.chance.random() < 0.9 else waiting)
        number, visit = worker.busy.popleft()
        self.finished[number] = visit


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("visits", [0, 1, 20, 100])
def test_nobody_is_forgotten_whoever_is_slow(visits, count):
    """That the others must wait for the slowest once ended a round before its last clients had been called."""
    for seed in range(1000 if visits == 20 else 100):
        assert list(Turns(visits, count, seed).results()) == list(range(visits))
