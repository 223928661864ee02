"""Whose products of matrices are faster here: those of torch's BLAS, or those of oneDNN, which comes with torch too.

    python benchmarks/products.py [--json]

Single products, then whole visits of a client as the engine `cached` runs them; both ways in turns, on one thread, and
medians are told. Plures takes oneDNN's on processors of AMD with AVX-512 (`core/products.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial

import torch
from torch import Tensor

from plures.core import products
from plures.core.client import run_client
from plures.core.context import lone_facts, make_visit
from plures.core.goals import CLASSIFICATION, Goal, next_token
from plures.core.loop import start
from plures.core.method import Method
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.seeds import generator, global_draws
from plures.core.types import Batch
from plures.data.client import make_client
from plures.data.federation import Federation
from plures.engines.cached import cached_steps
from plures.engines.memory import keep_freed_memory
from plures.local import epochs, steps
from plures.methods import fedavg, pflego
from plures.models import leaf_cnn, mlp, transformer
from plures.papers.paces import machine
from plures.stores.memory import MemoryStore

TURNS = 11
SHAPES = ((64, 1024, 2048), (600, 784, 200), (120, 784, 200), (640, 64, 10_004), (1024, 1024, 1024))
"""(rows, inner, columns)"""
WORDS = 10_004

Work = Callable[[], object]


def images(count: int) -> Batch:
    draws = generator(0, "benchmark", count)
    return Batch(torch.rand(count, 1, 28, 28, generator=draws), torch.randint(10, (count,), generator=draws))


def texts(count: int) -> Batch:
    tokens = torch.randint(4, WORDS, (count, 21), generator=generator(0, "benchmark", "text"))
    return Batch(tokens[:, :-1], tokens[:, 1:])


def visit_of(method: Method, make: Callable[[], torch.nn.Module], data: Batch, goal: Goal = CLASSIFICATION) -> Work:
    """One client's whole local work."""
    client = make_client(data, None, data, "global")
    federation = Federation.from_function(1, lambda number: client, lambda number: data.num_examples, WORDS)
    with global_draws(0, "benchmark"):
        network = OneNetwork(module=make())
    program = Program(method, network, loss=goal.loss, seed=0, example=lambda: data.inputs[:1])
    visit = make_visit(program, federation, MemoryStore(), start(program), 0, 1, lone_facts(federation, 0))
    return partial(run_client, method, program.binding(0), visit, stepping=cached_steps)


def cases() -> dict[str, Work]:
    def multiplied(left: Tensor, right: Tensor) -> Work:
        return lambda: products.product(left, right)

    found = {
        f"{rows} x {inner} by {inner} x {columns}": multiplied(torch.rand(rows, inner), torch.rand(inner, columns))
        for rows, inner, columns in SHAPES
    }
    network = partial(mlp, shape=(1, 28, 28), classes=10)
    small = partial(transformer, width=64, depth=2, hidden=256)
    return found | {
        "MLP 784-200, 50 steps of 600": visit_of(
            fedavg(budget=steps(50, batch="full")), partial(network, hidden=(200,)), images(600)
        ),
        "PFLEGO, MLP 784-200, 600": visit_of(pflego(tau=50), partial(network, hidden=(200,)), images(600)),
        "LEAF-CNN, an epoch of 384, batch 64": visit_of(
            fedavg(budget=epochs(1, batch=64)), partial(leaf_cnn, shape=(1, 28, 28), classes=10), images(384)
        ),
        "transformer, next word, 64, batch 32": visit_of(
            fedavg(budget=epochs(1, batch=32)), small, texts(64), next_token()
        ),
    }


def measured() -> dict[str, tuple[float, float]]:
    """Milliseconds by BLAS and by oneDNN."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for name, work in cases().items():
        found[name] = ([], [])
        for turn in range(TURNS + 1):
            for is_faster, times in zip((False, True), found[name], strict=True):
                products.is_faster = lambda told=is_faster: told  # type: ignore[assignment]
                began = time.perf_counter()
                work()
                if turn:  # the first turn warms up
                    times.append(1000 * (time.perf_counter() - began))
    return {name: (statistics.median(blas), statistics.median(own)) for name, (blas, own) in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    taken = products.is_faster()
    found = measured()
    if wanted.json:
        print(json.dumps({"milliseconds": found, "onednn_is_taken": taken}, indent=2))
        return
    print(f"{machine()}, 1 thread, torch {torch.__version__}; Plures takes {'oneDNN' if taken else 'BLAS'} here\n")
    print(f"{'':<38}{'BLAS, ms':>10}{'oneDNN, ms':>12}{'ratio':>8}")
    for name, (blas, own) in found.items():
        print(f"{name:<38}{blas:>10.2f}{own:>12.2f}{blas / own:>8.2f}")
    print(f"\n{' '.join(['python', os.path.relpath(sys.argv[0]), *sys.argv[1:]])}, {date.today().isoformat()}")


if __name__ == "__main__":
    main()
