"""A whole deployment from the command line, and what comes after its run: metrics, newcomers, each node's model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "plures[flower]"')

import plures
from tests.deploy.flower_proxy.test_proxy import free_ports

FILE = """
method = "fedper"
rounds = 2
[data]
clients = 3
classes_per_client = 4
"""
COMMANDS = """
plures deploy split first.toml --out first
plures deploy keys keys --host localhost --node 0 --node 1 --node 2 --node east
for node in 0 1 2; do
    plures deploy client first/experiment.toml --data first/$node --state state/$node --superlink localhost:$PORT \\
        --ca keys/ca.crt --key keys/nodes/$node &
done
plures deploy server first/experiment.toml --out server --keys keys --superlink 127.0.0.1:$PORT --json > run.json
plures deploy server first/experiment.toml --out server --keys keys --superlink 127.0.0.1:$PORT --resume
plures deploy evaluate first/experiment.toml --out server --keys keys --superlink 127.0.0.1:$PORT --json > again.json
plures deploy fetch first/experiment.toml --out shared.safetensors --superlink localhost:$PORT \\
    --ca keys/ca.crt --key keys/nodes/east &
newcomer=$!
plures deploy give first/experiment.toml --out server --keys keys --superlink 127.0.0.1:$PORT --for 20
wait $newcomer
plures deploy export first/experiment.toml --data first/0 --state state/0 --out mine.safetensors
kill $(jobs -p)
wait
"""


@pytest.mark.slow
def test_everything_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text(FILE, encoding="utf-8")
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    here["PORT"] = str(free_ports()[0])
    done = subprocess.run(
        ["bash", "-euc", COMMANDS],
        cwd=tmp_path,
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "The run has finished" in done.stderr
    assert "Traceback" not in done.stderr
    told, again = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("run.json", "again.json"))
    assert again["clients"] == 3
    name = "personal/test/accuracy"
    assert again["metrics"][name]["weighted"] == told["metrics"][name]["weighted"]
    assert (tmp_path / "shared.safetensors").read_bytes()
    assert plures.load_client(tmp_path / "mine.safetensors").facts["client"]["name"] == "0"
