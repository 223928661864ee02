"""Starts peers in environments of their own and reads what they tell; `make_env.sh` makes the environments."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import CannotRun
from benchmarks.workloads import Turn, Workload

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900
ROUNDS = 3
"""Measured in one turn, after a round to warm up: starting a peer takes much longer than a round."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A framework and how its users start it."""

    name: str
    script: str
    launcher: tuple[str, ...] = ("python",)
    """Before the script, from the environment's bin folder."""
    environment: str = ""
    workloads: tuple[str, ...] = ("a", "b", "c", "d-fedper", "g-global", "g-personal")
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def home(self) -> Path:
        return place() / (self.environment or self.name)


TWO_PROCESSES = ("torchrun", "--nproc-per-node", "2")

PEERS = (
    Peer(name="flower", script="run_flower.py", variables=(("FLWR_TELEMETRY_ENABLED", "0"),)),
    Peer(name="pfl", script="run_pfl.py"),
    Peer(
        name="pfl, 2 processes",
        script="run_pfl.py",
        launcher=TWO_PROCESSES,
        environment="pfl",
        workloads=("a", "c", "g-global"),
        variables=(("OMP_NUM_THREADS", "1"),),
    ),
    Peer(name="fedjax", script="run_fedjax.py"),
)

OPTIONS = {
    "a": ("--model", "mlp", "--batch", "10"),
    "b": ("--model", "mlp", "--batch", "32", "--personal-head"),
    "c": ("--model", "cnn", "--batch", "32"),
    "d-fedper": ("--model", "mlp", "--width", "200", "--epochs", "50", "--personal-head"),
    "g-global": ("--model", "cnn", "--evaluate"),
    "g-personal": ("--model", "cnn", "--evaluate", "--personal-head"),
}


def place() -> Path:
    """Where environments and data for peers are."""
    return Path(os.environ.get("PLURES_BENCH", "~/.cache/plures-bench")).expanduser()


class PeerRuns:
    """A peer on one workload; every turn starts it anew."""

    def __init__(self, peer: Peer, workload: Workload) -> None:
        self.peer, self.workload = peer, workload

    def turn(self) -> Turn:
        if not (self.peer.home / "bin" / "python").exists():
            raise CannotRun(f"no environment {self.peer.home}: benchmarks/peers/make_env.sh makes it")
        told = last_line(self.command(), self.variables())
        number = len(told["seconds"])
        return Turn(sum(told["seconds"]) / number, round(sum(told["steps"]) / number))

    def close(self) -> None:
        """Nothing runs between turns."""

    def command(self) -> list[str]:
        launcher, *words = self.peer.launcher
        sizes = ["--cohort", str(self.workload.cohort), "--rounds", str(ROUNDS)]
        data = ["--data", str(data_file(self.workload))]
        script = [str(self.peer.home / "bin" / launcher), *words, str(HERE / self.peer.script)]
        return [*script, *data, *OPTIONS[self.workload.key], *sizes]

    def variables(self) -> dict[str, str]:
        """No thread setting of ours, and the folder where workers of the peer find its modules."""
        usual = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        path = os.pathsep.join([str(self.peer.home / "bin"), usual.get("PATH", "")])
        return {**usual, "PATH": path, "PYTHONPATH": str(HERE), **dict(self.peer.variables)}


def last_line(command: list[str], variables: dict[str, str]) -> dict[str, list[float]]:
    """The line of JSON that a peer prints; if there is none, its last words."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command, env=variables, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise CannotRun(f"not ready after {TIMEOUT_SECONDS} seconds") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"peer"')]
    if not lines:
        words = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing was printed"]
        raise CannotRun(f"ended with status {done.returncode}: {words[-1].strip()[:200]}")
    told: dict[str, list[float]] = json.loads(lines[-1])
    return told


def data_file(workload: Workload) -> Path:
    """The examples of all clients that are trained on or tested in one file, made where it is missing."""
    population, split = workload.federation(), "test" if workload.evaluated else "train"
    path = place() / f"clients-{split}-{population.fingerprint()['split'][:12]}.npz"
    if not path.exists():
        loaded = [population.population.load(client) for client in range(population.num_clients)]
        batches = [client.splits[split] for client in loaded]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            inputs=torch.cat([batch.inputs for batch in batches]).numpy(),
            targets=torch.cat([batch.targets for batch in batches]).numpy(),
            ends=np.cumsum([batch.num_examples for batch in batches]),
        )
    return path
