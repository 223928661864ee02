"""Tables of 80 columns, and the two files of a result."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks.arithmetic import Limit
from benchmarks.bare import TWO_THREADS
from benchmarks.measuring import Measured, Name, Spread, spread, times_faster
from benchmarks.targets import BARE, Verdict
from benchmarks.workloads import Turn, Workload

RESULTS = Path(__file__).parent / "results"
WIDTH = 80
QUIET = 0.3
"""Most processes that others may have at work."""


def occasion() -> dict[str, Any]:
    """Command, machine, versions and commit; no names of hosts or users."""
    return {
        "command": " ".join(["python -m benchmarks.run", *sys.argv[1:]]),
        "date": date.today().isoformat(),
        "commit": commit(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": load(),
    }


def load() -> float | None:
    """Processes that others had at work in the last minute, where the system tells."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the checkout, and whether files differ from it."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=here, capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def table(
    workload: Workload, measured: Measured, peers: Sequence[str], limit: Limit, reasons: Mapping[Name, str]
) -> list[str]:
    """One line for each contender; `times` is how many times as fast as the bare loop with two threads."""
    lines = ["", f"{workload.key}  {workload.title}", *wrapped(f"   {sizes_of(workload)}")]
    unit = "client" if workload.evaluated else "step"
    lines.append(f"   {'':<18}{'seconds':>8}{'':<14}{'ms a ' + unit:>11}     times {TWO_THREADS}")
    own = {name.contender: turns for name, turns in measured.turns.items() if name.workload == workload.key}
    for contender, turns in own.items():
        times = times_faster(turns, own[TWO_THREADS], per_step=contender in peers)
        lines.append(row(contender, turns, times))
    lines.append(f"   {'arithmetic limit':<18}{short(limit.seconds):>8}")
    remarks = {name: f"{name.contender}: skipped, {reason}" for name, reason in measured.skipped.items()}
    for name, remark in {**reasons, **remarks}.items():
        if name.workload == workload.key:
            lines += wrapped(f"   {remark}")
    return lines


def sizes_of(workload: Workload) -> str:
    clients = f"{'all' if workload.evaluated else workload.cohort} of {workload.clients} clients"
    examples = workload.tests if workload.evaluated else workload.examples
    return f"{clients}, {examples} examples each on average" + (f"; {workload.note}" if workload.note else "")


def row(contender: str, turns: Sequence[Turn], times: Spread) -> str:
    seconds = spread([turn.seconds for turn in turns])
    step = spread([1000 * turn.seconds / turn.steps for turn in turns]).median
    return f"   {contender:<18}{shown(seconds):<22}{step:>11.3f}  {shown(times)}"


def shown(value: Spread) -> str:
    """Median (least-most)."""
    return f"{short(value.median):>8} ({short(value.least)}-{short(value.most)})"


def short(value: float) -> str:
    """Three digits or so that matter."""
    places = 4 if value < 0.01 else 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{places}f}"


def wrapped(line: str) -> list[str]:
    """Broken between words; further lines are set in."""
    if len(line) <= WIDTH:
        return [line]
    place = line.rfind(" ", 4, WIDTH)
    place = WIDTH if place < 0 else place
    return [line[:place], *wrapped("   " + line[place:].lstrip())]


def judgement(verdicts: Sequence[Verdict]) -> list[str]:
    """One line for each requirement."""
    lines = ["", "Required, by the default engine or the fastest that was measured:"] if verdicts else []
    for verdict in verdicts:
        bound = f"{'at most' if verdict.at_most else 'at least'} {verdict.limit:g}"
        aim = "" if verdict.aim is None else f", aim {verdict.aim:g}"
        said = "reached" if verdict.reached else "MISSED"
        lines += wrapped(f"   {verdict.workload}, {verdict.engine}: {shown(verdict.found).strip()} {verdict.what}")
        lines.append(f"      {bound}{aim}: {said}")
    return lines


def as_json(
    workloads: Sequence[Workload],
    measured: Measured,
    limits: Mapping[str, Limit],
    verdicts: Sequence[Verdict],
    peers: Sequence[str],
    reasons: Mapping[Name, str],
) -> dict[str, Any]:
    """All that was measured."""
    return {
        "workloads": [workload_json(workload, measured, limits[workload.key], peers) for workload in workloads],
        "chosen": [{**name._asdict(), "reason": reason} for name, reason in reasons.items()],
        "skipped": [{**name._asdict(), "reason": reason} for name, reason in measured.skipped.items()],
        "requirements": [verdict.as_json() for verdict in verdicts],
    }


def workload_json(workload: Workload, measured: Measured, limit: Limit, peers: Sequence[str]) -> dict[str, Any]:
    own = {name.contender: turns for name, turns in measured.turns.items() if name.workload == workload.key}
    facts = {"key": workload.key, "title": workload.title, "note": workload.note, **workload.sizes}
    rows = [contender_json(contender, own, peers) for contender in own]
    return {**facts, "contenders": rows, "arithmetic_limit": limit.as_json()}


def contender_json(contender: str, own: Mapping[str, Sequence[Turn]], peers: Sequence[str]) -> dict[str, Any]:
    turns = own[contender]
    times = {
        setting: times_faster(turns, own[setting], per_step=contender in peers)._asdict()
        for setting in BARE
        if setting in own
    }
    seconds, steps = [turn.seconds for turn in turns], [turn.steps for turn in turns]
    return {"contender": contender, "seconds": seconds, "steps": steps, "times_faster_than": times}


def write(result: Mapping[str, Any], lines: Sequence[str], folder: Path, suffix: str) -> Path:
    """<machine>-<date>.json and .txt; the path of the second."""
    machine = re.sub(r"[^a-z0-9]+", "-", str(result["cpu"]).lower()).strip("-")
    stem = f"{machine}-{result['cores']}-cores-{result['date']}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path = folder / f"{stem}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def heading(result: Mapping[str, Any]) -> list[str]:
    machine = f"{result['cpu']}, {result['cores']} cores, torch {result['torch']}, python {result['python']}"
    facts = f"{result['date']}, commit {result['commit']}, data: {result['data']}, {result['repeats']} repeats"
    means = "Medians with (least-most) of all repeats; ratios are taken within a repeat."
    lines = [result["command"], machine, facts, means]
    if (result["load"] or 0.0) > QUIET:
        lines.append(
            f"The machine is busy (load {result['load']}): a loop on two threads suffers most from neighbours."
        )
    return [part for line in lines for part in wrapped(line)]
