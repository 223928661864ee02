"""Runs on other inputs than a few numbers: bytes of images, rows of a table, tokens; and a preparation of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from plures import RunResult, make_experiment, run_experiment
from plures.core.goals import next_token
from plures.data import DataSet, from_arrays


def run_on(method: str, data: dict[str, Any], model: dict[str, Any]) -> RunResult:
    table = {"method": method, "rounds": 2, "data": data, "model": model}
    return run_experiment(make_experiment(table))


def image_run(folder: Path) -> RunResult:
    """Bytes of 40 images, dealt to four clients."""
    labels = np.arange(40) % 4
    stripes = np.arange(16).reshape(4, 4) % 4 == labels[:, None, None]
    pixels = np.random.default_rng(3).integers(0, 100, size=(40, 4, 4)) + 150 * stripes
    np.savez(folder / "images.npz", x=pixels.astype(np.uint8), y=labels)
    source = {"name": "npz", "path": str(folder / "images.npz")}
    return run_on("ditto", {"source": source, "clients": 4}, {"hidden": [6]})


def table_run(folder: Path) -> RunResult:
    """A table with numbers, gaps and words, to predict a number from."""
    lines = ["age,town,height,who,size"]
    for row in range(60):
        age, town = "" if row % 9 == 0 else str(20 + row), ("Rome", "Oslo", "Bern")[row % 3]
        lines.append(f"{age},{town},{1.5 + row / 100},{row % 3},{row / 7 + row % 3}")
    (folder / "table.csv").write_text("\n".join(lines))
    source = {"name": "csv", "path": str(folder / "table.csv"), "target": "size", "client": "who"}
    return run_on("fedalt", {"source": source, "partition": "natural"}, {"hidden": [6]})


def token_run() -> RunResult:
    data = {"source": "tests.recipes.other_data:tokens", "partition": "iid", "clients": 3}
    return run_on("fedper", data, {"name": "char_lstm", "embedding": 3, "hidden": 5})


def tokens() -> DataSet:
    """Sequences of six tokens out of nine."""
    inputs = np.random.default_rng(3).integers(4, 9, size=(48, 6))
    return DataSet(
        name="tokens",
        examples=from_arrays(inputs, np.roll(inputs, -1, axis=1), "next_token"),
        goal=next_token(),
        class_names=("<pad>", "<bos>", "<eos>", "<oov>", "a", "b", "c", "d", "e"),
    )


def halved(inputs: Tensor) -> Tensor:
    return inputs / 2


def own_preparation() -> DataSet:
    inputs = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    return DataSet(name="own", examples=from_arrays(inputs, np.arange(40) % 4), prepare=halved)
