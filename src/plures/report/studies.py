"""From folders on the command line to series of runs that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig, RunFolderError
from plures.report import records
from plures.report.inside import inside
from plures.report.labels import unique_labels
from plures.report.toml_text import parse_toml

NEEDED = (
    "status",
    "method",
    "seed",
    "headline",
    "metric",
    "metrics",
    "selected.metrics",
    "selected.round",
    "cost.bytes_down",
    "cost.bytes_up",
    "fingerprint",
)
"""What a comparison reads of result.json."""
NOT_COMPARED = ("seed", "out")
"""Keys in which runs of one series may differ."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One run, as its folder tells of it."""

    folder: Path
    result: Mapping[str, Any]

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def metric(self) -> str:
        """The one it is judged by."""
        return str(self.result["metric"])

    @property
    def models(self) -> list[str]:
        """Every kind of model that was scored, such as "personal" or "newcomers/finetuned"."""
        return list(dict.fromkeys(name.rsplit("/", 2)[0] for name in self.result["metrics"]))

    def model(self, wanted: str | None = None, *, newcomers: bool = False) -> str:
        """The model to look at: the one it is judged by unless another is wanted, of participants or of newcomers."""
        if not newcomers:
            return wanted or str(self.result["headline"])
        usual = "global" if self.result["headline"] == "global" else "finetuned"
        return f"newcomers/{(wanted or usual).removeprefix('newcomers/')}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """Runs of one configuration, by their seeds."""

    label: str
    runs: Mapping[int, RecordedRun]

    @property
    def first(self) -> RecordedRun:
        return next(iter(self.runs.values()))

    def has(self, folder: Path) -> bool:
        return any(run.folder.resolve() == folder.resolve() for run in self.runs.values())


Group = tuple[str, list[RecordedRun]]
"""What a series shall be called if nothing else is, and its runs."""


def read_series(paths: Sequence[Path]) -> list[Series]:
    """The series of all run folders and study folders, in order of appearance; refuses what cannot be compared."""
    groups: list[Group] = []
    loose: list[tuple[dict[str, Any] | None, list[RecordedRun]]] = []
    for path in distinct(paths):
        if (path / records.STUDY).is_file():
            groups += study_groups(path)
            continue
        run, configuration = read_run(path), configuration_of(path)
        alike = next((runs for known, runs in loose if known is not None and known == configuration), None)
        if alike is not None:
            alike.append(run)
            continue
        loose.append((configuration, [run]))
        groups.append((str(run.result["method"]), loose[-1][1]))
    return as_series(groups)


def distinct(paths: Sequence[Path]) -> list[Path]:
    return list({path.resolve(): path for path in paths}.values())


def as_series(groups: Sequence[Group]) -> list[Series]:
    labels = unique_labels([(label, [run.folder for run in runs]) for label, runs in groups])
    found = [Series(label=label, runs=by_seed(runs)) for label, (_, runs) in zip(labels, groups, strict=True)]
    check_comparable([run for series in found for run in series.runs.values()])
    return found


def configuration_of(folder: Path) -> dict[str, Any] | None:
    """What was run, but for the seed; None where it was not recorded, as for runs from Python."""
    path = folder / records.EXPERIMENT
    if not path.is_file():
        return None
    with reading(path):
        table = parse_toml(path.read_text(encoding="utf-8"))
    return {key: value for key, value in table.items() if key not in NOT_COMPARED}


def study_groups(folder: Path) -> list[Group]:
    """The runs of a study under its own labels."""
    groups: dict[str, list[RecordedRun]] = {}
    with reading(folder / records.STUDY):
        listed = json.loads((folder / records.STUDY).read_text(encoding="utf-8"))["runs"]
        named = [(str(entry["label"]), inside(folder, entry["folder"])) for entry in listed]
    if not named:
        raise RunFolderError(
            f"The study {folder} names no runs: none has finished. Wait for the first, or run it again into a new "
            "folder."
        )
    for label, path in named:
        if not path.is_dir():
            raise RunFolderError(
                f"The study {folder} names {path}, which is not there: moved, or never run. Run the study again "
                "into a new folder, or name the run folders that you want to compare."
            )
        groups.setdefault(label, []).append(read_run(path))
    return list(groups.items())


def read_run(folder: Path) -> RecordedRun:
    """A run by its result; says what is wrong with a folder that has none."""
    if not (folder / records.RESULT).is_file():
        raise RunFolderError(why_no_run(folder))
    with reading(folder / records.RESULT):
        result = records.read_result(folder)
        missing = [key for key in NEEDED if not has(result, key)]
    if missing:
        raise RunFolderError(f"{folder / records.RESULT} is damaged: it has no {', '.join(missing)}.")
    return RecordedRun(folder=folder, result=result)


def has(table: Any, key: str) -> bool:
    """Whether a key such as cost.bytes_up is there."""
    for word in key.split("."):
        if not isinstance(table, dict) or word not in table:
            return False
        table = table[word]
    return True


def why_no_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"There is no folder {folder}. Give folders of finished runs, or of a study."
    if (folder / records.ROUNDS).is_file():
        again = f"plures run {folder / records.EXPERIMENT}"
        why = "its run goes on, or was killed. Wait for its end, or repeat it"
        return f"{folder} has no {records.RESULT}: {why}: {again}."
    if any(folder.glob(f"*/{records.RESULT}")):
        return f"{folder} is no run folder, but has some inside: name those, such as {folder}/*/."
    return f"{folder} is no run folder: it has no {records.RESULT}. Give folders of finished runs, or of a study."


def by_seed(runs: Sequence[RecordedRun]) -> dict[int, RecordedRun]:
    found: dict[int, RecordedRun] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.seed in found:
            raise InvalidConfig(
                f"{found[run.seed].folder} and {run.folder} are the same configuration with the same seed, {run.seed}. "
                "Leave one of them out."
            )
        found[run.seed] = run
    return found


def check_comparable(runs: Sequence[RecordedRun]) -> None:
    """The same data, dealt the same way, judged by the same metric; and all finished, or none."""
    for run in runs[1:]:
        check_alike(runs[0], run)
    unfinished = [run for run in runs if not is_finished(run)]
    if unfinished and len(unfinished) < len(runs):
        raise InvalidConfig([unfinished_text(run) for run in unfinished])


def check_alike(one: RecordedRun, other: RecordedRun) -> None:
    both = f"{one.folder} and {other.folder}"
    for what, how in (("data", "other examples"), ("split", "examples dealt to clients in another way")):
        if one.result["fingerprint"].get(what) != other.result["fingerprint"].get(what):
            raise InvalidConfig(
                f"{both} have different data ({how}), so that their clients are not the same. Compare runs with "
                "the same table [data]."
            )
    if one.metric != other.metric:
        raise InvalidConfig(f"{both} are judged by {one.metric} and by {other.metric}. Compare like with like.")


def is_finished(run: RecordedRun) -> bool:
    return bool(run.result["status"] == "finished")


def unfinished_text(run: RecordedRun) -> str:
    done, planned = run.result.get("rounds_done", "?"), run.result.get("rounds", "?")
    return (
        f"{run.folder} did not finish ({run.result['status']} after {done} of {planned} rounds). Leave it out, or "
        f"repeat it: plures run {run.folder / records.EXPERIMENT}."
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong with a file is one error that names it."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: {type(error).__name__}, {error}.") from error
