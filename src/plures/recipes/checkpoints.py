"""Checkpoints of a run: what the server holds after a whole round, and how far the records go.

RUN/checkpoints/
  00000010.safetensors     the server's tensors after round 10, numbered
  00000010.json            what they are, sizes and checksums of all files of the run at that round, what the recorder
                           knows; written last, so that a checkpoint without it is none
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from safetensors import SafetensorError
from safetensors.torch import load, save

from plures.core.context import Server
from plures.core.errors import RunFolderError
from plures.core.types import Params
from plures.recipes.folder import Mark, portable
from plures.recipes.recorder_tables import Amount, Count, RecorderTable
from plures.recipes.tables import Table
from plures.report import records
from plures.report.json_text import as_json_text
from plures.report.writing import replace_whole

FORMAT: Literal[1] = 1
LONGEST = 300
"""Of what is told of a damaged file."""


class TensorFile(Table):
    """The server's tensors."""

    file: str = Field(pattern=r"^\d{8,12}\.safetensors$")
    num_bytes: int = Field(ge=0)
    sha256: str
    shared: list[str]
    """Names, in the order of the numbers of the tensors; then those of the optimiser's, by part and group."""
    optimizer: dict[str, dict[str, list[str]]]


class Manifest(Table):
    """All of a checkpoint but the tensors."""

    format: Literal[1] = FORMAT
    plures: str = Field(default_factory=lambda: version("plures"))
    round: int = Field(ge=0, lt=2**32)
    seconds: Amount
    """That the rounds have taken."""
    tensors: TensorFile
    files: dict[str, tuple[Count, Count]]
    """Of every file that grows: bytes and their CRC-32."""
    has_states: bool
    """Whether clients keep something, in clients.sqlite."""
    identity: dict[str, Any]
    """What must be the same for the run to go on."""
    recorder: RecorderTable
    trackers: dict[str, str] = Field(default_factory=dict)
    """Under which key each tracker knows the run."""

    @field_validator("files", mode="before")
    @classmethod
    def known_files(cls, value: Any) -> Any:
        """Only files of a run folder: nothing here leads out of it."""
        if not isinstance(value, Mapping) or set(value) - set(records.GROWING):
            raise ValueError(f"files other than {', '.join(records.GROWING)}")
        return {name: tuple(mark) if isinstance(mark, list) else mark for name, mark in value.items()}

    @model_validator(mode="after")
    def of_one_round(self) -> Manifest:
        """Nothing in it tells of another round."""
        if self.tensors.file != f"{self.round:08d}.safetensors":
            raise ValueError(f"tensors.file is {self.tensors.file} after {self.round} rounds")
        if problem := self.recorder.problem_at(self.round):
            raise ValueError(problem)
        return self

    @property
    def marks(self) -> dict[str, Mark]:
        return {name: Mark(*mark) for name, mark in self.files.items()}


def place_of(folder: Path, round: int) -> Path:
    """The manifest of a round's checkpoint."""
    return folder / records.CHECKPOINTS / f"{round:08d}.json"


def write_checkpoint(folder: Path, server: Server, **rest: Any) -> Path:
    """The tensors first; with the manifest the checkpoint is there."""
    path = place_of(folder, server.round)
    tensors = save(portable({str(number): value for number, value in enumerate(tensors_of(server))}))
    try:
        path.parent.mkdir(exist_ok=True)
        replace_whole(path.with_suffix(".safetensors"), tensors)
        told = Manifest(round=server.round, tensors=described(server, path, tensors), **rest).model_dump()
        replace_whole(path, (as_json_text(told | {"checksum": checksum(told)}, indent=1) + "\n").encode())
    except OSError as error:
        raise RunFolderError(f"Cannot write the checkpoint {path}: {error.strerror}.") from error
    return path


def described(server: Server, path: Path, tensors: bytes) -> TensorFile:
    return TensorFile(
        file=path.with_suffix(".safetensors").name,
        num_bytes=len(tensors),
        sha256=hashlib.sha256(tensors).hexdigest(),
        shared=list(server.shared),
        optimizer={
            part: {group: list(values) for group, values in groups.items()} for part, groups in server.optimizer.items()
        },
    )


def tensors_of(server: Server) -> Iterator[Any]:
    yield from server.shared.values()
    for groups in server.optimizer.values():
        for values in groups.values():
            yield from values.values()


def checksum(told: Mapping[str, Any]) -> str:
    """Of a manifest as it stands in its file."""
    plain = json.loads(as_json_text({name: value for name, value in told.items() if name != "checksum"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """An error that names the file, unless every byte of it is as it was written."""
    try:
        told = json.loads(path.read_bytes())
        if not isinstance(told, dict) or told.pop("checksum", None) != checksum(told):
            raise damaged(path, "its checksum is not that of its content")
        return Manifest.model_validate(told)
    except OSError as error:
        raise RunFolderError(f"Cannot read {path}: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise damaged(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:LONGEST]) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "it is no JSON") from error


def read_server(path: Path, manifest: Manifest, device: Any = "cpu") -> Server:
    """The server of a checkpoint; the tensors lie where torch would put them, as those of the run did."""
    told, file = manifest.tensors, path.with_name(manifest.tensors.file)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RunFolderError(f"Cannot read {file}: {error.strerror}.") from error
    if len(content) != told.num_bytes or hashlib.sha256(content).hexdigest() != told.sha256:
        raise damaged(file, "its checksum is not that of the manifest")
    names = len(told.shared) + sum(len(names) for groups in told.optimizer.values() for names in groups.values())
    try:
        numbered = load(content)
        if len(numbered) != names:
            raise damaged(file, f"it has {len(numbered)} tensors, but the manifest names {names}")
        values = iter([numbered[str(number)].clone().to(device) for number in range(len(numbered))])
    except (SafetensorError, KeyError, ValueError) as error:
        raise damaged(file, str(error)) from error

    def named(names: list[str]) -> Params:
        return dict(zip(names, values, strict=False))

    shared = named(told.shared)
    optimizer = {
        part: {group: named(names) for group, names in groups.items()} for part, groups in told.optimizer.items()
    }
    return Server(round=manifest.round, shared=shared, optimizer=optimizer)


def damaged(path: Path, what: str) -> RunFolderError:
    return RunFolderError(f"{path} is damaged: {what}.")


def checkpoints_in(folder: Path) -> list[Path]:
    """Manifests, the newest first."""
    return sorted((folder / records.CHECKPOINTS).glob("[0-9]*.json"), reverse=True)


def keep_newest(folder: Path, count: int) -> int | None:
    """Remove all but so many; the round of the oldest that is left."""
    found = checkpoints_in(folder)
    kept = {path.stem for path in found[:count]}
    for path in sorted((folder / records.CHECKPOINTS).iterdir()):  # a manifest before its tensors
        if path.stem.lstrip(".").partition(".")[0] not in kept:
            with suppress(OSError):
                path.unlink()
    return int(min(kept)) if kept else None


def forget_checkpoints(folder: Path) -> None:
    """A run that has finished needs none; nor the store, where what clients keep is in a file of its own."""
    for path in reversed(checkpoints_in(folder)):  # whatever is left at any moment is whole
        path.unlink()
    shutil.rmtree(folder / records.CHECKPOINTS, ignore_errors=True)
    if (folder / records.PERSONAL).is_file():
        (folder / records.STATES).unlink(missing_ok=True)
