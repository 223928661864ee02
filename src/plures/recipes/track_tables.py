"""The table [track] of an experiment file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from plures.core.errors import InvalidConfig, did_you_mean
from plures.recipes.tables import Table
from plures.recipes.tracking import TRACKERS, Tracker, make_tracker


class TensorBoardTable(Table):
    """Scalars for TensorBoard."""

    folder: str | None = None
    """None: `tensorboard` in the run folder."""


class WandbTable(Table):
    """A run of Weights & Biases."""

    project: str = "plures"
    name: str | None = None
    """None: the run folder."""
    entity: str | None = None
    group: str | None = None
    tags: list[str] = []
    mode: Literal["online", "offline"] | None = None
    """None: as WANDB_MODE says."""
    folder: str | None = None
    """Where its files go; None: ./wandb."""


class MlflowTable(Table):
    """A run of MLflow."""

    uri: str | None = None
    """None: as MLFLOW_TRACKING_URI says."""
    experiment: str = "plures"
    name: str | None = None
    """None: the run folder."""


class Track(Table):
    """Who is told the numbers of a run as it goes; true, or a table of options."""

    tensorboard: bool | TensorBoardTable = False
    wandb: bool | WandbTable = False
    mlflow: bool | MlflowTable = False

    def asked(self) -> dict[str, dict[str, Any]]:
        """The trackers that are wanted, with the options given."""
        given = {name: getattr(self, name) for name in TRACKERS}
        return {
            name: {} if value is True else value.model_dump(exclude_unset=True)
            for name, value in given.items()
            if value is not False
        }

    def also(self, names: Sequence[str]) -> Track:
        """With these too; what a file says of one of them stays."""
        unknown = [name for name in names if name not in TRACKERS]
        if unknown:
            raise InvalidConfig(f"There is no tracker '{unknown[0]}'. {did_you_mean(unknown[0], TRACKERS)}")
        return self.model_copy(update={name: True for name in names if getattr(self, name) is False})


def make_trackers(track: Track) -> list[Tracker]:
    """The trackers of a file; a package that is missing is an error here."""
    return [make_tracker(name, **options) for name, options in track.asked().items()]
