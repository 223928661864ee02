"""The same with Flower's own programs alone: `flwr run` of the app that `plures deploy app` writes, and SuperNodes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "plures[flower]"')

from plures.deploy.flower.links import Link
from plures.deploy.flower.stock import supernode_command, write_app
from plures.deploy.flower.superlink import QUIET, program
from plures.recipes import run_experiment
from tests.deploy.flower.processes import Machine, free_port
from tests.deploy.helpers import small


@pytest.mark.slow
def test_flwr_run_with_supernodes_ends_where_one_process_ends(tmp_path: Path) -> None:
    experiment = small("fedalt", rounds=1)
    with Machine(experiment, tmp_path, insecure=True) as machine:
        host, port = machine.address.split(":")
        words = ["--insecure", "--host", host, "--port", port, "--disable-runtime-dependency-installation"]
        machine.start("server", [program("flower-superlink"), *words])
        write_app(tmp_path / "app", machine.file, machine.out, keyed=False)
        link = Link(address=machine.address)
        for client, name in enumerate(machine.names):
            folder, state = machine.folders[client], machine.state(client)
            command = supernode_command(link, None, machine.file, folder, state, name, free_port())
            machine.start(f"node-{name}", command)
        home = tmp_path / "flower"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{machine.address}"\ninsecure = true\n'
        )
        flwr = program("flwr")
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(home)}

        def call(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([flwr, *words], capture_output=True, text=True, env=environment, timeout=300)

        machine.until(lambda: call("ls", "here").returncode == 0, "the start of the SuperLink")
        done = call("run", str(tmp_path / "app"), "here", "--stream")
        listed = call("ls", "here", "--format", "json")
        status = [run["status"] for run in json.loads(listed.stdout)["runs"]]
        assert status == ["finished:completed"], done.stdout + done.stderr + machine.all_said()
        machine.assert_as(run_experiment(experiment))
