"""What a run folder has to go on from, and to be loaded from: read once, for all that is said of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from plures.core.errors import PluresError, RunFolderError
from plures.recipes.checkpoints import Manifest, checkpoints_in, read_manifest
from plures.recipes.doctor_states import States, look_at_states
from plures.recipes.experiment import Experiment, load_experiment
from plures.recipes.folder_reading import read_result
from plures.recipes.resuming import checked
from plures.report import records


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint, whole or not."""

    path: Path
    """Of its manifest."""
    manifest: Manifest | None
    """None: it cannot be read."""
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{records.CHECKPOINTS}/{self.path.stem}"

    @property
    def files(self) -> tuple[Path, Path]:
        """The manifest first: without it there is no checkpoint."""
        return self.path, self.path.with_suffix(".safetensors")

    @property
    def round(self) -> int:
        return -1 if self.manifest is None else self.manifest.round

    @property
    def has_states(self) -> bool:
        return self.manifest is not None and self.manifest.has_states


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A run folder in which nobody works."""

    folder: Path
    experiment: Experiment | None
    """None: it cannot be read, or the run was made from code."""
    experiment_problem: str
    result: Mapping[str, Any] | None
    result_problem: str
    checkpoints: Sequence[Checkpoint]
    """The newest first."""
    states: States

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    @property
    def rounds_done(self) -> int | None:
        return None if self.result is None else int(self.result["rounds_done"])

    @cached_property
    def whole(self) -> list[Checkpoint]:
        """With all that they need but, maybe, some clients' states."""
        return [one for one in self.checkpoints if not one.problem]

    def serves(self, one: Checkpoint) -> bool:
        """Whether a whole checkpoint has everybody's state, be it in a damaged file."""
        return not one.has_states or self.states.serve(one.round)

    @property
    def store_is_whole(self) -> bool:
        return self.states.damage is not None and self.states.damage.is_whole

    @cached_property
    def usable(self) -> Checkpoint | None:
        """The newest one from which a run can go on, maybe after a repair."""
        return next((one for one in self.whole if self.serves(one)), None)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do; a pipeline has told of its stages then."""
        if self.result is None or self.result["status"] != "finished":
            return False
        staged = self.experiment is not None and self.experiment.pipeline is not None
        return not staged or "stages" in self.result

    @property
    def keeps_in_store(self) -> bool:
        """Whether clients' states are in clients.sqlite alone, for they are many."""
        return self.result is not None and not self.has(records.PERSONAL) and self.has(records.STATES)

    @property
    def never_kept(self) -> bool:
        """A run that came neither to a checkpoint nor to an end."""
        return not self.checkpoints and not self.has(records.RESULT)


def look(folder: Path) -> Seen:
    experiment, experiment_problem = None, ""
    if (folder / records.EXPERIMENT).is_file():
        try:
            experiment = load_experiment(folder / records.EXPERIMENT)
        except PluresError as error:
            experiment_problem = str(error)
    result, result_problem = None, ""
    if (folder / records.RESULT).is_file():
        try:
            result = read_result(folder)
        except RunFolderError as error:
            result_problem = str(error)
    checkpoints = [look_at_checkpoint(folder, path) for path in checkpoints_in(folder)]
    rounds = [one.round for one in checkpoints if not one.problem and one.has_states]
    states = look_at_states(folder, [*rounds, *([] if result is None else [result["rounds_done"]])])
    return Seen(
        folder=folder,
        experiment=experiment,
        experiment_problem=experiment_problem,
        result=result,
        result_problem=result_problem,
        checkpoints=[with_states(one, states) for one in checkpoints],
        states=states,
    )


def look_at_checkpoint(folder: Path, path: Path) -> Checkpoint:
    manifest = None
    try:
        manifest = read_manifest(path)
        checked(folder, path)
    except RunFolderError as error:
        return Checkpoint(path=path, manifest=manifest, problem=str(error))
    return Checkpoint(path=path, manifest=manifest)


def with_states(one: Checkpoint, states: States) -> Checkpoint:
    """A file of states that goes not so far, or not so far back, makes a checkpoint useless."""
    opened = states.damage is not None and not states.damage.unopened
    if one.problem or not one.has_states or not opened or states.lost[one.round] is not None:
        return one
    return replace(one, problem=f"{records.STATES} has no states of round {one.round}.")
