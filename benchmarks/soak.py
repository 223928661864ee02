"""Two thousand rounds on digits with faults of all kinds: whether memory or open files grow, and whether all is told.

    python -m benchmarks.soak [--rounds 2000] [--rate 0.05] [--method fedper] [--engine workers] [--json]

A visit in twenty has one of eleven faults. Every hundred rounds resident memory (that of worker processes included) and
open files are noted; every loss that the records tell is compared with the faults that were drawn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.reporting import RESULTS, occasion
from benchmarks.scale import resident_megabytes
from plures import make_experiment, run_experiment
from plures.participation import Faults
from plures.recipes.watching import Silence
from plures.report import records

EVERY, WARM_UP = 100, 500
DEADLINE, DELAY = 5.0, 10.0
MOST_GROWTH = 10.0
"""Megabytes after the warm-up that are taken for noise."""
KINDS = {
    "absent": "absent",
    "gone": "gone",
    "nan": "diverged",
    "wrong_shape": "misfit",
    "wrong_name": "misfit",
    "wrong_dtype": "misfit",
    "huge": "too_large",
    "nothing": "nothing",
    "failing": "failed",
}
"""What each fault is told as; a killed worker's client is done again, and who is slow may still be in time."""


class Gauge(Silence):
    """Notes memory and open files as the run goes."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float, int, int]] = []

    def round_done(self, report: Any, metrics: Any) -> None:
        if report.round % EVERY == 0:
            files = len(os.listdir("/proc/self/fd"))
            children = len(multiprocessing.active_children())
            self.rows.append((report.round, resident_megabytes(), files, children))


def experiment(asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "method": asked.method,
        "rounds": asked.rounds,
        "cohort": 10,
        "engine": asked.engine,
        "data": {"source": "digits", "clients": 20},
        "evaluation": {"every": 50},
        "faults": {"rate": asked.rate, "delay": DELAY},
        "tolerate": {"deadline": DEADLINE, "over_select": 1.2, "least_cohort": 1},
    }


def unaccounted(folder: Path, asked: argparse.Namespace) -> tuple[Counter[str], list[str]]:
    """Losses by kind, and visits whose fault and record do not agree."""
    faults, found, wrong = Faults(rate=asked.rate, delay=DELAY), Counter[str](), list[str]()
    for line in records.read_rounds(folder):
        lost = {one["client"]: one["kind"] for one in line.get("lost", [])}
        found.update(lost.values())
        for client in line["cohort"]:
            fault, kind = faults.fault_of(0, line["round"], client), lost.get(client)
            late = fault == "slow" and faults.seconds(0, line["round"], client) > DEADLINE
            wanted = "late" if late else KINDS.get(fault or "")
            if kind != wanted and kind != "surplus":
                wrong.append(f"round {line['round']}, client {client}: {fault} is told as {kind}")
    return found, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--method", default="fedper")
    parser.add_argument("--engine", default="workers")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    gauge, began = Gauge(), time.perf_counter()
    before = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory() as place:
        result = run_experiment(make_experiment(experiment(asked)), out=Path(place) / "run", watcher=gauge)
        found, wrong = unaccounted(Path(place) / "run", asked)
    told = {
        **occasion(),
        "method": asked.method,
        "engine": asked.engine,
        "rounds": asked.rounds,
        "rate": asked.rate,
        "seconds": round(time.perf_counter() - began, 1),
        "status": result.status,
        "accuracy": result.metrics[f"personal/test/{result.metric}"].weighted,
        "lost": dict(found),
        "unaccounted": wrong,
        "gauge": gauge.rows,
        "files_before": before,
        "files_after": len(os.listdir("/proc/self/fd")),
        "children_after": len(multiprocessing.active_children()),
    }
    lines = shown(told)
    print(json.dumps(told) if asked.json else "\n".join(lines))
    with (RESULTS / "soak.txt").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n\n")


def shown(told: dict[str, Any]) -> list[str]:
    rows = told["gauge"]
    settled = [row for row in rows if row[0] >= WARM_UP] or rows
    growth = settled[-1][1] - settled[0][1]
    lines = [
        f"python -m benchmarks.soak --rounds {told['rounds']} --rate {told['rate']} --method {told['method']} "
        f"--engine {told['engine']}",
        f"{told['date']}, commit {told['commit']}: {told['status']} in {told['seconds']} s, "
        f"personal accuracy {told['accuracy']:.1%}",
        f"lost: {', '.join(f'{count} {kind}' for kind, count in sorted(told['lost'].items()))}",
        f"visits whose fault and record disagree: {len(told['unaccounted'])}",
        "round     MB   files   workers",
        *(f"{row[0]:5d} {row[1]:6.1f} {row[2]:7d} {row[3]:9d}" for row in rows[:: max(1, len(rows) // 10)]),
        f"growth from round {settled[0][0]} to {settled[-1][0]}: {growth:+.1f} MB "
        f"({'none' if growth <= MOST_GROWTH else 'MISSED'}: at most {MOST_GROWTH:g})",
        f"files before {told['files_before']}, after {told['files_after']}; workers after {told['children_after']}",
    ]
    return lines + told["unaccounted"][:20]


if __name__ == "__main__":
    main()
