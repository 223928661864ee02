"""The same with Flower's own programs: the app that `flwr run` ships, and the command of a stock SuperNode."""

from __future__ import annotations

import json
from pathlib import Path

from plures.deploy.flower.links import Link
from plures.deploy.flower.superlink import program
from plures.recipes.folder import make_empty_folder

PYPROJECT = """[project]
name = "plures-app"
version = "1.0.0"
description = "Names the Plures that is installed on server and nodes; it has no code of its own."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "plures"

[tool.flwr.app.components]
serverapp = "plures_app.server_app:app"
clientapp = "plures_app.client_app:app"

[tool.flwr.app.config]
experiment = {experiment}
out = {out}
keyed = {keyed}
"""
MODULE = """\"\"\"{what}: see plures.deploy.flower.apps.\"\"\"

from plures.deploy.flower.apps import {name} as app

__all__ = ["app"]
"""


def write_app(folder: Path, experiment: Path, out: Path, *, keyed: bool = True) -> None:
    """A folder for `flwr run`: nodes run their installed Plures, which the app only names."""
    make_empty_folder(folder)
    package = folder / "plures_app"
    package.mkdir()
    files = {
        folder / "pyproject.toml": PYPROJECT.format(
            experiment=quoted(experiment), out=quoted(out), keyed=str(keyed).lower()
        ),
        package / "__init__.py": "",
        package / "server_app.py": MODULE.format(what="The server of a run", name="server_app"),
        package / "client_app.py": MODULE.format(what="A node", name="client_app"),
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def supernode_command(
    link: Link, key: Path | None, experiment: Path, data: Path, state: Path, name: str, port: int = 9500
) -> list[str]:
    """Flower's own node, which starts a process for every message."""
    paths = {"experiment": experiment, "data": data, "state": state}
    settings = [f"{word}={quoted(path)}" for word, path in paths.items()]
    words = [program("flower-supernode"), "--superlink", link.address, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--insecure"] if link.ca is None else ["--root-certificates", str(link.ca)]
    words += [] if key is None else ["--auth-supernode-private-key", str(key)]
    return [*words, "--node-config", " ".join([*settings, f"name={json.dumps(name)}"])]


def quoted(path: Path) -> str:
    """As TOML has it; whole, for Flower starts programs elsewhere."""
    return json.dumps(str(path.resolve()), ensure_ascii=False)
