"""A reproduction in real processes: what is missing runs, what was cut goes on, what fails is told."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from plures.papers import running
from plures.papers.blocks import Entry
from plures.papers.paces import USUAL_RATE, rate_of, rates_here, rates_of, work
from plures.papers.planning import Job, estimated, missing_jobs
from plures.papers.reading import entry, last
from plures.papers.running import Reproduction
from plures.papers.store import Shelf, Store
from plures.recipes import run_experiment
from plures.report import records
from tests.papers.made_up import MADE, METRIC, OWN, PAPER, cell, outcome


class Watching:
    """Remembers what it is told, and may stop the whole."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.told: list[tuple[str, str | None]] = []
        self.stop_after = stop_after

    def began(self, job: Job) -> None: ...

    def goes_on(self, job: Job, rounds_done: int, rounds: int) -> None:
        if self.stop_after is not None and rounds_done >= self.stop_after:
            raise KeyboardInterrupt

    def ended(self, job: Job, failure: str | None) -> None:
        self.told.append((job.cell.row, failure))


def job_of(one) -> Job:
    return Job(recipe="table-1", cell=one, seed=0, key=one.key(0))


def test_a_run_that_was_cut_goes_on_and_a_failing_one_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    store = Store(folder=tmp_path / "out")
    long = cell("long", rounds=120, checkpoint={"every": 1})
    failing = cell("failing", method_options={"lr": -1.0})

    with pytest.raises(KeyboardInterrupt):
        Reproduction(store=store, runs=tmp_path / "runs", at_once=2, watcher=Watching(stop_after=2)).run([job_of(long)])
    assert store.outcome(long.key(0)) is None
    watching = Watching()
    second = Reproduction(store=store, runs=tmp_path / "runs", at_once=2, watcher=watching)
    second.run([job_of(long), job_of(failing)])

    found = Shelf(store=store, scale="micro").outcomes(long)[0]
    alone = run_experiment(long.experiment(0))
    assert found.last(METRIC) == pytest.approx(alone.metrics[METRIC].weighted, abs=1e-6)
    assert found.curve(METRIC)[0] == list(range(1, 121))
    assert list(second.failures) == ["table-1: failing, digits"]
    assert "lr" in second.failures["table-1: failing, digits"]
    assert dict(watching.told)["long"] is None


def test_a_run_that_diverges_has_an_outcome_that_says_so_and_is_not_run_again(tmp_path):
    wild = cell("wild", rounds=50, method_options={"lr": 1e30})
    reproduction = Reproduction(
        store=Store(folder=tmp_path / "out"), runs=tmp_path / "runs", at_once=1, watcher=Watching()
    )

    reproduction.run([job_of(wild)])

    store = Store(folder=tmp_path / "out")
    found = Shelf(store=store, scale="micro")
    assert reproduction.failures == {}
    assert found.outcomes(wild)[0].status == "diverged"
    assert "not finite numbers" in found.outcomes(wild)[0].facts["diverged"]
    assert entry(found, wild, last(METRIC), 90.0) == Entry(measured="diverged", published=90.0)
    recipe = replace(PAPER.recipes[0], cells=lambda scale: [wild])
    assert missing_jobs([recipe], "micro", 1, store) == ([], 1)


def test_a_run_stops_at_a_whole_round_even_where_the_reproduction_was_started_with_ctrl_c_ignored(
    tmp_path, monkeypatch
):
    """As `nohup plures paper ... &` in a script: what is started there inherits that."""
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    store, long = Store(folder=tmp_path / "out"), cell("long", rounds=4000)
    reproduction = Reproduction(store=store, runs=tmp_path / "runs", at_once=2, watcher=Watching(stop_after=2))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            reproduction.run([job_of(long)])
    finally:
        signal.signal(signal.SIGINT, before)

    assert store.outcome(long.key(0)) is None
    assert records.read_result(tmp_path / "runs" / long.key(0))["status"] == "interrupted"


