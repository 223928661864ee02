"""Server and nodes as processes of their own on this machine, started by the command line as people do."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from plures.core.types import Params
from plures.deploy.flower.keys import make_keys
from plures.deploy.flower.superlink import QUIET
from plures.deploy.keeping import RunStates
from plures.deploy.serving import noted
from plures.deploy.splitting import EXPERIMENT, split_to_folders
from plures.recipes import RunResult
from plures.recipes.experiment import Experiment
from tests.deploy.flower import node_script

LONG = 120.0


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


class Forked:
    """A process of a server that has everything imported, with the ways of `subprocess.Popen`: quick to start."""

    def __init__(self, words: Sequence[str], how: dict[str, Any], log: Path, environment: dict[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.deploy.flower.node_script", "plures.deploy.flower.running"])
        arguments = (list(words), how, str(log), environment)
        self.process = context.Process(target=node_script.begun_with, args=arguments)
        self.process.start()
        self.pid = self.process.pid or 0

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("", seconds or 0.0)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.process.exitcode is None:
            os.kill(self.pid, number)


Process = subprocess.Popen[bytes] | Forked


class Machine:
    """A deployment between processes; whatever was started is ended with it."""

    def __init__(self, experiment: Experiment, path: Path, *, insecure: bool = False, quick: bool = False) -> None:
        self.path, self.insecure, self.quick = path, insecure, quick
        self.experiment, self.folders = split_to_folders(experiment, path / "split")
        self.file = path / "split" / EXPERIMENT
        self.out = path / "out"
        self.address = f"127.0.0.1:{free_port()}"
        self.processes: dict[str, Process] = {}
        self.names = [folder.name for folder in self.folders]
        if not insecure:
            make_keys(path / "keys", ["127.0.0.1"], self.names)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def start(self, name: str, words: Sequence[str], how: dict[str, Any] | None = None) -> Process:
        """A command of Plures, or a program by its path; what it says goes to a file."""
        # Flower's programs start others by their names
        search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**QUIET, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "PATH": search}
        environment["FLWR_HOME"] = str(self.path / "flower")
        log = self.path / f"{name}.log"
        if self.quick:
            self.processes[name] = Forked(words, how or {}, log, environment)
            return self.processes[name]
        command = [sys.executable, "-c", "from plures.cli import main; main()"] if words[0] == "deploy" else []
        with log.open("ab") as file:
            self.processes[name] = subprocess.Popen(
                [*command, *words], stdout=file, stderr=file, env={**os.environ, **environment}, start_new_session=True
            )
        return self.processes[name]

    def said(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text(encoding="utf-8")

    def ends(self, process: Process, name: str, seconds: float = LONG) -> None:
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} has not ended after {seconds:g} s:\n{self.all_said()}") from None
        assert code == 0, f"{name} has ended with {code}:\n{self.all_said()}"

    def all_said(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.path.glob("*.log")))

    def server_words(self, *more: str) -> list[str]:
        safety = ["--insecure"] if self.insecure else ["--keys", str(self.path / "keys")]
        words = ["deploy", "server", str(self.file), "--out", str(self.out), "--superlink", self.address]
        return [*words, *safety, *more]

    def node_words(self, client: int) -> list[str]:
        name, keys = self.names[client], self.path / "keys"
        safety = ["--ca", str(keys / "ca.crt"), "--key", str(keys / "nodes" / name)]
        words = ["deploy", "client", str(self.file), "--data", str(self.folders[client]), "--superlink", self.address]
        return [*words, "--state", str(self.state(client)), *(["--insecure"] if self.insecure else safety)]

    def state(self, client: int) -> Path:
        return self.path / "states" / self.names[client]

    def server(self, *more: str) -> Process:
        return self.start("server", self.server_words(*more))

    def node(self, client: int, **how: Any) -> Process:
        """As people start it; where something is to be done to it, by `node_script`."""
        return self.start(f"node-{self.names[client]}", self.node_words(client), how)

    def until(self, found: Callable[[], bool], what: str, seconds: float = LONG) -> None:
        end = time.monotonic() + seconds
        while not found():
            assert time.monotonic() < end, f"{what} has not happened in {seconds:g} s:\n{self.all_said()}"
            assert self.processes["server"].poll() in (None, -signal.SIGKILL), f"no server:\n{self.all_said()}"
            time.sleep(0.05)

    def rounds(self) -> list[dict[str, Any]]:
        path = self.out / "run" / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def shared(self) -> Params:
        return load_file(self.out / "run" / "shared.safetensors")

    def kept(self, client: int) -> tuple[Params | None, Params]:
        """What a node has at the end: its own part, and the shared one."""
        told = noted(self.out)
        assert told is not None
        states = RunStates(self.state(client), told["run"])
        counted = json.loads((states.path / "finished.json").read_text())["counted"]
        return states.read(counted), load_file(states.path / "shared.safetensors")

    def assert_as(self, alone: RunResult) -> None:
        """Server and nodes end with the bits of the same experiment in one process."""
        shared = self.shared()
        assert shared.keys() == alone.server.shared.keys()
        for client in range(len(self.names)):
            mine, last = self.kept(client)
            theirs = alone.store.get(client)
            assert (mine is None) == (theirs is None)
            for name, value in (theirs or {}).items():
                assert torch.equal((mine or {})[name], value), f"{name} of {self.names[client]}"
            for name, value in alone.server.shared.items():
                assert torch.equal(last[name], value), f"shared {name} on {self.names[client]}"
                assert torch.equal(shared[name], value), f"shared {name}"
