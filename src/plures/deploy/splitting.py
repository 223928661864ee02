"""Writes each client's examples into a folder of its own, to try a deployment with data at hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from plures.core.errors import InvalidConfig
from plures.core.types import Batch
from plures.data import ClientData, Federation
from plures.data.client import to_original
from plures.recipes.build import as_toml
from plures.recipes.experiment import Experiment, make_experiment, plain_table
from plures.recipes.federations import build_federation
from plures.recipes.folder import make_empty_folder
from plures.recipes.preparations import OWN, described
from plures.report.writing import replace_whole

EXPERIMENT = "experiment.toml"
DTYPES = {torch.uint8: "uint8", torch.int64: "int64", torch.float32: "float32", torch.float64: "float64"}


def split_to_folders(experiment: Experiment, out: Path) -> tuple[Experiment, list[Path]]:
    """A folder for each client, and the experiment with its table [deploy] beside them."""
    if experiment.data.newcomers is not None:
        raise InvalidConfig("[data] newcomers is of no use in a deployment: remove it.")
    federation = build_federation(experiment)
    names = safe_names(federation)
    table = plain_table(experiment) | {"deploy": deploy_table(experiment, federation, names)}
    ready = make_experiment(table)
    make_empty_folder(out)
    replace_whole(out / EXPERIMENT, as_toml(table).encode())
    folders = [out / name for name in names]
    for client, folder in enumerate(folders):
        folder.mkdir(mode=0o700)
        data = federation.population.load(client)
        for split, batch in data.splits.items():
            replace_whole(folder / f"{split}.safetensors", as_file(original(batch, data, federation)))
    return ready, folders


def original(batch: Batch, data: ClientData, federation: Federation) -> Batch:
    """With labels as all clients have them."""
    if federation.label_space == "global":
        return batch
    return Batch(batch.inputs, to_original(batch.targets, data.classes))


def as_file(batch: Batch) -> bytes:
    return save({"inputs": batch.inputs.contiguous().clone(), "targets": batch.targets.contiguous().clone()})


def safe_names(federation: Federation) -> list[str]:
    """Names that can be folders; where two become the same, with their numbers."""
    names = [re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "client" for name in federation.names]
    return [f"{name}-{number}" if names.count(name) > 1 else name for number, name in enumerate(names)]


def deploy_table(experiment: Experiment, federation: Federation, names: list[str]) -> dict[str, Any]:
    """What every node's examples look like, as a file says it."""
    train = federation.population.load(0).train
    preparation = described(federation.prepare)
    if preparation is not None and preparation["kind"] == OWN:
        raise InvalidConfig(
            f"The data are prepared by a function, {preparation['name']}, which no file can hold. Prepare them before "
            "they are given to nodes."
        )
    if federation.augment is not None and experiment.data.augment is None:
        raise InvalidConfig(
            "The data set changes images while training in a way of its own. Say it in the file, such as [data] "
            'augment = ["crop", "flip"], or augment = [] for none.'
        )
    if train.inputs.dtype not in DTYPES:
        raise InvalidConfig(f"Examples of type {train.inputs.dtype} cannot be given to nodes: use float32.")
    table: dict[str, Any] = {
        "clients": names,
        "shape": list(train.inputs.shape[1:]),
        "dtype": DTYPES[train.inputs.dtype],
        "classes": federation.classes,
        "goal": federation.goal.name,
        "target_shape": list(train.targets.shape[1:]),
        "class_names": list(federation.class_names),
    }
    if preparation is not None:
        table["preparation"] = without_none(preparation)
    if federation.label_space == "local":
        table["own_classes"] = [federation.num_classes(client) for client in range(federation.num_clients)]
    return table


def without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}
