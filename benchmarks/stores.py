"""What keeping client state in a file costs: seconds of a round in the store, memory, and room on the disk.

    python -m benchmarks.stores [--only small large layouts] [--folder FOLDER] [--out FILE]

Small states: 1,000,000 clients with 2,000 floats each, 1,000 of them in a round. Large ones: 1,000 clients with 1.4 M
floats. A round gets the states of its cohort, stages new ones in blocks of 16 and commits them; then what is in force
is saved (every round or every tenth), and what only earlier saves than the one before need is deleted. Calls to the
store alone are timed. LMDB, where it is installed, does the same with the same bytes. Each line is a process of its
own, on a file that another has filled. Takes 25 GB of disk and half an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from benchmarks.reporting import RESULTS, occasion
from plures.core.types import Params
from plures.stores.blobs import as_blob, checksum
from plures.stores.disk import DiskStore
from plures.stores.state_file import Layout
from plures.stores.versions import ROUND_BITS, decoded, key

SHAPES = {"small": ((10, 199), (10,)), "large": ((1000, 1000), (400, 1000))}
BLOCK, FILL_BLOCK_BYTES = 16, 200 * 10**6
MOST_SECONDS, MOST_MEGABYTES = 2.0, 1024


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of a table."""

    store: str
    size: str
    clients: int
    cohort: int
    save_every: int = 1
    rounds: int = 10
    cold: bool = False
    """Before each round the system has nothing of the file in memory."""
    page_bytes: int | None = None
    journal: str = Layout().journal


def new_state(case: Case, client: int, round: int) -> Params:
    return {f"head.{place}": torch.full(shape, client + round / 100) for place, shape in enumerate(SHAPES[case.size])}


class LmdbStore:
    """Versions of states in LMDB, without a cache: what is staged is in the open transaction."""

    def __init__(self, path: Path) -> None:
        import lmdb

        self.env = lmdb.open(str(path), subdir=False, map_size=2**37, lock=False)
        self.open, self.round, self.written = self.env.begin(write=True), 0, dict[int, int]()
        self.round = int.from_bytes(self.open.get(b"round") or b"", "big")

    def latest(self, client: int, round: int) -> bytes | None:
        cursor, last = self.open.cursor(), key(client, round).to_bytes(8, "big")
        there = (cursor.set_range(last) and (cursor.key() == last or cursor.prev())) or cursor.last()
        id = cursor.key()
        return id if there and len(id) == 8 and int.from_bytes(id, "big") >> ROUND_BITS == client else None

    def get(self, client: int) -> Params | None:
        id = self.latest(client, self.round)
        if id is None:
            return None
        number, content = int.from_bytes(id, "big"), self.open.get(id)
        return decoded(number, number, int.from_bytes(content[:4], "big"), content[4:])

    def stage(self, round: int, states: Mapping[int, Params]) -> None:
        for client, state in states.items():
            id, blob = key(client, round), as_blob(state)
            self.open.put(id.to_bytes(8, "big"), checksum(id, blob).to_bytes(4, "big") + blob)
            self.written[client] = round

    def commit(self, round: int) -> None:
        self.round = round

    def save(self, round: int) -> None:
        self.open.put(b"round", round.to_bytes(8, "big"))
        self.open.commit()
        self.open = self.env.begin(write=True)

    def forget_before(self, round: int) -> None:
        """In the transaction of the next save."""
        for client in sorted(self.written):
            while (newest := self.latest(client, round)) and (older := self.before(newest, client)):
                self.open.delete(older)
        self.written = {client: at for client, at in self.written.items() if at > round}

    def before(self, id: bytes, client: int) -> bytes | None:
        cursor = self.open.cursor()
        there = cursor.set_key(id) and cursor.prev()
        return cursor.key() if there and int.from_bytes(cursor.key(), "big") >> ROUND_BITS == client else None

    def close(self) -> None:
        self.open.abort()
        self.env.close()