def test_cells_with_one_first_stage_train_it_once_and_know_what_it_came_to(tmp_path):
    store = Store(folder=tmp_path / "out")
    pipeline = {"pretrain": {"method": "fedavg", "rounds": 2}}
    cells = [cell(str(rounds), "fedalt", rounds=rounds, pipeline=pipeline) for rounds in (1, 2)]
    recipe = replace(PAPER.recipes[0], cells=lambda scale: cells)
    jobs, _ = missing_jobs([recipe], "micro", 1, store)
    assert jobs[0].waits_for == jobs[1].waits_for is not None

    Reproduction(store=store, runs=tmp_path / "runs", at_once=2, watcher=Watching()).run(jobs)

    assert len(list((tmp_path / "runs" / "pretrained").iterdir())) == 1
    first, second = (Shelf(store=store, scale="micro").outcomes(one)[0] for one in cells)
    assert first.last("stage_a/test/accuracy") == second.last("stage_a/test/accuracy") > 0
    assert first.scores("stage_a", "test") is not None
    assert [stage["stage"] for stage in first.facts["stages"]] == ["pretrain", "personal"]
    assert str(tmp_path) not in store.path(cells[0].key(0)).read_text("utf-8")


def test_time_is_estimated_from_operations_counted_once(tmp_path):
    jobs = [job_of(OWN), job_of(cell("more", rounds=20))]

    short, long = estimated(jobs, [], tmp_path / "operations.json")

    # As many clients in ten times as many rounds.
    notes = (tmp_path / "operations.json").read_text("utf-8")
    assert long.seconds > short.seconds
    again = estimated(jobs, [], tmp_path / "operations.json")
    assert [job.seconds for job in again] == [short.seconds, long.seconds]
    assert (tmp_path / "operations.json").read_text("utf-8") == notes


def test_the_speed_of_runs_before_is_that_of_the_same_network_and_method():
    slow = replace(outcome([0.5], method="local"), made=replace(MADE, seconds=10.0))
    fast = replace(outcome([0.5], method="pflego"), made=replace(MADE, seconds=1.0))
    wide = replace(slow, experiment={"method": "local", "model": {"name": "mlp", "hidden": [800]}})
    wide = replace(wide, cost={"dense_flops": 9e9}, made=replace(MADE, seconds=1.0))

    rates = rates_of([slow, fast, wide])

    # 1e9 operations in 10 seconds and in one, 9e9 in one; a method that has not run takes the median of the others on
    # its network, a width that has not run that of its method on other widths.
    assert rate_of(rates, cell("a", "local").experiment(0)) == 1e8
    assert rate_of(rates, cell("a", "pflego").experiment(0)) == 1e9
    assert rate_of(rates, cell("a", "local", model={"name": "mlp", "hidden": [800]}).experiment(0)) == 9e9
    assert rate_of(rates, cell("a", "local", model={"name": "mlp", "hidden": [64]}).experiment(0)) == (1e8 + 9e9) / 2
    assert rate_of(rates, cell("a", "fedavg").experiment(0)) == (1e8 + 1e9) / 2
    assert rate_of(rates, cell("a", model={"name": "lenet5"}).experiment(0)) == USUAL_RATE


def test_runs_on_this_machine_count_first_and_tell_how_much_faster_it_is():
    def made(method: str, machine: str, seconds: float):
        return replace(outcome([0.5], method=method), made=replace(MADE, machine=machine, seconds=seconds))

    old = [made("local", "old", 10.0), made("pflego", "old", 2.0)]
    rates = rates_here([*old, made("local", "new", 2.5)], "new")

    # 1e9 operations each: the new machine is 4 times as fast at what both have run, and so, it is taken, at the rest.
    assert rate_of(rates, cell("a", "local").experiment(0)) == 1e9 / 2.5
    assert rate_of(rates, cell("a", "pflego").experiment(0)) == 4 * 1e9 / 2.0
    assert rates_here(old, "new") == rates_of(old)


def test_masks_save_no_time():
    """Half of the operations count for the paper's tables; a processor does them all."""
    sparse = replace(outcome([0.5]), cost={"flops": 5e8, "dense_flops": 1e9, "search_flops": 1e8})

    assert work(sparse.cost) == 1.1e9
