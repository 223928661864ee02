"""TensorBoard: event files, by default in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard.writer import SummaryWriter

from plures.core.errors import InvalidConfig
from plures.recipes.results import Status
from plures.recipes.tracking import TrackedRun
from plures.report import records


class TensorBoard:
    """Writes scalars; `tensorboard --logdir runs` shows them all."""

    name = "tensorboard"

    def __init__(self, *, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.run: TrackedRun | None = None
        self.writer: SummaryWriter | None = None

    def started(self, run: TrackedRun) -> None:
        if self.folder is None and run.folder is None:
            raise InvalidConfig("The tracker tensorboard needs a folder where the run has none: folder = 'events'.")
        self.run = run

    def _open(self) -> SummaryWriter:
        """Not before the first round: the run folder is new, and worker processes should not inherit its thread."""
        if self.writer is None:
            assert self.run is not None
            done = self.run.rounds_done
            self.writer = SummaryWriter(str(self._place(self.run)), purge_step=done + 1 if done else None)
            if self.run.configuration is not None and not done:
                self.writer.add_text("configuration", indented(self.run.configuration))
        return self.writer

    def _place(self, run: TrackedRun) -> Path:
        if self.folder is not None:
            path = Path(run.name)
            return self.folder.joinpath(*(part for part in path.parts if part not in (path.anchor, "..")))
        assert run.folder is not None
        return run.folder / records.TENSORBOARD

    def round_done(self, round: int, numbers: Mapping[str, float]) -> None:
        writer = self._open()
        for name, value in numbers.items():
            writer.add_scalar(name, value, round)
        writer.flush()

    def ended(self, status: Status, numbers: Mapping[str, float]) -> None:
        if self.run is None:
            return
        writer = self._open()
        told = "\n".join([f"status = {status}", *(f"{name} = {value:.6g}" for name, value in numbers.items())])
        writer.add_text("result", indented(told))
        writer.close()


def indented(text: str) -> str:
    """As Markdown shows plain text."""
    return "\n".join(f"    {line}" for line in text.splitlines())
