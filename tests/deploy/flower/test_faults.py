"""Nodes and servers that are killed in the midst of their work, and a node that sends NaN."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "plures[flower]"')

from plures.core.types import is_known
from plures.recipes import run_experiment
from tests.deploy.flower.processes import Machine
from tests.deploy.helpers import small
from tests.deploy.test_leaks import windows


def test_a_node_that_is_killed_comes_back_and_nan_is_refused(tmp_path: Path) -> None:
    tolerate = {"tolerate": {"least_cohort": 1, "deadline": 60.0}, "cohort": "all"}
    flag = tmp_path / "flag"
    with Machine(small("fedalt", rounds=7, **tolerate), tmp_path, quick=True) as machine:
        server = machine.server()
        killed = machine.node(0, pause=2, flag=str(flag))
        machine.node(1, nan=[1])
        machine.node(2, slow=1.5)
        machine.until(flag.exists, "the pause of a node in round 2")
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        machine.node(0)
        machine.ends(server, "server")
        lost = {line["round"]: {one["client"]: one for one in line.get("lost", ())} for line in machine.rounds()}
        assert list(lost) == [1, 2, 3, 4, 5, 6, 7]
        assert {client: one["kind"] for client, one in lost[1].items()} == {1: "diverged"}
        assert {client: one["kind"] for client, one in lost[2].items()} == {0: "gone"}, machine.all_said()
        assert all(set(lost[round]) <= {0} for round in range(3, 7))
        assert lost[7] == {}, "the node that was killed is back\n" + machine.all_said()
        assert f"{machine.names[0]} is back" in machine.said("server")


def test_an_answer_that_comes_in_part_keeps_nobody_waiting(tmp_path: Path) -> None:
    tolerate = {"tolerate": {"least_cohort": 2, "deadline": 12.0}, "cohort": "all"}
    with Machine(small("fedavg", rounds=2, **tolerate), tmp_path, quick=True) as machine:
        server = machine.server()
        for client in range(3):
            machine.node(client, **({"half": [1]} if client == 1 else {}))
        machine.ends(server, "server", 90)
        first, second = machine.rounds()
        assert {one["client"]: one["kind"] for one in first["lost"]} == {1: "late"}, machine.all_said()
        assert "lost" not in second, machine.all_said()


@pytest.mark.slow
def test_a_superlink_that_is_killed_is_started_again(tmp_path: Path) -> None:
    experiment = small("fedalt", rounds=3, cohort="all")
    with Machine(experiment, tmp_path, quick=True) as machine:
        server = machine.server()
        for client in range(3):
            machine.node(client, **({"slow": 6.0} if client == 1 else {}))
        machine.until(lambda: len(machine.rounds()) == 1, "round 2, in which a node works for 6 s")
        (number,) = superlinks(tmp_path)
        os.kill(number, signal.SIGKILL)
        machine.ends(server, "server", 180)
        machine.assert_as(run_experiment(experiment))
        assert "cannot be reached" in machine.said("server")


def superlinks(folder: Path) -> list[int]:
    """Processes whose database is in the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(b"superlink.db" in word and str(folder).encode() in word for word in words):
            found += [int(path.parent.name)] if b"guard.py" not in b" ".join(words) else []
    return found


def test_a_server_that_is_killed_goes_on_and_nothing_personal_was_ever_sent(tmp_path: Path) -> None:
    experiment = small("fedalt", rounds=3, cohort="all")
    flag = tmp_path / "flag"
    records = [tmp_path / f"record-{client}" for client in range(3)]
    with Machine(experiment, tmp_path, quick=True) as machine:
        first = machine.server()
        for client in range(3):
            how = {"pause": 2, "flag": str(flag)} if client == 1 else {}
            machine.node(client, record=str(records[client]), **how)
        machine.until(flag.exists, "round 2")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        machine.processes["node-1"].send_signal(signal.SIGTERM)  # in the midst of its work
        machine.ends(machine.processes["node-1"], "the node that worked", 15)
        machine.node(1, record=str(records[1]))
        machine.ends(machine.server("--resume"), "server")
        alone = run_experiment(experiment)
        machine.assert_as(alone)
        assert [line["round"] for line in machine.rounds()] == [1, 2, 3]

        sent = b"\x00".join(path.read_bytes() for path in records)
        parts = alone.program.binding(0).parts
        personal = {
            window
            for client in range(3)
            for name, value in (machine.kept(client)[0] or {}).items()
            if not is_known(parts[name]) and value.is_floating_point()
            for window in windows(value)
        }
        found = [window for window in personal if window in sent]
        assert len(personal) > 10
        assert not found, f"{len(found)} of {len(personal)} pieces of personal parameters"
        # The search finds what is there: the last shared part went to the nodes.
        assert all(window in sent for value in alone.server.shared.values() for window in windows(value))
