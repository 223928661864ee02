"""What is measured: each workload of the benchmarks as a method, a network and a federation.

Rounds are those of `plures.core.loop.train`, with the wire that measures bytes; evaluation is a workload of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.data import CLASSES, SEED, SHAPE, federation
from plures.core.loop import opened, start, train
from plures.core.method import Method
from plures.core.program import Program
from plures.core.roles import Shares
from plures.data import Federation
from plures.evaluate import Evaluator, ModelKind
from plures.local import FULL, epochs, steps
from plures.methods import fedalt, fedavg, fedper, fedspa, pflego
from plures.models import as_networks, leaf_cnn, lenet5, mlp, resnet8_gn
from plures.participation import uniform
from plures.parts import adapters, conv_adapters
from plures.recipes.engines import find_engine
from plures.recipes.running import make_program
from plures.stores.memory import MemoryStore

ROUNDS = 1000
"""The length of a run as its methods are told; only its first rounds are played."""


class Turn(NamedTuple):
    """One measurement."""

    seconds: float
    steps: int
    """Gradient steps; of an evaluation, clients."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Rounds of one method, or with `evaluated` the evaluation of all clients."""

    key: str
    title: str
    method: Callable[[], Method]
    network: Callable[[], nn.Module]
    cohort: int = 20
    clients: int = 100
    examples: int = 600
    """Training examples of a client, on average."""
    tests: int = 100
    evaluated: ModelKind | None = None
    note: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        return {"clients": self.clients, "cohort": self.cohort, "examples": self.examples, "tests": self.tests}

    def smaller(self, *, clients: int, cohort: int, examples: int) -> Workload:
        """The same on fewer clients with fewer examples, to try it out."""
        sizes = {"clients": clients, "cohort": min(cohort, self.cohort), "examples": min(examples, self.examples)}
        return replace(self, **sizes, tests=min(self.tests, examples))

    def federation(self) -> Federation:
        return federation(self.clients, self.examples, self.tests)

    def program(self) -> Program:
        return make_program(self.method(), as_networks(self.network), self.federation(), seed=SEED)

    def cohort_of(self, round: int) -> tuple[int, ...]:
        """Who is at work in a round; an evaluation is of everybody."""
        if self.evaluated is not None:
            return tuple(range(self.clients))
        return uniform(self.cohort).draw(self.clients, round, SEED).clients

    def steps_of(self, round: int) -> int:
        """Gradient steps of a round, by the budgets of its phases; of an evaluation, clients."""
        clients = self.cohort_of(round)
        if self.evaluated is not None:
            return len(clients)
        phases, population = self.method().local, self.federation()
        sizes = [population.num_examples(client) for client in clients]
        return sum(phase.budget.num_updates(size) for phase in phases for size in sizes)


class Simulation:
    """A workload on one of our engines, a turn at a time."""

    def __init__(self, workload: Workload, engine: str) -> None:
        self.workload, self.round, self.store = workload, 0, MemoryStore()
        self.program, self.population = workload.program(), workload.federation()
        self.sampler = uniform(workload.cohort)
        self.program.shows_trained = False  # as in a run that evaluates no model right after its training
        torch.set_num_threads(1)
        self.engine, self.reason = find_engine(engine, self.program, self.population, self.sampler)
        self._work = self._evaluations() if workload.evaluated else self._rounds()

    def turn(self) -> Turn:
        """On one thread, as every run is; an engine that wants more cores takes them itself."""
        torch.set_num_threads(1)
        self.round += 1
        began = time.perf_counter()
        next(self._work)
        seconds = time.perf_counter() - began
        return Turn(seconds, self.workload.steps_of(self.round))

    def close(self) -> None:
        """End the run, and with it what the engine has started."""
        self._work.close()

    def _rounds(self) -> Generator[object, None, None]:
        yield from train(
            self.program,
            self.population,
            rounds=ROUNDS,
            sampler=self.sampler,
            engine=self.engine,
            store=self.store,
        )

    def _evaluations(self) -> Generator[object, None, None]:
        evaluator = Evaluator(self.program, self.population, self.store, self.population.goal)
        server, model = start(self.program), self.workload.evaluated
        assert model is not None
        if isinstance(self.engine, Shares):
            evaluator.share_with(self.engine, (model,), ("test",))
        with opened(self.engine, self.program, self.population):
            while True:
                yield evaluator.evaluate(server, (model,), ("test",))


