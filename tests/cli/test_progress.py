"""How a run is shown as it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import os
import re

import pytest
from rich.console import Console

from plures import make_experiment, run_experiment, run_study
from plures.cli.progress import BarWatcher, LineWatcher, Pace, make_watcher
from plures.core.context import RoundReport

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


def test_lines_of_a_study_say_which_run_of_how_many(tmp_path):
    shown, file = console(terminal=False)

    run_study(make_experiment(TABLE), out=tmp_path / "study", seeds=2, beside=["local"], watcher=make_watcher(shown))

    first, *_, last = file.getvalue().splitlines()
    assert first == "fedavg 0: run 1 of 4, 2 rounds, 10 clients"
    assert last.endswith("0 s left, 0 s of all")
    assert "local 1: run 4 of 4" in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) <= 80


def test_a_bar_of_several_runs_has_a_line_for_all_of_them_that_does_not_stay(tmp_path):
    shown, file = console(terminal=True)
    watcher = BarWatcher(shown)
    watcher.next_run(2, 3)

    run_experiment(make_experiment(TABLE), title="Second", watcher=watcher)

    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert re.search(r"all runs .* 1/3", plain)
    assert "all runs" not in plain.splitlines()[-1]
    assert max(len(line.split("\r")[-1]) for line in plain.splitlines()) <= 80


def test_the_time_left_of_all_counts_runs_as_long_as_those_before():
    pace = Pace()
    pace.next_run(2, 4)
    pace.begin(10)
    pace.all_began, pace.began, pace.rounds_done = pace.began - 30, pace.began - 10, 5

    # ten more seconds of this one; two such took 30 + 10, so that two more take as many
    assert pace.left == pytest.approx(10, abs=0.1)
    assert pace.left_of_all == pytest.approx(10 + 40, abs=0.3)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_goes_away_does_not_end_the_run(terminal):
    reader, writer = os.pipe()
    os.close(reader)
    broken = open(writer, "w", buffering=1, encoding="utf-8")  # noqa: SIM115 - closed below, which fails too
    watcher = make_watcher(Console(file=broken, force_terminal=terminal, width=80))

    result = run_experiment(make_experiment(TABLE | {"evaluation": {"every": 1}}), watcher=watcher)

    assert result.status == "finished"
    assert watcher.console.file.gone
    with pytest.raises(BrokenPipeError):
        broken.close()


@pytest.mark.parametrize(
    ("metric", "score"), [("accuracy", "finetuned 100.0%"), ("perplexity", "finetuned perplexity 1.2e+05")]
)
def test_the_longest_bar_fits_80_columns_with_every_number(metric, score):
    shown, file = console(terminal=True)
    watcher = BarWatcher(shown)
    watcher.next_run(10, 100)
    watcher.started("a title that is far too long", 10_000, 10, f"finetuned/test/{metric}")
    pace = watcher.pace
    pace.score, pace.clients, pace.num_bytes, pace.began = score, 999_000_000, 999_900_000, pace.began - 1000

    watcher.round_done(RoundReport(round=1000, cohort=()), {})
    watcher.ended()

    line = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).splitlines()[-1].split("\r")[-1]
    assert len(line) <= 80
    for number in ("1/10000", score[:20], "999k cl/s", "999.9 MB", "2:30:00"):  # 9,000 rounds of a second each
        assert number in line
