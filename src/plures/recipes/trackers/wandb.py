"""Weights & Biases: a run there for each run here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import wandb

from plures.recipes.results import Status
from plures.recipes.tracking import TrackedRun


class Wandb:
    """Logs to a project; with mode = "offline" to files that `wandb sync` sends later."""

    name = "wandb"

    def __init__(
        self,
        *,
        project: str = "plures",
        name: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        mode: Literal["online", "offline"] | None = None,
        folder: str | None = None,
    ) -> None:
        self.settings: dict[str, Any] = {
            "project": project,
            "entity": entity,
            "group": group,
            "mode": mode,
            "dir": folder,
        }
        self.run_name, self.tags = name, list(tags)
        self.run: Any = None

    def started(self, run: TrackedRun) -> None:
        configuration = {} if run.configuration is None else tomllib.loads(run.configuration)
        self.run = wandb.init(
            **self.settings,
            name=self.run_name or run.name,
            tags=self.tags or None,
            config={**configuration, **run.facts},
            id=run.keys.get(self.name),
            resume="allow" if self.name in run.keys else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
        )

    @property
    def key(self) -> str:
        return str(self.run.id)

    def round_done(self, round: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=round)

    def ended(self, status: Status, numbers: Mapping[str, float]) -> None:
        if self.run is not None:
            self.run.summary.update({"status": status, **numbers})
            self.run.finish(exit_code=0 if status == "finished" else 1)
