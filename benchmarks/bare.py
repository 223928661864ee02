"""The bare limit: the same number of steps on the same shapes in a plain loop, with nothing around them.

The loop is what anybody would write: `torch.nn`, `torch.optim.SGD`, `loss.backward()`. Examples are real numbers in
memory before the clock starts; nothing is averaged, masked, sent or kept. Settings: one process with two threads, one
process with one thread, and two processes with one thread each, which take every other client of the cohort.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import workloads
from benchmarks.workloads import Turn, Workload
from plures.core.method import Budget
from plures.core.seeds import generator, global_draws
from plures.core.types import Batch

RATE = 0.01
START = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


class Bare(Protocol):
    """A loop that can be measured."""

    def turn(self) -> Turn: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """One phase, as a plain loop knows it."""

    moving: frozenset[str]
    watched: frozenset[str]
    """Names whose gradient is taken, not applied."""
    budget: Budget


class Loop:
    """A network and the loop over some clients' batches."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.population = workload, workload.federation()
        with global_draws(0, "bare network"):
            self.module = workload.network()
        self.stretches = [] if workload.evaluated else stretches_of(workload)

    def examples(self, clients: Sequence[int]) -> list[Batch]:
        """Of each client what is trained on, or tested."""
        split = "test" if self.workload.evaluated else "train"
        return [self.population.client(client).splits[split] for client in clients]

    def work(self, batches: Sequence[Batch]) -> int:
        """The number of steps that were made; of an evaluation, clients."""
        if self.workload.evaluated:
            return sum(tested(self.module, batch) for batch in batches)
        return sum(trained(self.module, stretch, batch) for batch in batches for stretch in self.stretches)


def stretches_of(workload: Workload) -> list[Stretch]:
    binding = workload.program().binding(0)
    own = set(binding.task.parameters)
    return [
        Stretch(
            moving=frozenset(own.intersection(binding.names(*phase.moves))),
            watched=frozenset() if phase.observe is None else frozenset(binding.names(phase.observe)),
            budget=phase.budget,
        )
        for phase in workload.method().local
    ]


def trained(module: nn.Module, stretch: Stretch, data: Batch) -> int:
    """SGD on one client's batches."""
    module.train()
    for name, value in module.named_parameters():
        value.requires_grad_(name in stretch.moving or name in stretch.watched)
    optimizer = torch.optim.SGD([v for n, v in module.named_parameters() if n in stretch.moving], lr=RATE)
    num_steps = 0
    for places in stretch.budget.batches(data.num_examples, generator(0, "bare")):
        inputs, targets = (data.inputs, data.targets) if places is None else (data.inputs[places], data.targets[places])
        module.zero_grad()
        F.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
        num_steps += 1
    return num_steps


def tested(module: nn.Module, data: Batch) -> int:
    """One client's test examples through the network; counts the client."""
    module.eval()
    with torch.inference_mode():
        output = module(data.inputs)
        float((output.argmax(dim=1) == data.targets).float().mean())
        float(F.cross_entropy(output, data.targets))
    return 1


class InProcess:
    """The loop here, on some threads."""

    def __init__(self, workload: Workload, threads: int) -> None:
        self.loop, self.threads, self.round = Loop(workload), threads, 0

    def turn(self) -> Turn:
        torch.set_num_threads(self.threads)
        self.round += 1
        batches = self.loop.examples(self.loop.workload.cohort_of(self.round))
        began = time.perf_counter()
        num_steps = self.loop.work(batches)
        return Turn(time.perf_counter() - began, num_steps)

    def close(self) -> None:
        """Nothing was started."""


class Pair:
    """Two processes with one thread each, started once for all workloads; between turns they wait."""

    def __init__(self) -> None:
        # Torch imports much when its first optimiser is made; what is there before the fork need not be loaded again.
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE)
        context = multiprocessing.get_context(START)
        self.processes, self.lines = [], list[Connection]()
        for _ in range(2):
            here, there = context.Pipe()
            self.lines.append(here)
            process = context.Process(target=serve, args=(there, list(self.lines)), daemon=True)
            process.start()
            there.close()  # so that the death of a process is noticed here
            self.processes.append(process)

    def ready(self, workload: Workload, clients: Sequence[int]) -> None:
        """Hand each process its half, and wait until it holds the examples."""
        for number, line in enumerate(self.lines):
            # Methods and networks are made by functions, which cannot be sent: the key names them.
            line.send((workload.key, workload.sizes, clients[number::2]))
        for line in self.lines:
            line.recv()

    def go(self) -> int:
        for line in self.lines:
            line.send(None)
        return sum(line.recv() for line in self.lines)

    def close(self) -> None:
        for line in self.lines:
            line.close()
        for process in self.processes:
            process.join()


class InPair:
    """The loop in two processes."""

    def __init__(self, workload: Workload, pair: Pair) -> None:
        self.workload, self.pair, self.round = workload, pair, 0

    def turn(self) -> Turn:
        self.round += 1
        self.pair.ready(self.workload, self.workload.cohort_of(self.round))
        began = time.perf_counter()
        num_steps = self.pair.go()
        return Turn(time.perf_counter() - began, num_steps)

    def close(self) -> None:
        """The pair serves other workloads too; who made it closes it."""


def serve(line: Connection, others: Sequence[Connection]) -> None:
    """What each process of the pair does until its line is closed at the other end."""
    for other in others:
        other.close()
    torch.set_num_threads(1)
    loops: dict[object, Loop] = {}
    with suppress(EOFError):
        while True:
            key, sizes, clients = line.recv()
            name = (key, *sizes.values())
            if name not in loops:
                loops[name] = Loop(workloads.of_size(key, **sizes))
            batches = loops[name].examples(clients)
            line.send(len(batches))
            line.recv()
            line.send(loops[name].work(batches))


TWO_THREADS, ONE_THREAD, TWO_PROCESSES = "bare, 2 threads", "bare, 1 thread", "bare, 2 processes"


def settings(workload: Workload, pair: Pair) -> dict[str, Bare]:
    """The loop in each of its settings, by name."""
    return {
        TWO_THREADS: InProcess(workload, 2),
        ONE_THREAD: InProcess(workload, 1),
        TWO_PROCESSES: InPair(workload, pair),
    }
