"""Whether a round knows how many clients there are: 1,000 against 100,000 of them, in memory and in time.

    python -m benchmarks.scale [--repeats 3] [--rounds 40] [--json]

Synthetic clients with 50 examples each, drawn when they are asked for; 100 of them in a round. Every measurement is a
process of its own, the two sizes take turns, and medians are told with the least and the most. Targets: resident
memory, that of worker processes included, grows by at most 50 MB, and a round takes at most a tenth longer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.reporting import occasion
from plures.core.loop import train
from plures.data.sources.synthetic import synthetic_population
from plures.methods import find_method
from plures.models import as_networks, mlp
from plures.participation import uniform
from plures.recipes.engines import find_engine
from plures.recipes.running import make_program
from plures.stores.memory import MemoryStore

SIZES = (1_000, 100_000)
EXAMPLES, COHORT, WARM_UP = 50, 100, 5
CASES = (("fedavg", "cached"), ("fedper", "cached"), ("fedavg", "workers"))
MOST_MEGABYTES, MOST_TIMES = 50.0, 1.1


def resident_megabytes() -> float:
    """Of this process and its children, what is in memory and theirs alone, or shared in equal parts."""
    whose = ["self", *(str(child.pid) for child in multiprocessing.active_children())]
    texts = [Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8") for process in whose]
    lines = [line.split() for text in texts for line in text.splitlines() if line.startswith("Pss:")]
    return sum(int(words[1]) for words in lines) / 1024


def measured(method: str, engine_name: str, num_clients: int, rounds: int) -> dict[str, float]:
    """Seconds of a round, and the most memory that was seen after one."""
    torch.set_num_threads(1)
    federation = synthetic_population(num_clients, EXAMPLES, cache_bytes=0)
    shape, classes = federation.input_shape, federation.classes
    networks = as_networks(lambda: mlp(shape=shape, hidden=(100,), classes=classes))
    program, sampler = make_program(find_method(method).make(), networks, federation, seed=0), uniform(COHORT)
    engine = find_engine(engine_name, program, federation, sampler).engine
    seconds, most = list[float](), 0.0
    began = time.perf_counter()
    for _ in train(program, federation, rounds=rounds, sampler=sampler, engine=engine, store=MemoryStore()):
        seconds.append(time.perf_counter() - began)
        most = max(most, resident_megabytes())
        began = time.perf_counter()
    return {"seconds": statistics.median(seconds[WARM_UP:]), "megabytes": most}


def in_process(*case: object) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", *map(str, case)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compared(method: str, engine: str, repeats: int, rounds: int) -> dict[str, Any]:
    """Both sizes in turns; differences and ratios are taken within a repeat."""
    turns = [[in_process(method, engine, size, rounds) for size in SIZES] for _ in range(repeats)]
    grown = [large["megabytes"] - small["megabytes"] for small, large in turns]
    times = [large["seconds"] / small["seconds"] for small, large in turns]
    reached = statistics.median(grown) <= MOST_MEGABYTES and statistics.median(times) <= MOST_TIMES
    return {"method": method, "engine": engine, "turns": turns, "grown": grown, "times": times, "reached": reached}


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def show(result: dict[str, Any]) -> None:
    print(f"{result['command']}\n{result['cpu']}, {result['cores']} cores, torch {result['torch']}, {result['date']},")
    print(f"commit {result['commit']}, {result['repeats']} repeats of {result['rounds']} rounds\n")
    print(f"{'':<18}{'seconds a round':>22}{'memory grows by MB':>24}{'time, times':>16}")
    for case in result["cases"]:
        small, large = (statistics.median(turn[place]["seconds"] for turn in case["turns"]) for place in (0, 1))
        name = f"{case['method']}, {case['engine']}"
        both = f"{small:.3f} to {large:.3f}"
        grown, times = spread(case["grown"], ".1f"), spread(case["times"], ".2f")
        print(f"{name:<18}{both:>18}{grown:>26}{times:>18}")
        print(f"{'':<18}{'reached' if case['reached'] else 'MISSED'}")


def main() -> int:
    """The status to leave with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print figures for programs, not a table")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        method, engine, num_clients, rounds = asked.one
        print(json.dumps(measured(method, engine, int(num_clients), int(rounds))))
        return 0
    cases = [compared(*case, asked.repeats, asked.rounds) for case in CASES]
    facts = occasion() | {"command": " ".join(["python -m benchmarks.scale", *sys.argv[1:]])}
    result = {**facts, "repeats": asked.repeats, "rounds": asked.rounds, "cases": cases}
    if asked.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    return int(not all(case["reached"] for case in cases))


if __name__ == "__main__":
    sys.exit(main())
