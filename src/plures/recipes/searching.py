"""A search over the options of an experiment, judged on validation data alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig
from plures.recipes.build import configuration_of
from plures.recipes.experiment import Experiment, make_experiment, plain_table
from plures.recipes.folder import RunFolder
from plures.recipes.optuna_study import OptunaStudy, load_optuna
from plures.recipes.refitting import check_refit, earlier_refit, is_refit_of, run_refit
from plures.recipes.results import RunResult
from plures.recipes.search_checks import check_search
from plures.recipes.search_folder import (
    BEST,
    REFIT,
    STUDY_DB,
    TUNING,
    alone_in,
    check_same_search,
    write_trials,
)
from plures.recipes.search_space import Space, check_grid, num_points, read_space
from plures.recipes.stage_tables import SearchTable
from plures.recipes.targets import Target
from plures.recipes.trials import SearchSilence, SearchWatcher, Trial, TrialRunner, at_point

NO_PART = ("trials",)
"""Keys of [tune] that may change when a search goes on."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a search found."""

    folder: Path
    target: Target
    trials: tuple[Trial, ...]
    planned: int
    best: Trial | None
    """None: no trial has finished."""
    importance: Mapping[str, float]
    """The share of each key in what made trials differ; empty where that cannot be told."""
    settings: Mapping[str, Any]
    refit: Mapping[str, Any] | None = None
    """Where the refit is, what it comes to on test data, of which trial it is, and whether that is the best still."""

    @property
    def best_file(self) -> Path:
        """The best configuration, complete."""
        return self.folder / BEST

    def as_json(self) -> dict[str, Any]:
        """The content of tuning.json."""
        return {
            "version": version("plures"),
            "status": "finished" if len(self.trials) >= self.planned else "unfinished",
            "judged_by": f"{self.target.text}, weighted",
            "larger_is_better": self.target.larger_is_better,
            "planned": self.planned,
            **self.settings,
            "best": None if self.best is None else self.best.as_json() | {"file": str(self.best_file)},
            "importance": dict(self.importance),
            "trials": [trial.as_json() for trial in self.trials],
            "refit": self.refit,
        }


def search(
    experiment: Experiment,
    run: Callable[..., RunResult],
    *,
    out: Path,
    refits: int | None = None,
    watcher: SearchWatcher | None = None,
) -> Tuning:
    """Try points of the experiment's table [tune], or go on trying in a folder where that was begun."""
    load_optuna()
    table = experiment.tune
    if table is None:
        raise InvalidConfig(
            'The experiment has no table [tune.search], such as "method_options.lr" = [0.01, 0.1, 1.0].'
        )
    space = read_space(table.search)
    if table.sampler == "grid":
        check_grid(space)
    planned = min(table.trials, num_points(space) or table.trials)
    if refits is not None:
        check_refit(experiment, refits)
    target, fingerprint = check_search(experiment, space, table.metric)
    settings = settings_of(experiment, table, fingerprint)
    with alone_in(out):
        study = OptunaStudy(
            out / STUDY_DB, space, table, larger=target.larger_is_better, first_step=experiment.evaluation.every
        )
        try:
            searcher = Searcher(experiment, study, target, planned, settings, run, out, watcher or SearchSilence())
            return searcher.search(refits)
        finally:
            study.close()


def settings_of(experiment: Experiment, table: SearchTable, fingerprint: Mapping[str, str]) -> dict[str, Any]:
    """What trials depend on; a search goes on only where all of it is the same."""
    return {
        "tune": {key: value for key, value in table.model_dump(exclude_none=True).items() if key not in NO_PART},
        "experiment": plain_table(experiment),
        "data": dict(fingerprint),
    }


def with_search(experiment: Experiment, space: Mapping[str, Any] | None, **settings: Any) -> Experiment:
    """The experiment with its table [tune] replaced where something is given."""
    table = {} if experiment.tune is None else experiment.tune.model_dump(exclude_unset=True)
    table |= {key: value for key, value in settings.items() if value is not None}
    if space is not None:
        table["search"] = dict(space)
    return make_experiment(plain_table(experiment) | {"tune": table}) if table else experiment


