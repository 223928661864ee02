"""What was run: the resolved configuration of each label, and the fingerprints of each run."""

from __future__ import annotations

from dataclasses import dataclass

from plures.report import records
from plures.report.page.gathered import Gathered, Labelled
from plures.report.studies import reading

PRINTS = ("data", "split", "final_state")
FROM_PYTHON = "This run was started from Python, where no configuration is recorded."


@dataclass(frozen=True, kw_only=True)
class Configured:
    """One label as an experiment file, that of its first seed."""

    label: str
    text: str


def configurations(found: Gathered) -> list[Configured]:
    return [Configured(label=one.label, text=configuration_text(one)) for one in found.labels]


def configuration_text(one: Labelled) -> str:
    path = one.runs[0].folder / records.EXPERIMENT
    if not path.is_file():
        return FROM_PYTHON
    with reading(path):
        return path.read_text(encoding="utf-8")


FINGERPRINT_HEADING = ("label", "seed", "folder", "version", "status", "engine", *PRINTS)


def fingerprints(found: Gathered) -> list[list[str]]:
    """One row for each run."""
    return [
        [
            *(one.label, str(run.seed), str(run.folder)),
            *(str(run.result.get(key, "-")) for key in ("version", "status", "engine")),
            *(str(run.result["fingerprint"].get(key, "-")) for key in PRINTS),
        ]
        for one in found.labels
        for run in one.runs
    ]
