"""From folders on the command line to what a comparison or a page is of: labels in order, and their reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plures.report.baselines import LOOKED_FOR, Beside, baselines_first, look_beside
from plures.report.conditions import differences_text
from plures.report.cut_studies import CutStudy, cut_studies
from plures.report.references import labelled_reference, read_with_reference, usual_reference
from plures.report.studies import Series, distinct


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is compared with what."""

    series: tuple[Series, ...]
    """Local and FedAvg first."""
    reference: Series | None
    """None: stage (a) of each."""
    beside: Beside = field(default_factory=Beside)
    cut: tuple[CutStudy, ...] = ()
    """Studies that lack runs."""

    def words(self) -> list[str]:
        """What a reader must know of it; a command stands in a line of its own, with a margin."""
        words = (*(one.text() for one in self.cut), differences_text(self.series), *self.beside.words)
        return [word for word in words if word] + self.beside.command_lines()

    def as_json(self) -> dict[str, Any]:
        return {"beside": self.beside.as_json(), "cut": [one.as_json() for one in self.cut]}


def select(paths: Sequence[Path], against: str | None = None, *, alone: bool = False) -> Selection:
    """All series of the folders, with Local and FedAvg from beside unless they shall stand alone.

    The reference is a label, a folder, or by default FedAvg, or the first.
    """
    may_be_added = not alone and against in LOOKED_FOR and not Path(against).exists()
    given, reference = read_with_reference(paths, None if may_be_added else against)
    beside = Beside() if alone else look_beside(paths, given)
    everything = [*given, *beside.added]
    if against is None:
        reference = usual_reference(everything)
    elif may_be_added:
        reference = labelled_reference(everything, against)
    return Selection(
        series=tuple(baselines_first(everything)), reference=reference, beside=beside, cut=cut_studies(distinct(paths))
    )
