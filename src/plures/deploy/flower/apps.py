"""Plures as an app of Flower: what `flwr run` starts on the SuperLink, and a stock SuperNode for every message.

Paths come from whoever runs the machine: the server's from the run's configuration, a node's from its --node-config,
never from a message.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from plures.core.errors import InvalidConfig
from plures.deploy.flower.grid import OnGrid
from plures.deploy.flower.packing import packed, unpacked
from plures.deploy.handler import Handler
from plures.deploy.node_data import read_folder
from plures.deploy.serving import DEPLOYMENT, serve
from plures.recipes.experiment import load_experiment

server_app, client_app = ServerApp(), ClientApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """A whole run; where one was begun in the folder, it goes on."""
    settings = context.run_config
    experiment, out = load_experiment(given(settings, "experiment")), Path(given(settings, "out"))
    resume = (out / DEPLOYMENT).exists()
    serve(experiment, lambda: OnGrid(grid), out, keyed=bool(settings.get("keyed", True)), resume=resume, tell=print)


@client_app.query()
def answer(message: Message, context: Context) -> Message:
    """The reply to one letter."""
    settings = context.node_config
    handler = handler_of(*(given(settings, name) for name in ("experiment", "data", "state", "name")))
    return Message(packed(handler.handle(unpacked(message.content))), reply_to=message)


@lru_cache(maxsize=1)
def handler_of(experiment: str, data: str, state: str, name: str) -> Handler:
    loaded = load_experiment(experiment)
    return Handler(loaded, lambda: read_folder(Path(data), loaded), Path(state), name, print)


def given(settings: object, name: str) -> str:
    value = settings.get(name) if hasattr(settings, "get") else None
    if not isinstance(value, str) or not value:
        raise InvalidConfig(f"'{name}' is not given: see docs/deployment.md for what server and nodes must be told.")
    return value
