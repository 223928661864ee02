"""The benchmark of the wire: what it says, and the status it leaves with."""

from __future__ import annotations

import json
import platform
from datetime import date

import pytest
import torch

from benchmarks import wire


@pytest.fixture
def measured(monkeypatch):
    """Runs the command as if the wires had taken so many milliseconds beside a second of training."""

    def use(first, *options):
        rows = [wire.row("exact, measured", (10, 20), first / 1000, 1.0), wire.row("int8", (5, 5), 0.5, 1.0)]
        result = {"machine": wire.machine(), "target_percent": 5.0, "client_seconds": 1.0, "wires": rows}
        monkeypatch.setattr(wire, "measure", lambda: result | wire.occasion())
        monkeypatch.setattr("sys.argv", ["benchmarks/wire.py", *options])
        return wire.main()

    threads = torch.get_num_threads()
    yield use
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("first", "status"), [(49.9, 0), (50.0, 1), (900.0, 1), (float("nan"), 1)])
def test_a_missed_target_is_told_and_fails_the_command_after_its_table(measured, capsys, first, status):
    """5 % of a second are 50 milliseconds; the target is about the first row alone."""
    assert measured(first) == status
    told = capsys.readouterr()
    assert "exact, measured" in told.out
    assert ("MISSED" in told.out) == (told.err.startswith("Target missed: 'exact, measured' takes")) == bool(status)


def test_the_last_line_names_command_torch_machine_and_date(measured, capsys):
    measured(1.0)
    (*_, last) = capsys.readouterr().out.strip().splitlines()
    today = date.today().isoformat()
    assert last == f"python benchmarks/wire.py, torch {torch.__version__}, {platform.machine()}, {today}"


def test_figures_for_programs_have_all_of_it_too(measured, capsys):
    assert measured(900.0, "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert result["command"] == "python benchmarks/wire.py --json"
    assert result["wires"][0]["percent"] == 90.0
