"""While runs go on, their folders say so, and afterwards they do not."""

from __future__ import annotations

import json
import os

import pytest

from plures import make_experiment, run_experiment, run_study
from plures.recipes.watching import Silence
from plures.report.run_states import state_of
from plures.report.running import read_running
from tests.recipes.helpers import table


class Looker(Silence):
    """Looks at folders after each round; stops the run if told so."""

    def __init__(self, *folders, stop=False):
        self.folders, self.stop, self.seen, self.counted = folders, stop, [], []

    def next_run(self, number, total):
        self.counted.append((number, total))

    def round_done(self, report, metrics):
        self.seen.append([read_running(folder) for folder in self.folders])
        if self.stop:
            raise KeyboardInterrupt


def test_a_run_says_which_process_runs_it_and_what_it_was_asked_for(tmp_path):
    watcher = Looker(tmp_path / "run")

    run_experiment(make_experiment(table("fedalt", seed=4)), out=tmp_path / "run", title="mine", watcher=watcher)

    (running,) = watcher.seen[0]
    assert running.process.pid == os.getpid()
    assert running.facts == {
        "title": "mine",
        "method": "fedalt",
        "seed": 4,
        "rounds": 2,
        "clients": 4,
        "shown": "personal/test/accuracy",
    }
    assert read_running(tmp_path / "run") is None


def test_a_run_that_is_interrupted_runs_no_more(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(make_experiment(table()), out=tmp_path / "run", watcher=Looker(tmp_path / "run", stop=True))

    assert not (tmp_path / "run/running.json").exists()
    assert state_of(tmp_path / "run").state == "interrupted"


def test_a_study_says_how_many_runs_it_has_and_counts_them(tmp_path):
    study = tmp_path / "study"
    watcher = Looker(study, study / "fedavg/seed-0")

    run_study(make_experiment(table(rounds=1)), out=study, seeds=2, beside=["local"], watcher=watcher)

    assert [whole.facts for whole, _ in watcher.seen] == [{"runs": 4}] * 4
    assert [one is not None for _, one in watcher.seen] == [True, False, False, False]
    assert watcher.counted == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert list(study.rglob("running.json")) == []


def test_a_study_that_is_interrupted_runs_no_more(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_study(make_experiment(table()), out=tmp_path / "study", seeds=2, watcher=Looker(tmp_path, stop=True))

    assert list(tmp_path.rglob("running.json")) == []


def test_a_pipeline_goes_on_while_it_tunes(tmp_path, monkeypatch):
    from plures.recipes import pipeline

    seen = []

    def spying(result, *args):
        seen.append((state_of(result.folder).state, read_running(result.folder).facts["title"]))
        return original(result, *args)

    original = pipeline.tuned
    monkeypatch.setattr(pipeline, "tuned", spying)
    tune = {"tune": {"budget": {"epochs": 1, "batch": 32}}}

    run_experiment(make_experiment(table("fedalt", pipeline=tune)), out=tmp_path / "run")

    assert seen == [("running", "fedalt")]
    assert state_of(tmp_path / "run").state == "finished"
    assert json.loads((tmp_path / "run/result.json").read_text(encoding="utf-8"))["headline"] == "finetuned"
