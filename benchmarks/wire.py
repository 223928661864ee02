"""What the wire costs beside the training of one client: LeNet-5 with 500 examples, 5 epochs in batches of 128.

    python benchmarks/wire.py [--json]

All is measured in one run, in turns and on one thread, and medians are told. Target: to measure what one client
downloads and uploads, as a simulation does, takes less than 5 % of the client's training. If that is missed, the
command fails with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial

import torch
from torch.nn import functional as F

from plures.core.client import Result, run_client
from plures.core.loop import train
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.seeds import generator, global_draws
from plures.core.types import Batch
from plures.core.visit import Visit
from plures.core.wire import Message, Parcel
from plures.data.client import make_client
from plures.data.federation import Federation
from plures.engines.sequential import Sequential
from plures.local import epochs
from plures.methods import fedavg
from plures.models import lenet5
from plures.participation import all_clients
from plures.stores.memory import MemoryStore
from plures.wire import Codec

TARGET_PERCENT = 5.0
EXAMPLES, CLASSES = 500, 26
DENSITY = 0.5
TURNS = 5
"""Of training; each has `REPEATS` measurements of every wire."""
REPEATS = 5


class Watched(Sequential):
    """The plain engine, with a clock at each client's work; keeps what the last one received and sent."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.down = self.up = Message(Parcel({}))

    def run(self, program: Program, visits: Iterable[Visit]) -> Iterator[Result]:
        for visit in visits:
            began = time.perf_counter()
            result = run_client(program.method, program.binding(visit.client), visit)
            self.seconds.append(time.perf_counter() - began)
            self.down = Message(Parcel(dict(visit.received)))
            self.up = Message(Parcel(*result.upload))
            yield result


def one_client() -> Federation:
    draws = generator(0, "benchmark")
    inputs = torch.randn(EXAMPLES, 1, 28, 28, generator=draws)
    batch = Batch(inputs, torch.randint(CLASSES, (EXAMPLES,), generator=draws))
    client = make_client(batch, None, Batch(batch.inputs[:0], batch.targets[:0]), "global")
    return Federation.from_function(1, lambda number: client, lambda number: EXAMPLES, CLASSES)


def fedspa_client() -> Program:
    with global_draws(0, "benchmark network"):
        network = lenet5(classes=CLASSES)
    method = fedavg(lr=0.1, budget=epochs(5, batch=128))
    return Program(method, OneNetwork(module=network), loss=F.cross_entropy, seed=0)


def masked(message: Message) -> Message:
    """Half of the coordinates, drawn at random, as a sparse model has them."""
    draws = generator(0, "benchmark masks")
    values = message.parcel.values
    held = {name: torch.rand(value.shape, generator=draws) < DENSITY for name, value in values.items()}
    return Message(Parcel({name: torch.where(held[name], value, 0.0) for name, value in values.items()}, held))


def visit_cost(wire: Codec, down: Message, up: Message) -> tuple[int, int]:
    """Carry what one client receives and sends; the bytes of both."""
    draws = partial(generator, 0, "benchmark wire")
    received, sent = (wire.carry(message, upward=message is up, draws=draws)[1] for message in (down, up))
    return received.num_bytes, sent.num_bytes


def wires(engine: Watched) -> dict[str, Callable[[], tuple[int, int]]]:
    """What is timed, by name; the first is what a simulation does."""
    dense, sparse = (engine.down, engine.up), (masked(engine.down), masked(engine.up))
    int8 = Codec(upload="int8", download="int8")
    return {
        "exact, measured": partial(visit_cost, Codec(), *dense),
        "exact, encoded and decoded": partial(visit_cost, Codec(through_bytes=True), *dense),
        "int8, encoded and decoded": partial(visit_cost, int8, *dense),
        "half held, exact, measured": partial(visit_cost, Codec(), *sparse),
        "half held, exact, encoded and decoded": partial(visit_cost, Codec(through_bytes=True), *sparse),
        "half held, int8, encoded and decoded": partial(visit_cost, int8, *sparse),
    }


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure() -> dict[str, object]:
    program, federation, engine = fedspa_client(), one_client(), Watched()
    store, sampler = MemoryStore(), all_clients()
    seconds: dict[str, list[float]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for _ in train(program, federation, rounds=TURNS + 1, sampler=sampler, engine=engine, store=store):
        for name, work in wires(engine).items():
            sizes[name] = work()  # the first of each turn only warms up
            seconds.setdefault(name, []).extend(seconds_of(work) for _ in range(REPEATS))
    client = statistics.median(engine.seconds[1:])
    rows = [row(name, sizes[name], statistics.median(times[REPEATS:]), client) for name, times in seconds.items()]
    result = {"machine": machine(), "target_percent": TARGET_PERCENT, "client_seconds": client, "wires": rows}
    return result | occasion()


def row(name: str, sizes: tuple[int, int], seconds: float, client: float) -> dict[str, object]:
    down, up = sizes
    share = {"seconds": seconds, "percent": 100 * seconds / client}
    return {"wire": name, "bytes_down": down, "bytes_up": up, **share}


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def occasion() -> dict[str, object]:
    return {"command": " ".join(["python", *sys.argv]), "date": date.today().isoformat()}


def show(result: dict) -> None:
    facts = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    print(f"{facts}\none client's training: {result['client_seconds'] * 1000:.0f} ms\n")
    print(f"{'wire, down and up':<40} {'bytes down':>11} {'bytes up':>11} {'ms':>8} {'of training':>12}")
    for one in result["wires"]:
        sizes = f"{one['bytes_down']:>11,} {one['bytes_up']:>11,}"
        print(f"{one['wire']:<40} {sizes} {one['seconds'] * 1000:>8.2f} {one['percent']:>10.2f} %")
    reached = "MISSED" if is_missed(result) else "reached"
    print(f"\ntarget: the first row below {result['target_percent']:g} %: {reached}")
    torch_version, processor = result["machine"]["torch"], result["machine"]["processor"]
    print(f"{result['command']}, torch {torch_version}, {processor}, {result['date']}")


def is_missed(result: dict) -> bool:
    return not result["wires"][0]["percent"] < result["target_percent"]


def main() -> int:
    """The status to leave with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print figures for programs, not a table")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    result = measure()
    if asked.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    if is_missed(result):
        first = result["wires"][0]
        told = f"'{first['wire']}' takes {first['percent']:.2f} % of the training, not less than"
        print(f"Target missed: {told} {result['target_percent']:g} %.", file=sys.stderr)
    return int(is_missed(result))


if __name__ == "__main__":
    sys.exit(main())
