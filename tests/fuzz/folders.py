"""Run folders to be damaged: copies of runs that were cut, with one checkpoint each."""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

from plures import run_experiment
from plures.data import SOURCES, Source
from plures.evaluate import Evaluator
from plures.recipes.checkpoints import checkpoints_in, checksum
from plures.report import records
from tests.recipes.doctor.helpers import CutAfter
from tests.recipes.helpers import tiny
from tests.recipes.resuming_helpers import experiment_of

ROOT = Path(tempfile.mkdtemp(prefix="plures-fuzz-"))
atexit.register(shutil.rmtree, ROOT, ignore_errors=True)
KINDS: dict[str, dict[str, Any]] = {
    "states": {"method": "ditto", "evaluation": {"every": 1, "guard": True}},
    "optimiser": {"method": "fedavg", "evaluation": {"every": 1}, "server": {"optimizer": "fedadam", "lr": 0.1}},
    "half": {"method": "fedper", "evaluation": {"every": 1, "post_local": True}},
}
"""The last was cut within the evaluation of a round, the others after it."""


def know_tiny() -> None:
    SOURCES["tiny"] = Source(name="tiny", about="for tests", files=(), load=tiny)


def experiment(kind: str, keep: int = 1) -> Any:
    return experiment_of(rounds=4, checkpoint={"every": 1, "keep": keep}, **KINDS[kind])


@cache
def base(kind: str, keep: int) -> Path:
    """A run that was interrupted in its third round of four; nobody changes it."""
    know_tiny()
    cut = cut_in_evaluation(3) if kind == "half" else nullcontext()
    with suppress(KeyboardInterrupt), cut:
        run_experiment(experiment(kind, keep), out=ROOT / f"{kind}-{keep}", watcher=CutAfter(3))
    return ROOT / f"{kind}-{keep}"


@cache
def ended(kind: str) -> Path:
    """The same run, gone on to its end."""
    folder = Path(shutil.copytree(base(kind, 1), ROOT / f"{kind}-ended"))
    run_experiment(experiment(kind), out=folder, resume=True)
    return folder


def cut_in_evaluation(number: int) -> Any:
    calls, original = list[int](), Evaluator.evaluate

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    return patch.object(Evaluator, "evaluate", counted)


@contextmanager
def copy_of(kind: str, *, keep: int = 1, finished: bool = False) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=ROOT) as place:
        yield Path(shutil.copytree(ended(kind) if finished else base(kind, keep), Path(place) / "run"))


def manifest_of(folder: Path) -> tuple[Path, dict[str, Any]]:
    (path,) = checkpoints_in(folder)
    told: dict[str, Any] = json.loads(path.read_bytes())
    del told["checksum"]
    return path, told


def sign(path: Path, told: Any) -> None:
    """Write a manifest whose checksum is right, whatever is in it."""
    path.write_text(json.dumps(told | {"checksum": checksum(told)} if isinstance(told, dict) else told))


def remark(folder: Path, name: str, content: bytes) -> None:
    """Another content of a file that grows, of which the checkpoint tells as if it had been written."""
    (folder / name).write_bytes(content)
    path, told = manifest_of(folder)
    told["files"][name] = [len(content), crc32(content)]
    sign(path, told)


def unpacked(folder: Path, name: str) -> bytes:
    return gzip.decompress((folder / name).read_bytes())


def packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def lines_of(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / records.ROUNDS).read_bytes().splitlines()]
