"""Studies that have fewer runs than were planned: cut, or still under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plures.report import records
from plures.report.nearby import study_of
from plures.report.running import read_running
from plures.report.studies import reading

MOST_NAMED = 6
"""Of the runs that are missing, so many are named."""


@dataclass(frozen=True, kw_only=True)
class CutStudy:
    """What a study lacks."""

    folder: Path
    planned: int
    missing: tuple[tuple[str, int], ...]
    """Labels and seeds."""
    goes_on: bool
    """Whether it is still under way, as far as anybody knows."""

    def text(self) -> str:
        what = "goes on" if self.goes_on else "was cut"
        there = self.planned - len(self.missing)
        named = ", ".join(f"{label} seed {seed}" for label, seed in self.missing[:MOST_NAMED])
        more = len(self.missing) - MOST_NAMED
        return (
            f"The study {self.folder} {what}: {there} of {self.planned} runs are there; missing: {named}"
            f"{f' and {more} more' if more > 0 else ''}."
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "study": str(self.folder),
            "goes_on": self.goes_on,
            "planned": self.planned,
            "missing": [{"label": label, "seed": seed} for label, seed in self.missing],
        }


def cut_studies(paths: Sequence[Path]) -> tuple[CutStudy, ...]:
    """Of folders on the command line; a study that does not tell what was planned is taken as whole."""
    found = [lacking(path) for path in paths if (path / records.STUDY).is_file()]
    return tuple(one for one in found if one.missing)


def lacking(folder: Path) -> CutStudy:
    table = study_of(folder)
    with reading(folder / records.STUDY):
        there = {str(entry["folder"]) for entry in table["runs"]}
        planned = [
            (str(entry["label"]), int(entry["seed"]), str(entry["folder"])) for entry in table.get("planned", [])
        ]
    missing = tuple((label, seed) for label, seed, where in planned if where not in there)
    running = read_running(folder)
    goes_on = running is not None and not running.is_dead()
    return CutStudy(folder=folder, planned=len(planned), missing=missing, goes_on=goes_on)
