"""One reader of bytes under libFuzzer, by the package atheris: `python -m benchmarks.fuzz --guided wire` calls it."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["plures.wire", "plures.recipes", "tomllib"]):
    from plures.core.errors import InvalidConfig, InvalidMessage, PluresError, RunFolderError
    from plures.recipes.checkpoints import checksum, read_manifest
    from plures.recipes.experiment import load_experiment
    from plures.wire import decode
    from tests.fuzz.test_fuzz_toml import use
    from tests.wire.helpers import body_of, signed

FILE = Path(tempfile.mkdtemp()) / "00000003.json"


def wire(data: bytes) -> None:
    """As it came, and with the checksum that it should have."""
    for content in (data, signed(body_of(data))):
        with contextlib.suppress(InvalidMessage):
            decode(content, most_bytes=100_000)


def toml(data: bytes) -> None:
    FILE.write_bytes(data)
    try:
        experiment = load_experiment(FILE)
    except InvalidConfig:
        return
    with contextlib.suppress(PluresError):
        use(experiment)


def manifest(data: bytes) -> None:
    """Any JSON, with the checksum that it should have."""
    try:
        told = json.loads(data)
        told = told | {"checksum": checksum(told)} if isinstance(told, dict) else told
    except (ValueError, RecursionError):
        return
    FILE.write_text(json.dumps(told), encoding="utf-8")
    with contextlib.suppress(RunFolderError):
        read_manifest(FILE)


if __name__ == "__main__":
    target = {"wire": wire, "toml": toml, "manifest": manifest}[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
