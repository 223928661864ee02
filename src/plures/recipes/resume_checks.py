"""What is looked at before a run goes on, for then its files are cut back to the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from plures.core.context import Server
from plures.core.errors import RunFolderError
from plures.core.program import Program
from plures.core.round import server_rules
from plures.recipes.checkpoints import Manifest, damaged
from plures.recipes.folder import Mark
from plures.recipes.folder_reading import read
from plures.recipes.recorder_tables import check_history
from plures.recipes.states import read_only_store
from plures.report import records
from plures.stores.state_file import StateFile

Kinds = dict[str, tuple[str, tuple[int, ...]]]
"""The type and shape of each tensor."""


def check_states(folder: Path, manifest: Manifest) -> None:
    """What clients keep can be opened, and goes back to the round of the checkpoint."""
    if not manifest.has_states:
        return
    if not (folder / records.STATES).is_file():
        raise RunFolderError(
            f"{folder / records.STATES} is missing, which the checkpoint of round {manifest.round} needs."
        )
    file = StateFile(folder / records.STATES)  # some damage is told only to those who may write
    file.close()
    if not file.is_there:
        raise RunFolderError(
            f"{folder / records.STATES} is empty, but clients had states after round {manifest.round}."
        )
    read_only_store(folder, manifest.round).close()


def check_rounds(folder: Path, manifest: Manifest) -> None:
    """Every round up to the checkpoint has its line; one that was not evaluated yet has it in the checkpoint."""
    mark = manifest.marks.get(records.ROUNDS, Mark())
    done = manifest.round - (manifest.recorder.half is not None)
    read(folder / records.ROUNDS, lambda path: check_history(lines_of(path, mark.num_bytes), done))


def lines_of(path: Path, num_bytes: int) -> list[Any]:
    with path.open("rb") as file:
        return [json.loads(line) for line in file.read(num_bytes).splitlines()]


def check_scores(manifest: Manifest, metrics: Collection[str], num_clients: int, path: Path) -> None:
    """Scores of a round that is yet to be evaluated are of these clients, and have these metrics."""
    half = manifest.recorder.half
    scores = [] if half is None else [score for found in half.after_training.values() for score in found]
    for score in scores:
        if set(score.values) != set(metrics) or score.client >= num_clients:
            raise damaged(path, f"its scores of client {score.client} are not such as the run has")


def check_server(server: Server, program: Program, path: Path) -> None:
    """Its tensors have their place in the network, and the server's optimiser finds what it began with."""
    shared = program.initial_shared()
    refuse_misfit(path, kinds_of(server.shared), kinds_of(shared))
    for part, rule, names in server_rules(program):
        if part in server.optimizer:
            begun = memory_of(rule.init({name: shared[name] for name in names}))
            found = memory_of(server.optimizer[part])
            refuse_misfit(path, {name: kind for name, kind in found.items() if name in begun}, begun)


def kinds_of(params: Mapping[str, Tensor]) -> Kinds:
    return {name: (str(value.dtype), tuple(value.shape)) for name, value in params.items()}


def memory_of(groups: Mapping[str, Mapping[str, Tensor]]) -> Kinds:
    """Of the optimiser, by group and name."""
    kinds = {group: kinds_of(params) for group, params in groups.items()}
    return {f"{group} of {name}": kind for group, found in kinds.items() for name, kind in found.items()}


def refuse_misfit(path: Path, found: Kinds, wanted: Kinds) -> None:
    if found != wanted:
        name = sorted(set(found.items()) ^ set(wanted.items()))[0][0]
        raise RunFolderError(f"{path} is of another network or method: they differ in '{name:.80}'.")
