"""The one place that knows Optuna: asks its samplers and pruners, and keeps whole trials in its storage.

Trials are kept in SQLite, which commits each of them as one transaction: a search that is killed at any moment has
every trial whole or not at all, while a journal file may end in half a line and keep its lock. The trial under way is
held in memory alone. A sampler is made anew for each trial, with a seed of its own, so that what it draws depends on
the trials before it and on nothing else: a search that goes on later draws what it would have drawn.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from plures.core.errors import InvalidConfig, RunFolderError
from plures.core.seeds import derive_seed
from plures.recipes.search_space import Choice, Point, Range, Space, grid, num_points, stepped
from plures.recipes.stage_tables import SearchTable

STUDY_NAME = "plures"
RECORD, SEARCH = "record", "search"
ENOUGH = 8
"""Finished trials, below which nothing is said of what mattered."""

DRAWS = 16
"""So often a sampler is asked for a point that was not tried."""

State = Literal["finished", "stopped", "diverged", "failed"]


def load_optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise InvalidConfig(
            'Searching needs the package optuna, which is not installed: pip install "plures[tune]".'
        ) from error
    return optuna


class OptunaStudy:
    """Asks for points, is told how they fare, and keeps what was found."""

    def __init__(self, path: Path, space: Space, table: SearchTable, *, larger: bool, first_step: int) -> None:
        self.optuna, self.path, self.space, self.table = load_optuna(), path, space, table
        self.direction = "maximize" if larger else "minimize"
        self.trial: Any = None
        with self._reading():
            if not path.is_file():
                self._make(path)
            self.storage, self.kept = self._open(path)
            self.now = self.optuna.create_study(direction=self.direction, pruner=self._pruner(first_step))
            for trial in self.kept.trials:
                self.now.add_trial(trial)

    def _make(self, path: Path) -> None:
        """The file is there once it is whole."""
        partial = path.with_name(partial_name(path))
        for rest in path.parent.glob(f"{partial.name}*"):  # of one that was killed, with its journal
            rest.unlink()
        self._open(partial)[0].engine.dispose()
        partial.replace(path)

    def _open(self, path: Path) -> tuple[Any, Any]:
        storage = self.optuna.storages.RDBStorage(address(path))
        kept = self.optuna.create_study(
            storage=storage, study_name=STUDY_NAME, direction=self.direction, load_if_exists=True
        )
        return storage, kept

    @property
    def num_kept(self) -> int:
        return len(self.now.trials)

    def search(self) -> dict[str, Any] | None:
        """What the search in the folder is about; None: it is new."""
        with self._reading():
            found: dict[str, Any] | None = self.kept.user_attrs.get(SEARCH)
        return found

    def begin(self, search: Mapping[str, Any]) -> None:
        with self._reading():
            self.kept.set_user_attr(SEARCH, dict(search))

    def records(self) -> list[dict[str, Any]]:
        """What was kept of each trial, by number."""
        return [dict(trial.user_attrs[RECORD]) for trial in self.now.trials if RECORD in trial.user_attrs]

    def ask(self) -> Point:
        """The next point; where points can be counted, one that was not tried."""
        number = self.num_kept
        with self._quiet():
            self.now.sampler = self._sampler(number)
            if num_points(self.space) is not None:
                self.now.enqueue_trial({key: encoded(value) for key, value in self._untried().items()})
            self.trial = self.now.ask(self._distributions())
        return self._point(self.trial)

    def _untried(self) -> Point:
        """What the sampler draws, unless it comes back to the same points again and again."""
        tried = {text_of(record["options"]) for record in self.records()}
        if self.table.sampler != "grid":
            draft = self.optuna.create_study(direction=self.direction, sampler=self.now.sampler)
            draft.add_trials(self.now.trials)
            for _ in range(DRAWS):
                point = self._point(draft.ask(self._distributions()))
                if text_of(point) not in tried:
                    return point
        return next(point for point in grid(self.space) if text_of(point) not in tried)

    def _distributions(self) -> dict[str, Any]:
        return {key: self._distribution(values) for key, values in self.space.items()}

    def _point(self, trial: Any) -> Point:
        return {key: decoded(self.space[key], trial.params[key]) for key in self.space}

    def report(self, step: int, value: float) -> bool:
        """A value on the way; whether the trial is not worth going on with."""
        with self._quiet():
            self.trial.report(value, step)
            return bool(self.trial.should_prune())

    def tell(self, state: State, value: float | None, record: Mapping[str, Any]) -> None:
        """The end of a trial, which is kept as a whole.

        One that diverged counts as stopped: samplers then take it for a bad one, while they forget those that failed.
        """
        states = self.optuna.trial.TrialState
        as_told = {"finished": states.COMPLETE, "failed": states.FAIL}.get(state, states.PRUNED)
        with self._quiet():
            self.trial.set_user_attr(RECORD, dict(record))
            ended = self.now.tell(self.trial, value if state == "finished" else None, state=as_told)
        with self._reading():
            self.kept.add_trial(ended)

    def importance(self) -> dict[str, float]:
        """The share of each key in what made trials differ, by fANOVA (Hutter et al. 2014)."""
        done = [trial for trial in self.now.trials if trial.state == self.optuna.trial.TrialState.COMPLETE]
        if len(done) < ENOUGH or len(self.space) < 2 or len({trial.value for trial in done}) < 2:
            return {}
        with self._quiet():
            evaluator = self.optuna.importance.FanovaImportanceEvaluator(seed=0)
            try:
                found = self.optuna.importance.get_param_importances(self.now, evaluator=evaluator)
            except (RuntimeError, ValueError):  # too few trials differ
                return {}
        return {key: float(share) for key, share in found.items()}

    def close(self) -> None:
        self.storage.remove_session()
        self.storage.engine.dispose()

    def _sampler(self, number: int) -> Any:
        seed = derive_seed(self.table.seed, "tune", number) % 2**32
        samplers = self.optuna.samplers
        return samplers.TPESampler(seed=seed) if self.table.sampler == "tpe" else samplers.RandomSampler(seed=seed)

    def _pruner(self, first_step: int) -> Any:
        pruners = self.optuna.pruners
        if self.table.pruner == "median":
            return pruners.MedianPruner(n_warmup_steps=self.table.warmup)
        if self.table.pruner == "halving":
            least = max(first_step, self.table.warmup)
            return pruners.SuccessiveHalvingPruner(min_resource=least, reduction_factor=2)
        return pruners.NopPruner()

    def _distribution(self, values: Choice | Range) -> Any:
        kinds = self.optuna.distributions
        if isinstance(values, Choice):
            return kinds.CategoricalDistribution([encoded(value) for value in values.values])
        if values.whole:
            return kinds.IntDistribution(values.low, values.high, log=values.log, step=int(values.step or 1))
        return kinds.FloatDistribution(values.low, values.high, log=values.log, step=values.step)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Nothing of its log and of its warnings about trial features reaches the user."""
        logging = self.optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self.optuna.exceptions.ExperimentalWarning)
                yield
        finally:
            logging.set_verbosity(before)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What goes wrong with the file is one error that names it."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._quiet():
                yield
        except (SQLAlchemyError, self.optuna.exceptions.StorageInternalError, RuntimeError) as error:
            raise RunFolderError(
                f"{self.path} cannot be used as the study of a search ({str(error).splitlines()[0]}). "
                "Restore it, or begin anew in another folder with --out."
            ) from error


def address(path: Path) -> str:
    """The file as Optuna asks for it, whatever signs its path has; it takes braces for its own."""
    from sqlalchemy import URL

    text = URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
    return text.replace("{", "{{").replace("}", "}}")


def partial_name(path: Path) -> str:
    return f".{path.name}.partial"


def text_of(point: Point) -> str:
    """The same for the same values, whatever the order of keys."""
    return json.dumps(point, sort_keys=True, default=str)


def encoded(value: Any) -> Any:
    """Samplers choose between plain values; lists and tables are told apart by their text."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value, default=str)


def decoded(values: Choice | Range, drawn: Any) -> Any:
    if isinstance(values, Range):
        if values.step is None:
            return drawn
        # The same bits as in a grid, whatever way the sampler came to the step.
        return stepped(values.low, round((drawn - values.low) / values.step), values.step)
    return next(value for value in values.values if encoded(value) == drawn)
