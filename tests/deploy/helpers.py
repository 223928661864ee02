"""A small experiment, its nodes in this process, and ways for them to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from plures.core.types import Params
from plures.deploy.handler import Handler
from plures.deploy.in_process import InProcess
from plures.deploy.keeping import RunStates
from plures.deploy.node_data import read_folder
from plures.deploy.serving import noted, serve
from plures.deploy.splitting import split_to_folders
from plures.recipes import RunResult, make_experiment
from plures.recipes.experiment import Experiment

FIRST_NODE = 100


def small(method: str, **more: Any) -> Experiment:
    table = {
        "method": method,
        "rounds": 3,
        "cohort": 2,
        "engine": "sequential",
        "data": {"source": "digits", "clients": 3, "classes_per_client": 4},
        "model": {"name": "resnet8_gn", "widths": [4, 4, 4]} if method == "fedbn" else {"name": "mlp", "hidden": [8]},
        "evaluation": {"every": 2},
    }
    return make_experiment(table | more)


@dataclass(repr=False)
class Deployment:
    """An experiment whose clients are handlers; `spoil` may change what a node answers."""

    path: Path
    experiment: Experiment
    folders: list[Path]
    spoil: dict[int, Callable[[bytes, Callable[[bytes], bytes]], bytes]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    letters: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Every order and its reply."""

    @classmethod
    def of(cls, experiment: Experiment, path: Path) -> Deployment:
        ready, folders = split_to_folders(experiment, path / "split")
        return cls(path, ready, folders)

    def handler(self, client: int) -> Handler:
        folder, experiment = self.folders[client], self.experiment
        return Handler(
            experiment, lambda: read_folder(folder, experiment), self.path / "states" / folder.name, folder.name
        )

    def node(self, client: int) -> Callable[[bytes], bytes]:
        handler = self.handler(client)

        def handle(order: bytes) -> bytes:
            spoil = self.spoil.get(client)
            reply = handler.handle(order) if spoil is None else spoil(order, handler.handle)
            self.letters.append((order, reply))
            return reply

        return handle

    def transport(self) -> InProcess:
        return InProcess({FIRST_NODE + client: self.node(client) for client in range(len(self.folders))})

    def serve(self, transport: InProcess | None = None, *, resume: bool = False, keyed: bool = False) -> RunResult:
        chosen = transport or self.transport()
        return serve(
            self.experiment, lambda: chosen, self.path / "out", keyed=keyed, resume=resume, tell=self.said.append
        )

    def kept(self, client: int, counted: int | None) -> Params | None:
        told = noted(self.path / "out")
        assert told is not None
        return RunStates(self.path / "states" / self.folders[client].name, told["run"]).read(counted)


def counted(result: RunResult, client: int) -> int | None:
    known = result.store.get(client)
    return None if known is None else int(known["plures.counted"])


def bn_net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """With running statistics."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], 6), nn.BatchNorm1d(6), nn.Linear(6, classes))
