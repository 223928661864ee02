"""A run that goes on from its last checkpoint, as if it had never stopped."""

from __future__ import annotations

import math
import shutil
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zlib import crc32

from plures.core.context import Server
from plures.core.errors import InvalidConfig, RunFolderError
from plures.evaluate import ClientScore, SplitName
from plures.evaluate.forgetting import FORGETTING, SEEN_AND_UNSEEN
from plures.recipes.build import configuration_of
from plures.recipes.checkpoints import (
    Manifest,
    checkpoints_in,
    forget_checkpoints,
    place_of,
    read_manifest,
    read_server,
)
from plures.recipes.experiment import Experiment
from plures.recipes.folder import Mark
from plures.recipes.folder_reading import evaluation_of, read, recorded_metrics, scores_in
from plures.recipes.looking import Look
from plures.recipes.recorder import Half, Recorder, Selected
from plures.recipes.resume_checks import check_rounds, check_scores, check_states
from plures.report import records
from plures.report.processes import this_process
from plures.report.running import read_running
from plures.report.toml_text import parse_toml

FREE = ("checkpoint", "engine")
"""What may differ when a run goes on; engines only if they have the same bits."""
ALIKE = {"auto": "cached", "workers": "cached"}
"""Engines with the same bits."""
CHUNK = 2**20


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """Where a run goes on."""

    path: Path
    """Of the manifest."""
    manifest: Manifest

    @property
    def round(self) -> int:
        return self.manifest.round

    def server(self, device: Any) -> Server:
        return read_server(self.path, self.manifest, device)


def find_resumable(folder: Path) -> Resumed | None:
    """The newest checkpoint that is whole; None where a run has yet to make its first, or there is none."""
    check_nobody_runs(folder)
    problems: list[str] = []
    for path in checkpoints_in(folder):
        try:
            found = checked(folder, path)
            check_states(folder, found.manifest)
        except RunFolderError as error:
            problems.append(str(error))
            continue
        if problems:
            warnings.warn(f"{problems[0]} The run goes on from round {found.round} instead.", stacklevel=2)
        return found
    if problems:
        raise RunFolderError(
            f"No checkpoint of {folder} can be used: {problems[0]} `plures doctor {folder}` tells what is left."
        )
    return None


def checked(folder: Path, path: Path) -> Resumed:
    """Every file of a checkpoint is as it was, but for what clients keep."""
    manifest = read_manifest(path)
    for name, mark in manifest.marks.items():
        check_mark(folder / name, mark)
    check_rounds(folder, manifest)
    read_server(path, manifest)
    return Resumed(path=path, manifest=manifest)


def check_mark(path: Path, mark: Mark) -> None:
    """A file begins with what was written."""
    found, left = 0, mark.num_bytes
    try:
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, CHUNK))):
                found, left = crc32(chunk, found), left - len(chunk)
    except OSError as error:
        raise RunFolderError(f"Cannot read {path}: {error.strerror}.") from error
    if left or found != mark.crc32:
        raise RunFolderError(f"{path} is damaged: its first {mark.num_bytes} bytes are not those that were written.")


def check_nobody_runs(folder: Path) -> None:
    running = read_running(folder)
    if running is not None and not running.is_dead() and running.process != this_process():
        where = f"process {running.process.pid} on {running.process.host}"
        raise RunFolderError(f"{folder} is being run by {where}. Wait for it, or end it; then resume.")


OURS = (
    *records.GROWING,
    records.EXPERIMENT,
    records.RUNNING,
    records.RESULT,
    records.SHARED,
    records.PERSONAL,
    records.DOCTOR,
)
FOLDERS = (records.CHECKPOINTS, records.TENSORBOARD)


def is_ours(path: Path) -> bool:
    """Whether a run writes a file of that name; one that is not whole yet has a name of its own."""
    name = path.name.removesuffix(".partial").removeprefix(".") if path.name.endswith(".partial") else path.name
    name = name.partition(records.DAMAGED)[0]
    return name in OURS or name in FOLDERS or name.startswith(records.STATES)


def is_begun(folder: Path) -> bool:
    """Whether a run has left something in the folder, be it little, and nobody else has."""
    if (folder / records.ROUNDS).is_file():
        return True
    return folder.is_dir() and any(folder.iterdir()) and all(map(is_ours, folder.iterdir()))


