"""The fuzzers of tests/fuzz for minutes instead of seconds: how many inputs each has tried, and what it found.

    python -m benchmarks.fuzz [--seconds 300] [--write]
    python -m benchmarks.fuzz --guided [--seconds 180] [--write]    needs the package atheris, which is no dependency

Every fuzzer has an equal share of the time. An input is refused if it is answered by an error of Plures; any other
error, an answer that is wrong, or none within 20 seconds, is a defect. Those that are guided are led by which lines of
Plures an input reaches (libFuzzer).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.reporting import RESULTS, occasion

GUIDED = ("wire", "toml", "manifest")
FOUND_SHOWN = 600


def fuzzers() -> Iterator[tuple[str, Callable[..., None]]]:
    """Every test of tests/fuzz that draws its inputs."""
    from tests.fuzz import test_fuzz_checkpoints, test_fuzz_doctor, test_fuzz_states, test_fuzz_toml, test_fuzz_wire
    from tests.fuzz.folders import know_tiny

    know_tiny()
    for module in (test_fuzz_toml, test_fuzz_wire, test_fuzz_checkpoints, test_fuzz_states, test_fuzz_doctor):
        for name, test in vars(module).items():
            if name.startswith("test_") and hasattr(test, "hypothesis"):
                yield name, test


def run_for(seconds: float, test: Callable[..., None], path: Path) -> str:
    """Again and again, with other inputs each time; what was found, if anything."""
    from inspect import signature

    options: dict[str, Any] = {"path": path} if "path" in signature(test).parameters else {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            test(**options)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            return f"{type(error).__name__}: {error}"[:FOUND_SHOWN]
    return ""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=300.0)
    options.add_argument("--write", action="store_true", help="to benchmarks/results/fuzz.txt")
    options.add_argument("--guided", action="store_true")
    asked = options.parse_args()
    text = guided_report(asked.seconds) if asked.guided else report(asked.seconds)
    print(text)
    if asked.write:
        with (RESULTS / "fuzz.txt").open("a" if asked.guided else "w", encoding="utf-8") as file:
            file.write(f"\n{text}\n" if asked.guided else f"{text}\n")


def report(seconds: float) -> str:
    from tests.fuzz.harness import REFUSED, TRIED

    tests, found = dict(fuzzers()), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for name, test in tests.items():
            found[name] = run_for(seconds / len(tests), test, Path(folder) / "experiment.toml")
    now = occasion()
    lines = [
        f"python -m benchmarks.fuzz --seconds {seconds:g}, {len(tests)} fuzzers, one core",
        f"{now['date']}, commit {now['commit']}, {now['cpu']}, torch {now['torch']}, python {now['python']}",
        "",
        f"{'':<46}{'inputs':>10}{'refused':>10}",
        *(f"{name:<46}{TRIED[name]:>10,}{REFUSED[name]:>10,}" for name in TRIED),
        f"{'in all':<46}{TRIED.total():>10,}{REFUSED.total():>10,}",
        "",
        *(f"DEFECT in {name}: {what}" for name, what in found.items() if what),
    ]
    return "\n".join(lines if any(found.values()) else [*lines, "defects: none"])


# Led by coverage


def guided_report(seconds: float) -> str:
    lines = [f"python -m benchmarks.fuzz --guided --seconds {seconds:g}, libFuzzer by atheris", ""]
    for target in GUIDED:
        said = guided(target, seconds / len(GUIDED))
        done = re.search(r"Done (\d+) runs", said)
        ended = f"{int(done[1]):>10,}" if done else f"   DEFECT: {said[-FOUND_SHOWN:]}"
        lines.append(f"{f'{target}, led by coverage':<46}{ended}")
    return "\n".join(lines)


def guided(target: str, seconds: float) -> str:
    """In a process of its own, for libFuzzer ends the one that it is in; what it said."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(target)):
            (Path(corpus) / str(number)).write_bytes(seed)
        command = [sys.executable, "-m", "benchmarks.fuzz_guided", target, corpus, f"-max_total_time={seconds:.0f}"]
        command += ["-max_len=20000", "-timeout=20", f"-artifact_prefix={corpus}/"]
        return subprocess.run(command, check=False, capture_output=True, text=True).stderr


def seeds(target: str) -> Iterator[bytes]:
    """Right inputs to begin with."""
    from plures.wire import CODES, encode
    from tests.fuzz.folders import KINDS, base, manifest_of
    from tests.fuzz.test_fuzz_toml import FILES
    from tests.wire.test_hostile import small_message

    if target == "toml":
        yield from FILES
    elif target == "wire":
        from plures.core.seeds import generator

        yield from (encode(small_message(), code=code, generator=generator(0, "fuzz")) for code in CODES)
    else:
        yield from (manifest_of(base(kind, 1))[0].read_bytes() for kind in KINDS)


if __name__ == "__main__":
    main()
