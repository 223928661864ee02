"""What robust sums hold: accuracy on digits while some clients always send hostile uploads.

    python -m benchmarks.attacks [--seeds 3] [--rounds 20] [--json]

Twenty clients, all in every round, either with examples of all digits or with two digits each; a tenth or a fifth of
them, the same in all rounds, send their upload times -1 (flipped) or times -10 (scaled). Accuracies are those on test
examples of the 16 clients that are hostile in no column, in per cent: of the shared model of FedAvg, of clients' own
models of FedPer; mean and standard deviation over seeds, which choose data, network, batches and attackers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.reporting import occasion
from plures.core.client import Result
from plures.core.context import Conduct, Server
from plures.core.errors import Diverged
from plures.core.loop import start, train
from plures.core.method import Method
from plures.core.program import Program
from plures.core.seeds import generator
from plures.core.sums import Summing, empty_sum
from plures.core.visit import Upload, Visit
from plures.data import Federation, by_class, digits, iid, partition
from plures.engines.vectorised import Vectorised
from plures.evaluate.protocols import Evaluator
from plures.evaluate.scores import ModelKind
from plures.local import epochs
from plures.methods import fedavg, fedper
from plures.models import as_networks, mlp
from plures.participation import all_clients
from plures.recipes.running import make_program
from plures.server import clipped, krum, median, trimmed_mean
from plures.stores.memory import MemoryStore

CLIENTS = 20
ROUNDS = 20
RULES: dict[str, Callable[[], Summing]] = {
    "plain mean": empty_sum,
    "clipped, median norm": clipped(),
    "median": median(),
    "trimmed mean, 0.1": trimmed_mean(0.1),
    "trimmed mean, 0.2": trimmed_mean(0.2),
    "Krum, 0.2": krum(0.2),
    "multi-Krum, 0.2 of 10": krum(0.2, keep=10),
}
METHODS: dict[str, Callable[[], Method]] = {
    "fedavg": lambda: fedavg(lr=0.1, budget=epochs(2, batch=10)),
    "fedper": lambda: fedper(lr=0.1, budget=epochs(2, batch=10)),
}
JUDGED: dict[str, ModelKind] = {"fedavg": "global", "fedper": "personal"}
SPLITS: dict[str, Callable[[int], Federation]] = {
    "all digits": lambda seed: partition(digits(), iid(CLIENTS), seed=seed),
    "two digits a client": lambda seed: partition(digits(), by_class(CLIENTS, 2), seed=seed),
}
ATTACKS: dict[str, tuple[float, float]] = {
    "nobody": (0.0, 1.0),
    "10 % flip": (0.1, -1.0),
    "20 % flip": (0.2, -1.0),
    "10 % scale": (0.1, -10.0),
    "20 % scale": (0.2, -10.0),
}
"""Share of hostile clients, and what they multiply uploads by."""
MOST = 0.2


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """Faults of a run: some clients multiply what they upload, in every round."""

    clients: frozenset[int]
    factor: float

    def is_absent(self, seed: int, round: int, client: int) -> bool:
        return False

    def seconds(self, seed: int, round: int, client: int) -> float:
        return 0.0

    def kills_worker(self, seed: int, round: int, client: int) -> bool:
        return False

    def after(self, visit: Visit, result: Result) -> Result:
        if visit.client not in self.clients:
            return result
        values = {name: self.factor * value for name, value in result.upload.values.items()}
        return result._replace(upload=result.upload._replace(values=values))


def hostile_clients(share: float, seed: int) -> frozenset[int]:
    """Drawn for good; a tenth is part of a fifth."""
    order = torch.randperm(CLIENTS, generator=generator(seed, "hostile")).tolist()
    return frozenset(order[: round(share * CLIENTS)])


def accuracy(method: str, split: str, attack: str, new_sum: Callable[[], Summing], seed: int, rounds: int) -> float:
    """Of the clients that are never hostile, after the last round; or before the one in which training broke down."""
    federation = SPLITS[split](seed)
    networks = as_networks(lambda: mlp(shape=federation.input_shape, classes=federation.classes))
    program, store = make_program(METHODS[method](), networks, federation, seed=seed), MemoryStore()
    share, factor = ATTACKS[attack]
    conduct = Conduct(new_sum=new_sum, faults=Hostile(clients=hostile_clients(share, seed), factor=factor))
    server = last_server(program, federation, store, conduct, rounds)
    (found,) = Evaluator(program, federation, store, federation.goal).evaluate(server, [JUDGED[method]], ["test"])
    honest = [score for score in found.scores if score.client not in hostile_clients(MOST, seed)]
    return sum(score.accuracy * score.examples for score in honest) / sum(score.examples for score in honest)


def last_server(program: Program, federation: Federation, store: MemoryStore, conduct: Conduct, rounds: int) -> Server:
    server = start(program)
    try:
        for done in train(
            program,
            federation,
            rounds=rounds,
            sampler=all_clients(),
            engine=Vectorised(),
            store=store,
            conduct=conduct,
        ):
            server = done.server
    except Diverged:
        pass  # numbers that a network cannot bear any more; what there is by then is no better than a guess
    return server


def measured(seeds: int, rounds: int) -> Iterator[dict[str, Any]]:
    for method in METHODS:
        for split in SPLITS:
            for rule, new_sum in RULES.items():
                found = {
                    attack: [accuracy(method, split, attack, new_sum, seed, rounds) for seed in range(seeds)]
                    for attack in ATTACKS
                }
                yield {"method": method, "split": split, "rule": rule, "accuracy": found}


# What they cost

UPLOADS, VALUES = 100, 439_096


def seconds_of_rules() -> dict[str, float]:
    """To sum a cohort's uploads of one tensor, as large as LeNet-5."""
    draws = generator(0, "benchmark uploads")
    uploads = [Upload({"w": torch.randn(VALUES, generator=draws)}) for _ in range(UPLOADS)]
    return {rule: seconds_of(new_sum, uploads) for rule, new_sum in RULES.items()}


def seconds_of(new_sum: Callable[[], Summing], uploads: Sequence[Upload]) -> float:
    began, total = time.perf_counter(), new_sum()
    for upload in uploads:
        total.add(upload, share=1.0, divisor=1.0, per_coordinate=False)
    total.direction(divided=True)
    return time.perf_counter() - began


# The table


def show(result: Mapping[str, Any]) -> None:
    print(f"{result['command']}\n{result['cpu']}, {result['cores']} cores, torch {result['torch']}, {result['date']},")
    print(f"commit {result['commit']}, {result['seeds']} seeds, {result['rounds']} rounds")
    heading = ""
    for row in result["rows"]:
        above = f"{row['method']}, {row['split']}"
        if above != heading:
            heading = above
            print(f"\n{heading:<26}" + "".join(f"{attack:>13}" for attack in ATTACKS))
        print(f"{row['rule']:<26}" + "".join(f"{spread(values):>13}" for values in row["accuracy"].values()))
    print(f"\nseconds to sum {UPLOADS} uploads of {VALUES:,} values, on one thread")
    for rule, seconds in result["seconds"].items():
        print(f"{rule:<26}{seconds:>13.2f}")


def spread(values: Sequence[float]) -> str:
    spreading = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * spreading:.1f}"


def main() -> int:
    """The status to leave with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print figures for programs, not a table")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    facts = occasion() | {"command": " ".join(["python -m benchmarks.attacks", *sys.argv[1:]])}
    rows = list(measured(asked.seeds, asked.rounds))
    settings = {"seeds": asked.seeds, "rounds": asked.rounds}
    result = {**facts, **settings, "rows": rows, "seconds": seconds_of_rules()}
    if asked.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
