"""Reads what a run folder keeps; a file that is missing or damaged is one error that names it."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from csv import Error as CsvError
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.data import Federation
from plures.evaluate import ClientScore, Evaluation, ModelKind, SplitName, Summary
from plures.recipes.folder import state_fingerprint
from plures.recipes.result_tables import ResultTable
from plures.recipes.states import StoredStates, read_only_store
from plures.report import records
from plures.report.inside import inside

NEEDED = ("method", "seed", "status", "rounds_done", "headline", "metric", "metrics", "selected", "cost", "fingerprint")
"""What is read of result.json."""
BROKEN = (
    *(OSError, EOFError, zlib.error, CsvError, SafetensorError),
    *(ValueError, KeyError, TypeError, AttributeError, RecursionError),
)
AGAIN = "Take it from a copy of the folder, or run the experiment again"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a run has left behind."""

    folder: Path
    result: Mapping[str, Any]
    history: list[dict[str, Any]]
    shared: Params
    states: Mapping[int, Params]
    tuned: Mapping[int, Params]
    choices: Mapping[int, str]
    """Of the last evaluated round."""

    @property
    def seed(self) -> int:
        return int(self.result["seed"])


def read_kept(folder: Path) -> Kept:
    """Everything but what experiment.toml names."""
    result = read_result(folder)
    tuned = folder / records.TUNED
    return Kept(
        folder=folder,
        result=result,
        history=read(folder / records.ROUNDS, lambda path: records.read_rounds(path.parent)),
        shared=read(folder / records.SHARED, read_tensors),
        states=kept_states(folder, result),
        tuned=read(tuned, read_states) if tuned.exists() or is_tuned(result) else {},
        choices=read(folder / records.CHOICES, read_choices) if result.get("guard") else {},
    )


def kept_states(folder: Path, result: Mapping[str, Any]) -> Mapping[int, Params]:
    """What clients keep: in one file or, where that would be too large, in the store."""
    if not (folder / records.PERSONAL).exists() and (folder / records.STATES).is_file():
        return StoredStates(read_only_store(folder, result["rounds_done"]))
    found: dict[int, Params] = read(folder / records.PERSONAL, read_states)
    return found


def is_tuned(result: Mapping[str, Any]) -> bool:
    return any(stage["stage"] == "tune" for stage in result.get("stages", []))


def read_result(folder: Path) -> dict[str, Any]:
    """result.json, or what the folder is instead."""
    if not folder.is_dir():
        raise RunFolderError(f"There is no folder {folder}. Give the folder of a run.")
    if (folder / records.STUDY).is_file():
        runs: list[Path] = read(folder / records.STUDY, runs_in)
        known = ", ".join(map(str, runs[:4])) + (", ..." if len(runs) > 4 else "")
        if not runs:
            raise RunFolderError(f"{folder} is a study of which no run has finished. Give the folder of a run.")
        raise RunFolderError(f"{folder} is a study of {len(runs)} runs. Give one of them: {known}.")
    path = folder / records.RESULT
    if not path.exists():
        begun = (folder / records.ROUNDS).exists()
        told = "the run goes on, or was ended before it could keep its models" if begun else "it is no run"
        raise RunFolderError(f"{folder} has no {records.RESULT}: {told}. Give the folder of a run that has ended.")
    found: dict[str, Any] = read(path, lambda path: records.read_result(path.parent))
    missing = [key for key in NEEDED if not isinstance(found, dict) or key not in found]
    if missing:
        raise RunFolderError(f"{path} has no '{missing[0]}', as runs of this version write it. {AGAIN}.")
    try:
        ResultTable.model_validate(found)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise RunFolderError(f"{path} is damaged: {where:.200}: {error.errors()[0]['msg']}. {AGAIN}.") from error
    return found


def runs_in(path: Path) -> list[Path]:
    """Of a study."""
    return [inside(path.parent, run["folder"]) for run in json.loads(path.read_text(encoding="utf-8"))["runs"]]


def read(path: Path, how: Any) -> Any:
    """What `how` makes of a file."""
    try:
        return how(path)
    except FileNotFoundError as error:
        raise RunFolderError(f"{path} is missing. {AGAIN}.") from error
    except BROKEN as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunFolderError(f"Cannot read {path}: it is damaged ({told}). {AGAIN}.") from error


def read_tensors(path: Path) -> Params:
    """The tensors of a file, each where torch would put it: from other places in memory, products round otherwise."""
    return {name: value.clone() for name, value in load_file(path).items()}


def read_states(path: Path) -> dict[int, Params]:
    """Parameters of clients, named CLIENT/PARAMETER."""
    found: dict[int, Params] = {}
    for key, value in read_tensors(path).items():
        client, _, name = key.partition("/")
        found.setdefault(int(client), {})[name] = value
    return found


def read_choices(path: Path) -> dict[int, str]:
    """What each client chose when it was last asked."""
    return {int(row["client"]): row["chosen"] for row in records.read_rows(path)}


def check_state(kept: Kept) -> None:
    """The files of models belong to each other and to result.json."""
    found = state_fingerprint(kept.shared, ((client, kept.states[client]) for client in sorted(kept.states)))
    if found != kept.result["fingerprint"].get("final_state"):
        raise RunFolderError(
            f"{kept.folder / records.SHARED} and {records.PERSONAL} are not those that {records.RESULT} tells of: they "
            f"are damaged, or of another run. {AGAIN}."
        )


def check_data(kept: Kept, federation: Federation) -> None:
    """Models are only what they were with the data that they were trained on."""
    recorded = kept.result["fingerprint"]
    differ = [key for key, value in federation.fingerprint().items() if recorded.get(key) != value]
    if differ:
        what = "the examples are others" if "data" in differ else "other clients have them"
        raise RunFolderError(
            f"The data are not those that the run in {kept.folder} was trained on: {what}. Give the same data, by the "
            "same names and folders as then."
        )


def recorded_metrics(told: Mapping[str, Any]) -> dict[str, Summary]:
    """Summaries by name; a number that was none is written as null."""
    names = [field.name for field in fields(Summary)]
    return {
        metric: Summary(**{name: math.nan if values[name] is None else values[name] for name in names})
        for metric, values in told.items()
    }


def recorded_evaluations(kept: Kept) -> list[Evaluation]:
    """The last evaluated round, client by client."""
    last = kept.result.get("metrics_round")
    path = kept.folder / records.CLIENTS
    if last is None:
        return []
    found: dict[tuple[str, str], list[ClientScore]] = read(path, lambda path: scores_in(path, str(last)))
    return [evaluation_of(model, split, scores) for (model, split), scores in found.items()]


def scores_in(path: Path, round: str) -> dict[tuple[str, str], list[ClientScore]]:
    """The scores of a round, by model and split."""
    found: dict[tuple[str, str], list[ClientScore]] = {}
    for row in records.read_rows(path):
        if row["round"] == round:
            found.setdefault((row["model"], row["split"]), []).append(score_in(row))
    return found


def score_in(row: Mapping[str, str]) -> ClientScore:
    values = {name: value for name, value in row.items() if name not in records.CLIENT_COLUMNS}
    return ClientScore(
        client=int(row["client"]),
        examples=int(row["examples"]),
        values={name: float(value) if value else math.nan for name, value in values.items()},
    )


def evaluation_of(model: str, split: str, scores: list[ClientScore]) -> Evaluation:
    whose, _, kind = model.rpartition("/")
    return Evaluation(
        model=cast(ModelKind, kind),
        split=cast(SplitName, split),
        scores=tuple(scores),
        sampled=whose == "sampled",
        newcomers=whose == "newcomers",
    )