def opened(case: Case, path: Path) -> Any:
    if case.store == "lmdb":
        return LmdbStore(path)
    return DiskStore(path, layout=Layout(page_bytes=case.page_bytes, journal=case.journal))


def fill(case: Case, path: Path) -> None:
    """Everybody has a state."""
    store, num_bytes = opened(case, path), sum(value.nbytes for value in new_state(case, 0, 0).values())
    block = max(1, FILL_BLOCK_BYTES // num_bytes)
    for first in range(0, case.clients, block):
        store.stage(store.round + 1, {c: new_state(case, c, 0) for c in range(first, min(first + block, case.clients))})
        store.commit(store.round + 1)
        store.save(store.round)
    store.forget_before(store.round)
    store.close()


def measured(case: Case, path: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    held = {name: status(name) for name in ("VmRSS", "RssAnon")}
    store, seconds, most = opened(case, path), list[float](), 0.0
    saved, work, written = store.round, time.process_time(), written_megabytes()
    for _ in range(case.rounds):
        if case.cold:
            store = cold(case, store, path)
        spent = sum(play_round(case, store))
        if store.round % case.save_every == 0:
            spent += timed(store.save, store.round)
            spent += timed(store.forget_before, saved)
            saved = store.round
        seconds.append(spent)
        most = max(most, status("RssAnon"))
    spent = {"work": time.process_time() - work, "written": written_megabytes() - written}
    store.close()
    memory = {"peak": status("VmHWM") - held["VmRSS"], "own": most - held["RssAnon"]}
    return {"seconds": seconds, **spent, **memory, "file": path.stat().st_size / 1e9, "load": os.getloadavg()[0]}


def play_round(case: Case, store: Any) -> Iterator[float]:
    """Seconds of each call."""
    round = store.round + 1
    cohort = sorted(random.Random(round).sample(range(case.clients), case.cohort))
    for first in range(0, case.cohort, BLOCK):
        clients = cohort[first : first + BLOCK]
        yield timed(lambda clients: [store.get(client) for client in clients], clients)
        states = {client: new_state(case, client, round) for client in clients}
        yield timed(store.stage, round, states)
    yield timed(store.commit, round)


def timed(work: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def status(name: str) -> float:
    """A figure of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def written_megabytes() -> float:
    """What this process has had written to the disk."""
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1e6 for line in lines if line.startswith("write_bytes:"))


def cold(case: Case, store: Any, path: Path) -> Any:
    """The store, when the system has nothing of its file in memory; of a file that is mapped it can forget nothing."""
    if case.store == "lmdb":
        store.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return opened(case, path) if case.store == "lmdb" else store


def in_process(task: str, case: Case, path: Path) -> Any:
    command = [sys.executable, "-m", "benchmarks.stores", "--task", task, json.dumps(asdict(case)), str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout or "null")


def tables() -> dict[str, tuple[str, list[list[Case]]]]:
    """Of each table the title, and its cases in groups that share a file."""
    stores = ["sqlite"] + ["lmdb"] * has_lmdb()
    small = {"size": "small", "clients": 1_000_000, "cohort": 1000}
    large = {"size": "large", "clients": 1000}
    layouts = [{"page_bytes": 2**power} for power in range(12, 17)]
    layouts += [{"page_bytes": 4096, "journal": journal} for journal in ("truncate", "persist", "wal")]
    sizes = [{"size": "small", "clients": 100_000, "cohort": 1000}, {"size": "large", "clients": 200, "cohort": 20}]
    every = [{"save_every": 1, "rounds": 10}, {"save_every": 10, "rounds": 20}]
    return {
        "layouts": (
            "Layouts of SQLite: 100,000 clients x 2,000 floats (cohort 1,000), 200 clients x 1.4 M floats (cohort 20)",
            [[Case(store="sqlite", **size, **layout)] for size in sizes for layout in layouts],
        ),
        "small": (
            "1,000,000 clients x 2,000 floats, cohort 1,000",
            [[Case(store=s, **small, **how) for how in [*every, {"cold": True, "rounds": 5}]] for s in stores],
        ),
        "large": (
            "1,000 clients x 1.4 M floats",
            [[Case(store=s, **large, **how) for how in cohorts_of_large()] for s in stores],
        ),
    }


def cohorts_of_large() -> list[dict[str, int]]:
    often = [{"cohort": cohort, "rounds": 5} for cohort in (10, 50, 100)]
    seldom = [{"cohort": cohort, "save_every": 10, "rounds": 10} for cohort in (10, 50, 100)]
    return [*often, *seldom, {"cohort": 1000, "rounds": 3}]


def has_lmdb() -> bool:
    try:
        import lmdb  # noqa: F401
    except ImportError:
        return False
    return True


def line(case: Case, found: Mapping[str, Any]) -> str:
    """Median and most of the rounds, and their mean, since a save may serve many."""
    seconds, rounds = found["seconds"], case.rounds
    page = f", {case.page_bytes // 1024} KiB, {case.journal}" if case.page_bytes else ""
    what, every = f"{case.store}, {case.size}{page}", "1 cold" if case.cold else case.save_every
    name = f"{what:<30}{case.cohort:>7,}{every:>7}{rounds:>7}"
    times = f"{statistics.median(seconds):>8.3f}{statistics.mean(seconds):>8.3f}{max(seconds):>8.3f}"
    spent = f"{found['work'] / rounds:>8.3f}{found['written'] / rounds:>9.1f}"
    held = f"{found['peak']:>8.0f}{found['own']:>8.0f}{found['file']:>8.2f}{found['load']:>6.1f}"
    reached = max(seconds) < MOST_SECONDS and found["peak"] < MOST_MEGABYTES
    return name + times + spent + held + ("" if reached else "  over")


HEADS = {"median": 8, "mean": 8, "most": 8, "work": 8, "MB": 9, "peak": 8, "own": 8, "GB": 8, "load": 6}


def told(title: str, groups: list[list[Case]], folder: Path) -> Iterator[str]:
    above = f"{'':<37}{'save':>7}{'':>7}{'seconds a round':>24}{'':>8}{'written':>9}{'memory, MB':>16}{'file':>8}"
    names = "".join(f"{name:>{width}}" for name, width in HEADS.items())
    yield from ("", title, above, f"{'':<30}{'cohort':>7}{'every':>7}{'rounds':>7}{names}")
    for group in groups:
        path = folder / "personal.db"
        in_process("fill", group[0], path)
        for case in group:
            yield line(case, in_process("measure", case, path))
        for file in folder.iterdir():
            file.unlink()


def main() -> int:
    """The status to leave with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=("layouts", "small", "large"), default=("layouts", "small", "large")
    )
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a new one in the usual place if not given")
    parser.add_argument("--out", type=Path, default=RESULTS / "stores.txt")
    parser.add_argument("--task", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.task:
        task, case, path = asked.task
        print(json.dumps((fill if task == "fill" else measured)(Case(**json.loads(case)), Path(path))))
        return 0
    facts = occasion()
    lines = [
        " ".join(["python -m benchmarks.stores", *sys.argv[1:]]),
        f"{facts['cpu']}, {facts['cores']} cores, torch {facts['torch']}, {facts['date']}, commit {facts['commit']}",
        "seconds are of calls to the store, work is the processor's in a round; load is that after the rounds",
        "peak: most memory above the start, with pages of the file that are mapped; own: without them, after a round",
        f"over: a round took {MOST_SECONDS:g} s or more, or memory grew by {MOST_MEGABYTES} MB or more.",
    ]
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder, asked.out.open("w", encoding="utf-8") as file:
        for one in chain(lines, *(told(*tables()[name], Path(folder)) for name in asked.only)):
            print(one, flush=True)
            print(one, file=file, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
