"""What a round costs between processes: nodes that stay beside Flower's own SuperNodes, with a model of 1 MB.

    python -m benchmarks.deployment [--rounds 10] [--stock-rounds 3] [--turns 2] [--out FILE]

FedAvg on digits by three nodes, each a process of this machine, without TLS; an MLP with 3,500 hidden units, whose
262,510 floats all go down and up in a round; one local step, so that little else is timed. Turns of the two kinds of
nodes follow each other. A node of `plures deploy client` stays and has everything imported; a SuperNode starts a
process for every message. The first round of a turn, when programs are made, and the last, with its evaluation, are
left out. Takes ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from benchmarks.reporting import RESULTS, load, occasion
from plures.deploy.flower.links import Link
from plures.deploy.flower.stock import supernode_command, write_app
from plures.deploy.flower.superlink import QUIET, program
from plures.recipes import make_experiment
from plures.recipes.experiment import Experiment
from tests.deploy.flower.processes import Machine, free_port

NODES, MOST_SECONDS = 3, 2.0
LEFT_OUT = 2
"""The first round and the last."""
LONG = 1800.0


def experiment_of(rounds: int) -> Experiment:
    table = {
        "method": "fedavg",
        "rounds": rounds + LEFT_OUT,
        "cohort": "all",
        "engine": "sequential",
        "data": {"source": "digits", "clients": NODES, "classes_per_client": 4},
        "model": {"name": "mlp", "hidden": [3500]},
        "evaluation": {"every": 1000},
        "method_options": {"budget": {"steps": 1, "batch": 32}},
    }
    return make_experiment(table)


def seconds_of(machine: Machine) -> list[float]:
    """Of each round but the first and the last; the records have the time since the start."""
    marks = [line["seconds"] for line in machine.rounds()]
    return [after - before for before, after in pairwise(marks[:-1])]


def staying(rounds: int, path: Path) -> list[float]:
    with Machine(experiment_of(rounds), path, insecure=True) as machine:
        server = machine.server()
        for client in range(NODES):
            machine.node(client)
        machine.ends(server, "server", LONG)
        return seconds_of(machine)


def stock(rounds: int, path: Path) -> list[float]:
    with Machine(experiment_of(rounds), path, insecure=True) as machine:
        host, port = machine.address.split(":")
        words = ["--insecure", "--host", host, "--port", port, "--disable-runtime-dependency-installation"]
        machine.start("server", [program("flower-superlink"), *words])
        write_app(path / "app", machine.file, machine.out, keyed=False)
        for client, name in enumerate(machine.names):
            own = (machine.folders[client], machine.state(client), name, free_port())
            machine.start(f"node-{name}", supernode_command(Link(address=machine.address), None, machine.file, *own))
        home = path / "flower"
        home.mkdir(exist_ok=True)
        connection = (
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{machine.address}"\ninsecure = true\n'
        )
        (home / "config.toml").write_text(connection, encoding="utf-8")
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(home)}

        def call(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program("flwr"), *words], capture_output=True, text=True, env=environment, timeout=LONG
            )

        machine.until(lambda: call("ls", "here").returncode == 0, "the start of the SuperLink")
        done = call("run", str(path / "app"), "here", "--stream")
        listed = json.loads(call("ls", "here", "--format", "json").stdout)
        if [run["status"] for run in listed["runs"]] != ["finished:completed"]:
            raise SystemExit(f"The run has failed:\n{done.stdout}{done.stderr}{machine.all_said()}")
        return seconds_of(machine)


def line(name: str, seconds: list[float], turns: int, loads: list[float | None]) -> str:
    told = f"{statistics.median(seconds):>8.2f}{statistics.mean(seconds):>8.2f}{min(seconds):>8.2f}{max(seconds):>8.2f}"
    shown = " ".join("-" if one is None else f"{one:.1f}" for one in loads)
    return f"{name:<24}{turns:>6}{len(seconds):>8}{told}   {shown}"


def main() -> int:
    """The status to leave with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="of a turn of nodes that stay")
    parser.add_argument("--stock-rounds", type=int, default=3, help="of a turn of SuperNodes")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "deployment.txt")
    asked = parser.parse_args()
    facts = occasion()
    kinds = {"nodes that stay": (staying, asked.rounds), "Flower's SuperNodes": (stock, asked.stock_rounds)}
    found: dict[str, list[float]] = {name: [] for name in kinds}
    loads: dict[str, list[float | None]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(asked.turns):
            for number, (name, (measure, rounds)) in enumerate(kinds.items()):
                path = Path(folder) / f"{turn}-{number}"
                path.mkdir()
                found[name] += measure(rounds, path)
                loads[name].append(load())
    median = statistics.median(found["nodes that stay"])
    lines = [
        " ".join(["python -m benchmarks.deployment", *sys.argv[1:]]),
        f"{facts['cpu']}, {facts['cores']} cores, torch {facts['torch']}, {facts['date']}, commit {facts['commit']}",
        f"load {facts['load']} at the start; that after each turn is in the last column, our own processes in it",
        f"{NODES} nodes, a model of 1.05 MB down and up, one local step; turns follow each other",
        "",
        f"{'':<24}{'':>6}{'':>8}{'seconds a round':>32}",
        f"{'':<24}{'turns':>6}{'rounds':>8}{'median':>8}{'mean':>8}{'least':>8}{'most':>8}   load",
        *(line(name, found[name], asked.turns, loads[name]) for name in kinds),
        "",
        f"Target: below {MOST_SECONDS:g} s with nodes that stay: {'reached' if median < MOST_SECONDS else 'missed'} "
        f"(median {median:.2f} s).",
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    asked.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
