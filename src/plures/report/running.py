"""The file running.json: what is under way in a folder, and by which process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plures.report import records
from plures.report.processes import Process, this_process


@dataclass(frozen=True, kw_only=True)
class Running:
    """A run or a study that is under way, or was when its process died."""

    process: Process
    started: datetime
    facts: Mapping[str, Any]
    """Of a run: title, method, seed, rounds, clients and the metric `shown`; of a study: how many `runs`."""

    def is_dead(self) -> bool:
        return self.process.is_gone()


def running_now(**facts: Any) -> dict[str, Any]:
    """The content of running.json, for this process and from now on."""
    return {**asdict(this_process()), "started": datetime.now(UTC).isoformat(timespec="seconds"), **facts}


def read_running(folder: Path) -> Running | None:
    """What is under way in a folder; None: nothing, or a file that is no such thing."""
    try:
        table = json.loads((folder / records.RUNNING).read_text(encoding="utf-8"))
        process = Process(
            pid=int(table.pop("pid")), host=str(table.pop("host")), process_started=table.pop("process_started")
        )
        return Running(process=process, started=datetime.fromisoformat(table.pop("started")), facts=table)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
