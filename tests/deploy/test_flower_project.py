"""The project in examples/flower_project: its two apps, called as Flower calls them, and its README."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs plures[flower]")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from safetensors.torch import load_file

from plures.deploy.flower.superlink import QUIET, program
from plures.deploy.keeping import RunStates
from plures.deploy.serving import noted

PROJECT = Path(__file__).parents[2] / "examples" / "flower_project"
RUN = 7


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Importable, as in the processes that Flower starts, which have an identity; afterwards it is forgotten."""
    for name, number in {"_task_id": 1, "_run_id": RUN, "_node_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, number)
    monkeypatch.syspath_prepend(str(PROJECT))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "flower_project"]:
        del sys.modules[name]


def context(node: int, **settings: Any) -> Context:
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    return Context(
        run_id=RUN, node_id=node, node_config=given, state=RecordDict({"none": ConfigRecord()}), run_config={}
    )


class FakeGrid(Grid):
    """Flower's Grid in one process: each message is answered by the app when its reply is asked for."""

    def __init__(self, app: ClientApp, nodes: dict[int, Context]) -> None:
        self.app, self.nodes, self.under_way = app, nodes, dict[str, Message]()

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *given: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            number = str(len(self.under_way) + id(message))
            message.metadata.__dict__["_message_id"] = number
            self.under_way[number] = message
            yield number

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        for message in [self.under_way.pop(one) for one in list(message_ids) if one in self.under_way]:
            yield self.app(message, self.nodes[message.metadata.dst_node_id])

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


def test_the_project_trains_by_a_method_of_plures(project: None, tmp_path: Path) -> None:
    from flower_project.client_app import app as client_app
    from flower_project.server_app import app as server_app

    nodes = {
        100 + client: context(100 + client, partition_id=client, num_partitions=3, state=str(tmp_path / "state"))
        for client in range(3)
    }
    server = context(1)
    server.run_config = {"out": str(tmp_path / "out"), "keyed": False}
    server_app(FakeGrid(client_app, nodes), server)
    result = json.loads((tmp_path / "out" / "run" / "result.json").read_bytes())
    assert result["metrics"]["personal/test/accuracy"]["weighted"] > 0.8
    shared = load_file(tmp_path / "out" / "run" / "shared.safetensors")
    assert shared
    assert all(name.startswith("conv") for name in shared)
    told = noted(tmp_path / "out")
    assert told is not None
    for client in range(3):
        kept = RunStates(tmp_path / "state" / str(client), told["run"]).read(5)
        assert kept is not None
        assert set(kept) == {"fc.weight", "fc.bias"}


def test_the_code_that_takes_plures_in_is_as_short_as_the_readme_says() -> None:
    """About ten lines: those of the two functions that Flower calls, without their docstrings."""
    lines = 0
    for name, function in (("client_app.py", "def answer"), ("server_app.py", "def main")):
        body = (PROJECT / "flower_project" / name).read_text(encoding="utf-8").split(function)[1].split("\n\n\n")[0]
        lines += sum(line.startswith("    ") and '"""' not in line for line in body.splitlines())
    assert lines <= 10


@contextmanager
def running(*command: str, log: Path, env: dict[str, str]) -> Iterator[None]:
    """A program of Flower's with all that it starts."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_flower_runs_the_project_with_its_own_programs(tmp_path: Path) -> None:
    """As the README says, for one round: a SuperLink, three SuperNodes and `flwr run`."""
    project, home = tmp_path / "project", tmp_path / "home"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    file = project / "flower_project" / "experiment.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("rounds = 5", "rounds = 1"), encoding="utf-8")
    link, *ports = free_ports(4)
    home.mkdir()
    connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    (home / "config.toml").write_text(connection, encoding="utf-8")
    env = {**os.environ, **QUIET, "FLWR_HOME": str(home), "OMP_NUM_THREADS": "1"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    here = ("--insecure", "--host", "127.0.0.1", "--port")
    with ExitStack() as stack:
        words = (program("flower-superlink"), *here, str(link), "--disable-runtime-dependency-installation")
        stack.enter_context(running(*words, log=tmp_path / "link.log", env=env))
        for client, port in enumerate(ports):
            settings = f'partition-id={client} num-partitions=3 state="{tmp_path / "state"}"'
            words = (program("flower-supernode"), *here, str(port), "--superlink", f"127.0.0.1:{link}")
            log = tmp_path / f"node-{client}.log"
            stack.enter_context(running(*words, "--node-config", settings, log=log, env=env))
        out = f'out="{tmp_path / "out"}"'
        wait_for(link)
        command = [program("flwr"), "run", str(project), "here", "--stream", "--run-config", out]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert (tmp_path / "out" / "run" / "result.json").is_file(), done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "run" / "result.json").read_bytes())
    assert (result["status"], result["rounds_done"], result["clients"]) == ("finished", 1, 3)
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"0", "1", "2"}


def wait_for(port: int, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while True:
        with closing(socket.socket()) as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < until, "the SuperLink does not listen"
        time.sleep(0.2)


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(socket.socket())) for _ in range(number)]
        for line in lines:
            line.bind(("127.0.0.1", 0))
        return [line.getsockname()[1] for line in lines]
