"""What gates cost and save: steps of LEAF-CNN on 28x28 images in batches of 128, beside the plain step.

    python benchmarks/gates.py [--json]

All is measured in one run, in turns and on one thread, and medians are told. Targets: a step with a gate for each
example takes at most 4 times that with one set of gates for the batch; with blocks of rows, the smaller the density,
the shorter the step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import torch
from torch.nn import functional as F

from plures.core.context import Server, lone_facts, make_visit
from plures.core.loop import start
from plures.core.method import Method
from plures.core.networks import OneNetwork
from plures.core.problem import Problem, descend
from plures.core.program import Program
from plures.core.seeds import generator, global_draws
from plures.core.types import Batch
from plures.data.client import make_client
from plures.data.federation import Federation
from plures.local import steps
from plures.methods import fedavg, pfedgate
from plures.models import leaf_cnn
from plures.stores.memory import MemoryStore

BATCH, CLASSES, TURNS = 128, 62, 15
ONE_STEP = steps(1)
DENSITIES = (1.0, 0.5, 0.3)
CASES: dict[str, Callable[[], Method]] = {
    "plain (FedAvg)": lambda: fedavg(budget=ONE_STEP),
    "gates by batch, s = 0.5": lambda: pfedgate(budget=ONE_STEP, density=0.5),
    "gates by sample, s = 0.5": lambda: pfedgate(budget=ONE_STEP, density=0.5, level="sample"),
}


def rows(rule: str, density: float) -> Callable[[], Method]:
    """Blocks of rows, the dropped of which are skipped."""
    options: dict[str, Any] = {"cut": "rows", "splits": 10, "least": 0.1, "straight_through": rule}
    return lambda: pfedgate(budget=ONE_STEP, density=density, **options)


CASES |= {f"rows, {rule}, s = {s:g}": rows(rule, s) for rule in ("paper", "authors") for s in DENSITIES}


def federation() -> Federation:
    draws = generator(0, "benchmark")
    batch = Batch(torch.rand(BATCH, 1, 28, 28, generator=draws), torch.randint(CLASSES, (BATCH,), generator=draws))
    client = make_client(batch, None, batch, "global")
    return Federation.from_function(1, lambda number: client, lambda number: BATCH, CLASSES)


def step_of(method: Method, data: Federation) -> Callable[[], None]:
    """One whole step: gates, forward, backward, update."""
    with global_draws(0, "benchmark"):
        module = leaf_cnn(shape=(1, 28, 28), classes=CLASSES)
    program = Program(
        method, OneNetwork(module=module), loss=F.cross_entropy, seed=0, example=lambda: data.client(0).train.inputs[:1]
    )
    server: Server = start(program)
    visit = make_visit(program, data, MemoryStore(), server, 0, 1, lone_facts(data, 0))
    binding, phase = program.binding(0), method.local[0]
    params = {**binding.values, **visit.received, **visit.state}
    binding.task.train(True)

    def step() -> None:
        problem = Problem(phase=phase, visit=visit, binding=binding, params=params)
        (phase.solver or descend)(problem)

    return step


def measured() -> dict[str, float]:
    data = federation()
    cases = {name: step_of(make(), data) for name, make in CASES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(TURNS + 1):
        for name, step in cases.items():
            began = time.perf_counter()
            step()
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - began)
    return {name: 1000 * statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    found = measured()
    plain, batch = found["plain (FedAvg)"], found["gates by batch, s = 0.5"]
    ratio = found["gates by sample, s = 0.5"] / batch
    if wanted.json:
        print(json.dumps({"milliseconds": found, "sample_over_batch": ratio}, indent=2))
        return
    print(
        f"{os.cpu_count()} cores, 1 thread, torch {torch.__version__}, {platform.machine()}; LEAF-CNN, batch {BATCH}\n"
    )
    print(f"{'step':<28}{'ms':>9}{'of the plain step':>20}")
    for name, milliseconds in found.items():
        print(f"{name:<28}{milliseconds:>9.1f}{milliseconds / plain:>20.2f}")
    print(f"\nBy sample over by batch: {ratio:.2f} (target: at most 4)")
    print(f"{' '.join(['python', *sys.argv])}, {date.today().isoformat()}")


if __name__ == "__main__":
    main()
