"""The page docs/deployment.md: its files are experiments, its units are units, and its first commands run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs plures[flower]")

from plures.deploy.described import table_of
from plures.recipes import make_experiment
from plures.report.toml_text import parse_toml
from tests.deploy.flower_proxy.test_proxy import PAGE, free_ports
from tests.docs.playing import blocks_of

BLOCKS = blocks_of(PAGE.read_text(encoding="utf-8"))


def test_every_file_of_the_page_is_an_experiment() -> None:
    files = [make_experiment(parse_toml(block.text)) for block in BLOCKS if block.language == "toml"]
    assert len(files) == 2
    assert table_of(files[1]).clients == ["north", "south", "west"]


@pytest.mark.slow
def test_the_first_commands_of_the_page_run(tmp_path: Path) -> None:
    """As they stand, but for the port and the number of rounds."""
    (first,) = [block.text for block in BLOCKS if block.text.startswith("# first.toml")]
    (commands,) = [block.text for block in BLOCKS if block.text.startswith("plures deploy split")]
    (tmp_path / "first.toml").write_text(first.replace("rounds = 10", "rounds = 2"), encoding="utf-8")
    port = free_ports()[0]
    script = commands.replace("--insecure", f"--insecure --superlink 127.0.0.1:{port}")
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**os.environ, **here},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=300)[1]
    finally:
        with suppress(ProcessLookupError):  # nobody is left where all went well
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    result = json.loads((tmp_path / "server" / "run" / "result.json").read_bytes())
    assert result["status"] == "finished"
    assert result["rounds_done"] == 2
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"0", "1", "2"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_units_of_the_page_are_units(tmp_path: Path) -> None:
    server, node = (block.text for block in BLOCKS if block.language == "ini")
    command = next(line for line in node.splitlines() if line.startswith("ExecStart="))
    lines = [line for line in server.splitlines() if not line.startswith("ConditionPathExists=")]
    as_node = "\n".join(command if line.startswith("ExecStart=") else line for line in lines)
    for name, text in {"server": server, "node": as_node}.items():
        unit = tmp_path / f"plures-{name}.service"
        unit.write_text(text.replace("/opt/plures/bin/plures", shutil.which("true") or "/bin/true"), encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
