"""A node's own examples, from a folder of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plures.core.errors import InvalidData
from plures.core.types import Batch
from plures.data import ClientData, Federation
from plures.data.client import empty_like, make_client
from plures.data.splitting import check_ratios, split_client
from plures.deploy.described import Member, described_federation
from plures.recipes.experiment import Experiment
from plures.recipes.newcomer_examples import fitted
from plures.recipes.newcomer_files import read_given

SUFFIXES = (".safetensors", ".npz", ".csv")
SPLITS = ("train", "validation", "test")
WHOLE = "examples"
"""The name of a file that is not split yet."""


def read_folder(folder: Path, experiment: Experiment) -> ClientData:
    """`train`, `validation` and `test` as safetensors, npz or csv; or `examples`, which is split here."""
    if not folder.is_dir():
        raise InvalidData(f"There is no folder {folder}: give the one with this node's examples.")
    federation = described_federation(experiment, [Member(name="this node")])
    if (whole := found(folder, WHOLE)) is not None:
        train, validation, test = divided(read(whole, federation), experiment)
    else:
        files = {split: found(folder, split) for split in SPLITS}
        if files["train"] is None:
            raise InvalidData(
                f"{folder} has no examples to train on: put a file train (or {WHOLE}, to be split here) into it, with "
                f"inputs and targets, as {', '.join(SUFFIXES)}."
            )
        train = read(files["train"], federation)
        validation, test = (
            empty_like(train) if (path := files[split]) is None else read(path, federation) for split in SPLITS[1:]
        )
    return make_client(train, validation, test, experiment.data.label_space)


def found(folder: Path, name: str) -> Path | None:
    there = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(there) > 1:
        raise InvalidData(f"{folder} has {' and '.join(path.name for path in there)}: which one counts? Keep one.")
    return there[0] if there else None


def read(path: Path, federation: Federation) -> Batch:
    given = read_given(path, federation)
    return fitted(given.inputs, given.targets, federation)


def divided(examples: Batch, experiment: Experiment) -> tuple[Batch, Batch, Batch]:
    """By the shares of [data] split, shuffled by its seed: the same whenever the node is started."""
    ratios = experiment.data.split
    check_ratios(ratios, own_test=True)
    places = split_client(np.arange(examples.num_examples), ratios, seed=experiment.data.seed, client=0)
    train, validation, test = (Batch(examples.inputs[some], examples.targets[some]) for some in places)
    return train, validation, test
