"""What can be said of the files of a run, and done about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["fine", "damaged", "cut", "left over", "missing"]
"""cut: its end is not whole; left over: of a process that was killed, or of no use any more."""
MOST_NAMED = 8
"""Clients that are named one by one."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a repair has changed, for doctor.json."""

    file: str
    what: str
    round: int | None = None
    """That the run went back to."""
    clients: tuple[int, ...] = ()
    """That begin anew."""


Repair = Callable[[], Done | None]
"""None: only what nobody needs was removed."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How one file stands."""

    file: str
    """As seen from the folder of the run; of a checkpoint, both its files without their ends."""
    state: State
    meaning: str
    remedy: str = ""
    """What a repair would do."""
    repair: Repair | None = field(default=None, repr=False, compare=False)
    forgets: tuple[int, ...] | None = None
    """Clients that the repair lets begin anew, which it does only if that is asked for; empty: all of them."""

    @property
    def is_wrong(self) -> bool:
        return self.state not in ("fine", "left over") or self.repair is not None

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "state": self.state,
            "meaning": self.meaning,
            "repair": self.remedy or None,
            "forgets_clients": None if self.forgets is None else list(self.forgets),
        }


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """How a run stands, or the list of runs of a study."""

    folder: Path
    findings: tuple[Finding, ...]
    verdict: str
    goes_on: bool = False
    """Whether a process has it, as far as anybody knows."""
    resumable_from: int | None = None
    """After how many rounds the run goes on; None: it cannot, or need not."""
    is_finished: bool = False
    is_loadable: bool = False

    @property
    def is_well(self) -> bool:
        return not any(finding.is_wrong for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "well": self.is_well,
            "goes_on": self.goes_on,
            "finished": self.is_finished,
            "loadable": self.is_loadable,
            "resumable_from": self.resumable_from,
            "verdict": self.verdict,
            "files": [finding.as_json() for finding in self.findings],
        }


def done_json(done: Done) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(done).items()}


def named(clients: Sequence[int]) -> str:
    """In words, as few as tell who they are."""
    shown = ", ".join(map(str, clients[:MOST_NAMED]))
    more = f" and {len(clients) - MOST_NAMED} more" if len(clients) > MOST_NAMED else ""
    return f"{'client' if len(clients) == 1 else 'clients'} {shown}{more}"