def small_mlp() -> nn.Module:
    return mlp(shape=SHAPE, hidden=(100,), classes=CLASSES)


def pflego_mlp() -> nn.Module:
    return mlp(shape=SHAPE, hidden=(200,), classes=CLASSES, init="pflego")


def cnn() -> nn.Module:
    return leaf_cnn(shape=SHAPE, classes=CLASSES)


def adapted_resnet() -> nn.Module:
    return conv_adapters(resnet8_gn(shape=SHAPE, classes=CLASSES))


FEWER = "part of Fashion-MNIST: with all 600 examples of each client a round would be too long"

ALL = (
    Workload(
        key="a",
        title="FedAvg, MLP 784-100-10, batch 10",
        method=lambda: fedavg(lr=0.05, budget=epochs(1, batch=10)),
        network=small_mlp,
    ),
    Workload(
        key="b",
        title="FedPer, MLP 784-100-10, batch 32",
        method=lambda: fedper(lr=0.05, budget=epochs(1, batch=32)),
        network=small_mlp,
    ),
    Workload(
        key="c",
        title="FedAvg, CNN 32/64 5x5, batch 32",
        method=lambda: fedavg(lr=0.05, budget=epochs(1, batch=32)),
        network=cnn,
        examples=240,
        note=FEWER,
    ),
    Workload(
        key="d-fedper",
        title="FedPer, MLP 784-200-10, 50 full-batch steps",
        method=lambda: fedper(budget=steps(50, batch=FULL)),
        network=pflego_mlp,
        examples=300,
        note=FEWER,
    ),
    Workload(
        key="d-pflego-50",
        title="PFLEGO, MLP 784-200-10, tau = 50",
        method=lambda: pflego(tau=50),
        network=pflego_mlp,
        examples=300,
        note=FEWER,
    ),
    Workload(
        key="d-pflego-5",
        title="PFLEGO, MLP 784-200-10, tau = 5",
        method=lambda: pflego(tau=5),
        network=pflego_mlp,
        examples=300,
        note=FEWER,
    ),
    Workload(
        key="e",
        title="FedAlt with adapters, ResNet8-GN, batch 32",
        method=lambda: fedalt(personal=adapters(), lr=0.05, budget=epochs(1, batch=32)),
        network=adapted_resnet,
        cohort=10,
        examples=160,
        note=FEWER,
    ),
    Workload(
        key="f",
        title="FedSpa-DST, LeNet5, batch 32",
        method=lambda: fedspa(lr=0.05, budget=epochs(1, batch=32)),
        network=lambda: lenet5(shape=SHAPE, classes=CLASSES),
        cohort=10,
        examples=300,
        note=FEWER + "; the search for masks, one gradient per client, is not counted as a step",
    ),
    Workload(
        key="g-global",
        title="evaluation of 100 clients, one CNN for all",
        method=fedavg,
        network=cnn,
        tests=50,
        evaluated="global",
        note="half of Fashion-MNIST's test examples",
    ),
    Workload(
        key="g-personal",
        title="evaluation of 100 clients, CNN with own heads",
        method=fedper,
        network=cnn,
        tests=50,
        evaluated="personal",
        note="half of Fashion-MNIST's test examples",
    ),
)


def chosen(only: str | None) -> list[Workload]:
    """Workloads by letter or by key, such as "a,d-pflego-5"; without a choice, all."""
    if only is None:
        return list(ALL)
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in wanted if not any(matches(workload, word) for workload in ALL)]
    if unknown:
        keys = ", ".join(workload.key for workload in ALL)
        raise SystemExit(f"There is no workload '{unknown[0]}': choose from {keys}, or by letter.")
    return [workload for workload in ALL if any(matches(workload, word) for word in wanted)]


def of_size(key: str, **sizes: int) -> Workload:
    """A workload by its key, of other sizes."""
    return replace(next(workload for workload in ALL if workload.key == key), **sizes)


def matches(workload: Workload, word: str) -> bool:
    return workload.key == word or workload.key.partition("-")[0] == word
