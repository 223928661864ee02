"""The same experiment in one process and between processes over TLS: the same bits at the end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "plures[flower]"')

from plures.recipes import run_experiment
from tests.deploy.flower.processes import Machine
from tests.deploy.helpers import small

SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in ("fedavg", "pflego", "ditto", "fedspa", "pfedgate")]


@pytest.mark.parametrize("method", ["fedalt", *SLOW])
def test_processes_end_where_one_process_ends(method: str, tmp_path: Path) -> None:
    experiment = small(method, rounds=2)
    with Machine(experiment, tmp_path) as machine:
        server = machine.server()
        nodes = [machine.node(client) for client in range(3)]
        alone = run_experiment(experiment)
        machine.ends(server, "server")
        machine.assert_as(alone)
        for client, node in enumerate(nodes):
            node.send_signal(signal.SIGTERM)
            machine.ends(node, f"node {client}", 15)
        said = machine.all_said()
        assert "Traceback" not in said, said
