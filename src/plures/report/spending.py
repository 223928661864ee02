"""What a run cost in all: a pipeline's stage (a) counts too, as methods beside it train those rounds themselves."""

from __future__ import annotations

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.references import has_stage_a, started_from
from plures.report.studies import RecordedRun, reading


def bytes_sent(run: RecordedRun) -> int:
    """Down and up, with those of stage (a) as far as that can be read."""
    first = readable_stage_a(run)
    return own_bytes(run) + (0 if first is None else own_bytes(first))


def own_bytes(run: RecordedRun) -> int:
    cost = run.result["cost"]
    return int(cost["bytes_down"] + cost["bytes_up"])


def is_counted(run: RecordedRun) -> bool:
    """Whether nothing is missing from its bytes."""
    return not has_stage_a(run) or readable_stage_a(run) is not None


def readable_stage_a(run: RecordedRun) -> RecordedRun | None:
    if not has_stage_a(run):
        return None
    try:
        return started_from(run)
    except RunFolderError:
        return None


def rounds_before(run: RecordedRun) -> int:
    """Rounds of stage (a), which the run tells itself."""
    with reading(run.folder / records.RESULT):
        return sum(int(stage["rounds"]) for stage in run.result.get("stages", []) if stage["stage"] == "pretrain")


def ends_in_tuning(run: RecordedRun) -> bool:
    stages = run.result.get("stages", [])
    return bool(stages) and stages[-1]["stage"] == "tune"
