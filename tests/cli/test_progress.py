"""How a run is shown as it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re

from rich.console import Console

from plures import make_experiment, run_experiment
from plures.cli.progress import BarWatcher, LineWatcher, make_watcher

TABLE = {"method": "fedavg", "rounds": 2, "data": {"clients": 10}, "evaluation": {"every": 2}}


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=80, color_system=None), file


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines():
    assert isinstance(make_watcher(console(terminal=True)[0]), BarWatcher)
    assert isinstance(make_watcher(console(terminal=False)[0]), LineWatcher)


def test_lines_are_written_for_evaluated_rounds_only():
    shown, file = console(terminal=False)

    result = run_experiment(make_experiment(TABLE), watcher=make_watcher(shown))

    first, second = file.getvalue().splitlines()
    accuracy = 100 * result.metrics["global/test/accuracy"].weighted
    sent = (result.cost["bytes_down"] + result.cost["bytes_up"]) / 1000
    assert first == "fedavg: 2 rounds, 10 clients"
    assert re.fullmatch(rf"fedavg 2/2  \d+k? cl/s  global {accuracy:.1f}%  {sent:.1f} kB  \d+ s, 0 s left", second)


def test_the_bar_shows_title_rounds_rate_and_accuracy_within_80_columns():
    shown, file = console(terminal=True)

    result = run_experiment(make_experiment(TABLE), title="FedAvg", watcher=make_watcher(shown))

    last = [line for line in file.getvalue().splitlines() if "FedAvg" in line][-1]
    assert len(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last)) <= 80
    assert "2/2" in last
    assert "cl/s" in last
    assert f"global {100 * result.metrics['global/test/accuracy'].weighted:.1f}%" in last


def test_a_round_that_is_not_evaluated_keeps_the_accuracy_shown_before():
    shown, _ = console(terminal=True)
    watcher = BarWatcher(shown)

    run_experiment(
        make_experiment(TABLE | {"rounds": 3, "evaluation": {"every": 2, "splits": ["test"]}}), watcher=watcher
    )

    assert watcher.score.startswith("global ")


def test_one_watcher_shows_several_runs_under_each_other():
    shown, file = console(terminal=False)
    watcher = make_watcher(shown)

    for title in ("One", "Two"):
        run_experiment(make_experiment(TABLE | {"rounds": 1}), title=title, watcher=watcher)

    assert [line.split(":")[0].split()[0] for line in file.getvalue().splitlines()] == ["One", "One", "Two", "Two"]


def test_a_bar_for_the_next_run_does_not_write_those_before_it_again():
    shown, file = console(terminal=True)
    watcher = BarWatcher(shown)
    run_experiment(make_experiment(TABLE | {"rounds": 1}), title="First", watcher=watcher)
    before = len(file.getvalue())

    run_experiment(make_experiment(TABLE | {"rounds": 1}), title="Second", watcher=watcher)

    assert "Second" in file.getvalue()[before:]
    assert "First" not in file.getvalue()[before:]
