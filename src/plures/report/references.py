"""What series are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plures.core.errors import InvalidConfig, RunFolderError, did_you_mean
from plures.report import records
from plures.report.studies import RecordedRun, Series, check_comparable, read_run, read_series

USUAL = "fedavg"
STAGE_A = "stage-a"
"""By this word each pipeline is compared with the model it started from."""


def read_with_reference(paths: Sequence[Path], against: str | None) -> tuple[list[Series], Series | None]:
    """All series, and which of them is the reference: a label, a folder, or FedAvg, or the first. None: stage (a)."""
    series = read_series(paths)
    if against == STAGE_A:
        return series, None
    if against is None:
        return series, usual_reference(series)
    if against in [one.label for one in series] or not Path(against).exists():
        return series, labelled_reference(series, against)
    return with_folder(paths, series, Path(against))


def labelled_reference(series: Sequence[Series], against: str) -> Series:
    labels = [one.label for one in series]
    if against not in labels:
        raise InvalidConfig(
            f"--against {against}: there is no such label and no such folder. {did_you_mean(against, labels)}"
        )
    return series[labels.index(against)]


def usual_reference(series: Sequence[Series]) -> Series:
    labelled = [one for one in series if one.label == USUAL]
    alike = [one for one in series if one.first.result["method"] == USUAL]
    return [*labelled, *alike, *series][0]


def with_folder(paths: Sequence[Path], series: list[Series], folder: Path) -> tuple[list[Series], Series]:
    """The series that a folder belongs to; one that is not among those given is read as well."""
    inside = [one for one in series if one.has(folder)]
    if inside:
        return series, inside[0]
    if not (folder / records.STUDY).is_file():
        series = read_series([folder, *paths])
        return series, next(one for one in series if one.has(folder))
    own = read_series([folder])
    if len(own) > 1:
        labels = ", ".join(one.label for one in own)
        raise InvalidConfig(f"--against {folder}: the study has several labels ({labels}). Give the folder of a run.")
    if folder.resolve() not in [path.resolve() for path in paths]:
        series = read_series([folder, *paths])
    return series, next(one for one in series if one.has(own[0].first.folder))


def stage_a(series: Series) -> Series:
    """The runs of stage (a) that a series of pipelines began with."""
    if not any(map(has_stage_a, series.runs.values())):
        raise InvalidConfig(no_stage_a_text(series))
    runs = {seed: started_from(run) for seed, run in series.runs.items() if has_stage_a(run)}
    check_comparable([*series.runs.values(), *runs.values()])
    return Series(label=STAGE_A, runs=runs)


def stages_a(series: Sequence[Series]) -> list[Series | None]:
    """Stage (a) of each series, None for one that has none; refuses series of which none has."""
    found = [stage_a(one) if any(map(has_stage_a, one.runs.values())) else None for one in series]
    if not any(found):
        raise InvalidConfig(no_stage_a_text(series[0]))
    return found


def has_stage_a(run: RecordedRun) -> bool:
    return bool(folders_of_stage_a(run))


def folders_of_stage_a(run: RecordedRun) -> list[str]:
    stages = run.result.get("stages", [])
    return [stage["folder"] for stage in stages if stage["stage"] == "pretrain" and stage["folder"]]


def no_stage_a_text(series: Series) -> str:
    return f"{series.first.folder} has no stage (a): it is no run of a [pipeline] with pretrain."


def started_from(run: RecordedRun) -> RecordedRun:
    """The run of stage (a), of one that has such."""
    folder = Path(folders_of_stage_a(run)[0])
    places = [folder, *(parent / folder for parent in run.folder.resolve().parents)]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise RunFolderError(
            f"Stage (a) of {run.folder} was kept in {folder}, which is not there. Work in the folder from which it was "
            "run, or repeat it."
        )
    return read_run(found)