class Searcher:
    """Runs trials until all are done, and keeps the folder's files true after each."""

    def __init__(
        self,
        experiment: Experiment,
        study: OptunaStudy,
        target: Target,
        planned: int,
        settings: Mapping[str, Any],
        run: Callable[..., RunResult],
        out: Path,
        watcher: SearchWatcher,
    ) -> None:
        self.experiment, self.study, self.target, self.planned = experiment, study, target, planned
        self.settings, self.run, self.out, self.watcher = settings, run, out, watcher
        before = study.search()
        if before is None:
            study.begin(settings)
        else:
            check_same_search(out, before, settings)
        self.trials = [Trial.from_json(record) for record in study.records()]
        self.refit = self.refit_from_before()

    @property
    def space(self) -> Space:
        return self.study.space

    @property
    def best(self) -> Trial | None:
        """Of equally good ones the first."""
        done = [trial for trial in self.trials if trial.is_finished]
        sign = 1 if self.target.larger_is_better else -1
        return max(done, key=lambda trial: sign * (trial.value or 0.0), default=None)

    def search(self, refits: int | None) -> Tuning:
        assert self.experiment.tune is not None
        runner = TrialRunner(
            experiment=self.experiment,
            run=self.run,
            target=self.target,
            seeds=self.experiment.tune.seeds,
            out=self.out,
            watcher=self.watcher,
        )
        self.write()
        self.watcher.search_started(self.target, len(self.trials), self.planned, self.refit is not None)
        while len(self.trials) < self.planned:
            self.one_more(runner)
        if refits is not None:
            self.refit = self.refitted(refits)
        return self.write(importance=self.study.importance())

    def refit_from_before(self) -> dict[str, Any] | None:
        """Found again from its runs, which are kept also where the command that made them was cut off."""
        found = earlier_refit(self.out / REFIT)
        if found is None:
            return None
        likely = sorted(self.trials, key=lambda trial: trial is not self.best)
        of = (t.number for t in likely if is_refit_of(found, at_point(self.experiment, t.options)))
        return found | {"trial": next(of, None)}

    def one_more(self, runner: TrialRunner) -> None:
        """A trial is kept once it is whole; one that is cut off is run again when the search goes on."""
        number, point = len(self.trials), self.study.ask()
        self.watcher.trial_started(number, self.planned, point)
        trial = runner(number, point, self.study.report)
        self.study.tell(trial.status, trial.value, trial.as_json())
        self.trials.append(trial)
        self.write()
        self.watcher.trial_ended(trial, self.planned, self.best)

    def refitted(self, seeds: int) -> dict[str, Any]:
        if self.best is None:
            raise InvalidConfig(f"No trial has finished, so that there is nothing to refit: see {self.out / TUNING}.")
        best = at_point(self.experiment, self.best.options)
        found = run_refit(best, self.run, out=self.out / REFIT, seeds=seeds, watcher=self.watcher)
        return found | {"trial": self.best.number}

    def write(self, importance: Mapping[str, float] | None = None) -> Tuning:
        """Bring every file up to date; each is whole at any moment."""
        best, refit = self.best, self.refit
        found = Tuning(
            folder=self.out,
            target=self.target,
            trials=tuple(self.trials),
            planned=max(self.planned, len(self.trials)),
            best=best,
            importance=importance or {},
            settings=self.settings,
            refit=refit and refit | {"of_best": best is not None and refit["trial"] == best.number},
        )
        folder = RunFolder.reopened(self.out)
        if found.best is not None:
            folder.write_text(BEST, configuration_of(at_point(self.experiment, found.best.options)))
        write_trials(self.out, found.trials, list(self.space))
        folder.write_json(TUNING, found.as_json())
        return found
