"""Studies and pipelines that were cut go on: what has finished is kept, and what was cut ends as if left alone."""

from __future__ import annotations

import json

import pytest

import plures
from plures import make_experiment, run_experiment
from plures.core.errors import InvalidConfig, RunFolderError
from plures.evaluate import Evaluator
from plures.recipes import resume_study
from plures.recipes.watching import Silence
from plures.report import records
from tests.recipes.helpers import table
from tests.recipes.resuming_helpers import assert_same_run, experiment_of
from tests.recipes.test_resuming import interrupted_at


class CutIn(Silence):
    """Ctrl-C after some round of some run, counted over all runs of a study or stages of a pipeline."""

    def __init__(self, run: int, round: int) -> None:
        self.run, self.round, self.runs = run, round, 0
        self.titles: list[str] = []

    def started(self, title, rounds, clients, shown) -> None:
        self.runs += 1
        self.titles.append(title)

    def round_done(self, report, metrics) -> None:
        if (self.runs, report.round) == (self.run, self.round):
            raise KeyboardInterrupt


NEVER = 99
ASKED = {"seeds": [0, 1], "beside": ["fedavg"]}


def cut_study(folder, experiment, *, run, round) -> None:
    with pytest.raises(KeyboardInterrupt):
        plures.run_study(experiment, out=folder, watcher=CutIn(run, round), **ASKED)


def test_a_study_goes_on_where_it_was_cut(tmp_path):
    experiment = experiment_of("fedper", rounds=3)
    alone = plures.run_study(experiment, out=tmp_path / "alone", **ASKED)
    cut_study(tmp_path / "cut", experiment, run=3, round=2)
    finished = (tmp_path / "cut" / "fedper" / "seed-0" / records.RESULT).stat().st_mtime_ns

    watcher = CutIn(NEVER, NEVER)
    found = resume_study(tmp_path / "cut", watcher=watcher)

    assert watcher.titles == ["fedper 1", "fedavg 1"]  # the two that had finished were not run again
    assert (tmp_path / "cut" / "fedper" / "seed-0" / records.RESULT).stat().st_mtime_ns == finished
    assert found.members == alone.members
    for member in alone.members:
        assert_same_run(tmp_path / "cut" / member.folder, tmp_path / "alone" / member.folder)


def test_a_study_does_not_go_on_as_another(tmp_path):
    experiment = experiment_of("fedper", rounds=3)
    cut_study(tmp_path / "cut", experiment, run=2, round=2)

    with pytest.raises(InvalidConfig, match="differs in seeds"):
        plures.run_study(experiment, out=tmp_path / "cut", seeds=[0, 2], beside=["fedavg"], resume=True)
    with pytest.raises(InvalidConfig, match="differs in experiment"):
        plures.run_study(experiment_of("fedper", rounds=4), out=tmp_path / "cut", resume=True, **ASKED)


def test_a_study_that_does_not_tell_what_it_was_asked_for_is_refused(tmp_path):
    (tmp_path / records.STUDY).write_text(json.dumps({"runs": [], "planned": []}), encoding="utf-8")

    with pytest.raises(RunFolderError, match="does not tell what the study was asked for"):
        resume_study(tmp_path)


# Pipelines


def piped(tmp_path, name):
    stages = {"pretrain": {"method": "fedavg", "rounds": 4}, "tune": {"budget": {"epochs": 2, "batch": 4}, "lr": 0.3}}
    changes = {"rounds": 4, "checkpoint": {"every": 1}, "evaluation": {"every": 2}}
    return make_experiment(table("fedalt", pipeline={**stages, "cache": str(tmp_path / name)}, **changes))


def without_places(folder):
    """result.json without where stage (a) lies, which is in another cache."""
    path = folder / records.RESULT
    result = records.read_result(folder)
    for stage in result["stages"]:
        stage.pop("folder"), stage.pop("reused")
    path.write_text(json.dumps(result), encoding="utf-8")
    experiment = folder / records.EXPERIMENT
    experiment.write_text(experiment.read_text(encoding="utf-8").replace("cut-cache", "cache"), encoding="utf-8")


@pytest.mark.parametrize(("stage", "round"), [(1, 2), (2, 3)], ids=["before", "in"])
def test_a_pipeline_goes_on_in_the_stage_that_it_was_in(tmp_path, stage, round):
    run_experiment(piped(tmp_path, "cache"), out=tmp_path / "alone")
    experiment = piped(tmp_path, "cut-cache")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "cut", watcher=CutIn(stage, round))

    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    for name in ("cut", "alone"):
        without_places(tmp_path / name)
    assert_same_run(tmp_path / "cut", tmp_path / "alone")


def test_a_pipeline_that_was_cut_while_it_fine_tuned_fine_tunes_again(tmp_path, monkeypatch):
    run_experiment(piped(tmp_path, "cache"), out=tmp_path / "alone")
    experiment = piped(tmp_path, "cut-cache")
    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "own_model", interrupted_at(Evaluator.own_model, 2))
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, out=tmp_path / "cut")
    assert records.read_result(tmp_path / "cut")["status"] == "finished"  # stage (b) was

    run_experiment(experiment, out=tmp_path / "cut", resume=True)

    for name in ("cut", "alone"):
        without_places(tmp_path / name)
    assert_same_run(tmp_path / "cut", tmp_path / "alone")