def has_finished(folder: Path, experiment: Experiment) -> bool:
    """Whether the folder has the finished run of this very experiment, with all its stages."""
    if not (folder / records.RESULT).is_file() or checkpoints_in(folder):
        return False
    result = read(folder / records.RESULT, lambda path: records.read_result(path.parent))
    if result.get("status") != "finished":
        return False
    check_nobody_runs(folder)
    now = plain(tomllib.loads(configuration_of(experiment)))
    check_equal(folder, plain(configured(folder)), now)
    forget_checkpoints(folder)  # it may have been cut while it did so
    return True


def configured(folder: Path) -> dict[str, Any]:
    """experiment.toml, as it stands."""
    found: dict[str, Any] = read(folder / records.EXPERIMENT, lambda path: parse_toml(path.read_text("utf-8")))
    return found


def clear(folder: Path) -> None:
    """Remove what a run has written that never came to its first checkpoint."""
    for path in list(folder.iterdir()):
        if path.name in FOLDERS:
            shutil.rmtree(path)
        elif is_ours(path):
            path.unlink()


def check_same(folder: Path, manifest: Manifest, identity: Mapping[str, Any], configuration: str | None) -> None:
    """A run goes on only as what it was."""
    if configuration is not None and (folder / records.EXPERIMENT).is_file():
        check_equal(folder, plain(configured(folder)), plain(tomllib.loads(configuration)))
    check_equal(folder, manifest.identity, dict(identity))


def bits_of(engine: str) -> str:
    """The engine whose bits this one has."""
    return ALIKE.get(engine, engine)


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in table.items() if key not in FREE}
    return kept | {"engine": bits_of(str(table.get("engine")))}


def check_equal(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    told = [f"{key} is {then!r} there and {value!r} now" for key, then, value in differences(before, now)]
    if told:
        raise InvalidConfig(
            [f"The run in {folder} is another: {one}. Give the same, or another folder." for one in told[:5]]
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys([*before, *now]):
        then, value = before.get(key), now.get(key)
        if isinstance(then, Mapping) and isinstance(value, Mapping):
            yield from differences(then, value, f"{under}{key}.")
        elif then != value:
            yield f"{under}{key}", then, value


def restore(recorder: Recorder, manifest: Manifest) -> None:
    """The recorder as it was after the round of the checkpoint."""
    told, folder = manifest.recorder.model_dump(), recorder.folder
    assert folder is not None
    recorder.costs.restore(told["costs"])
    if told["selected"] is not None:
        chosen = told["selected"]
        recorder.selected = Selected(chosen["value"], chosen["round"], recorded_metrics(chosen["metrics"]))
    recorder.latest_round, recorder.metrics = told["metrics_round"], recorded_metrics(told["metrics"])
    recorder.history = read(folder.path / records.ROUNDS, lambda path: records.read_rounds(path.parent))
    if recorder.latest_round is not None:
        recorder.latest = recorded_look(folder.path, recorder.latest_round, recorder.history)
    if (half := told["half"]) is not None:
        path, clients = place_of(folder.path, manifest.round), recorder.federation.num_clients
        check_scores(manifest, scored_metrics(recorder), clients, path)
        recorder.half = Half(half["line"], half["visits"], {k: v for k, v in told.items() if k != "half"}, folder.marks)
        recorder.after_training = {
            cast(SplitName, split): [read_score(score) for score in scores]
            for split, scores in half["after_training"].items()
        }


def scored_metrics(recorder: Recorder) -> set[str]:
    """What every client's score has."""
    apart = SEEN_AND_UNSEEN if FORGETTING in recorder.plan.metrics else ()
    return {*recorder.goal.metrics, "loss", *apart}


def recorded_look(folder: Path, round: int, history: list[dict[str, Any]]) -> Look:
    """What the last evaluated round had, as far as files tell; the next evaluation takes its place."""
    path, choices = folder / records.CLIENTS, folder / records.CHOICES
    scores = read(path, lambda path: scores_in(path, str(round))) if path.is_file() else {}
    chosen = read(choices, lambda path: choices_in(path, str(round))) if choices.is_file() else []
    line: dict[str, Any] = next((line for line in reversed(history) if line["round"] == round), {})
    return Look(
        evaluations=[evaluation_of(model, split, found) for (model, split), found in scores.items()],
        guard=line.get("guard", {}),
        choices=chosen,
        diagnostics=line.get("diagnostics", {}),
    )


def choices_in(path: Path, round: str) -> list[dict[str, Any]]:
    return [{**row, "client": int(row["client"])} for row in records.read_rows(path) if row["round"] == round]


def read_score(told: Mapping[str, Any]) -> ClientScore:
    values = {name: math.nan if value is None or math.isinf(value) else value for name, value in told["values"].items()}
    return ClientScore(**{**told, "values": values})
