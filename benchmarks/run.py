"""Measures every engine beside the bare loop and, if asked, beside other frameworks.

    python -m benchmarks.run [--only a,b] [--repeats 5] [--engines sequential,workers] [--peers] [--tiny]

All contenders of a letter take turns (A B C A B C). The result goes to benchmarks/results/, named by machine and date.
Data is Fashion-MNIST from PLURES_DATA, otherwise noise of the same shape. Run it on a quiet machine. Peers need
`benchmarks/peers/make_env.sh` first; every turn starts them anew, so with them it takes three times as long.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from benchmarks import bare, data, reporting
from benchmarks.arithmetic import Limit, limit_of
from benchmarks.measuring import CannotRun, Contender, Measured, Name, interleaved
from benchmarks.peers.starting import PEERS, PeerRuns
from benchmarks.targets import verdicts
from benchmarks.workloads import Simulation, Workload, chosen
from plures.core.errors import PluresError
from plures.recipes.engines import AUTO, ENGINES, TRIAL

USUAL = ("sequential", "cached", "vectorised", "workers", AUTO)
ALIKE = ("sequential", "vectorised")
TINY = {"clients": 10, "cohort": 4, "examples": 64}


def main() -> int:
    """The status to leave with."""
    asked = arguments()
    workloads = chosen(asked.only)
    if asked.tiny:
        workloads = [workload.smaller(**TINY) for workload in workloads]
    engines, unknown = known_engines(asked.engines)
    for engine in unknown:
        print(f"There is no engine '{engine}' here: skipped.")
    peers = [peer.name for peer in PEERS] if asked.peers else []
    result = {**reporting.occasion(), "data": data.dataset().name, "repeats": asked.repeats, "engines": engines}
    lines = reporting.heading(result)
    print("\n".join(lines))
    measured, limits, reasons = Measured({}, {}), dict[str, Limit](), dict[Name, str]()
    with ExitStack() as stack:
        pair = bare.Pair()
        stack.callback(pair.close)
        for _, members in groupby(workloads, key=lambda workload: workload.key.partition("-")[0]):
            group = list(members)
            found, told = measure(group, engines, pair, repeats=asked.repeats, with_peers=asked.peers)
            measured.turns.update(found.turns)
            measured.skipped.update(found.skipped)
            reasons |= told
            for workload in group:
                limits[workload.key] = limit_of(workload)
                shown = reporting.table(workload, found, peers, limits[workload.key], told)
                print("\n".join(shown), flush=True)
                lines += shown
    judged = verdicts(measured.turns, engines, peers)
    print("\n".join(reporting.judgement(judged)))
    lines += reporting.judgement(judged)
    if asked.tiny:
        print("\nTried out at tiny sizes: nothing is written.")
        return 0
    result |= reporting.as_json(workloads, measured, limits, judged, peers, reasons)
    suffix = f"-only-{asked.only.replace(',', '-')}" if asked.only else ""
    print(f"\nWritten: {reporting.write(result, lines, asked.out, suffix)} (and .json)")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="workloads by letter or key, such as a,d-pflego-5")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each contender (default 5)")
    parser.add_argument("--engines", help="engines, separated by commas (default: all there are)")
    parser.add_argument("--peers", action="store_true", help="also Flower, pfl-research and FedJAX")
    parser.add_argument("--tiny", action="store_true", help="a few clients and examples, to try it out")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder of the result files")
    asked = parser.parse_args()
    if asked.repeats < 1:
        parser.error(f"--repeats is {asked.repeats}: at least 1.")
    return asked


def known_engines(asked: str | None) -> tuple[list[str], list[str]]:
    """Engines that there are, and names of which there is none."""
    names = [name.strip() for name in asked.split(",")] if asked else list(dict.fromkeys([*USUAL, *ENGINES]))
    known = [*ENGINES, AUTO, TRIAL]
    return [name for name in names if name in known], [name for name in names if name not in known]


def measure(
    group: Sequence[Workload], engines: Sequence[str], pair: bare.Pair, *, repeats: int, with_peers: bool
) -> tuple[Measured, dict[Name, str]]:
    """All contenders of workloads that are compared with each other; and what `auto` and `trial` have chosen."""
    with ExitStack() as stack:
        contenders: dict[Name, Contender] = {}
        for workload in group:
            for name, contender in contenders_of(workload, engines, pair, with_peers=with_peers).items():
                contenders[Name(workload.key, name)] = contender
                stack.callback(contender.close)
        choosers = {name: contenders[name] for name in contenders if name.contender in (AUTO, TRIAL)}
        reasons = {name: one.reason for name, one in choosers.items() if isinstance(one, Simulation)}
        return interleaved(contenders, repeats, refusals=(CannotRun, PluresError), tell=progress), reasons


def contenders_of(
    workload: Workload, engines: Sequence[str], pair: bare.Pair, *, with_peers: bool
) -> dict[str, Contender]:
    # Engines in one process evaluate alike.
    names = [name for name in engines if not workload.evaluated or name not in ALIKE]
    ours: dict[str, Contender] = {name: Simulation(workload, name) for name in names}
    peers = [peer for peer in PEERS if with_peers and workload.key in peer.workloads]
    return ours | bare.settings(workload, pair) | {peer.name: PeerRuns(peer, workload) for peer in peers}


def progress(text: str) -> None:
    """One line that changes, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{text:<79}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
