"""Options that the commands of a deployment share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plures.core.errors import InvalidConfig

ADDRESS = "127.0.0.1:8500"

Address = Annotated[str, typer.Option("--superlink", metavar="HOST:PORT", help="Where Flower's SuperLink is.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS and keys, on this machine alone: to try things out.")
]
Keys = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The folder of `plures deploy keys`.")]
Ca = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate ca.crt of `plures deploy keys`.")]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="This node's own key, of `plures deploy keys`.")]
Printed = Annotated[bool, typer.Option("--print", help="Print Flower's own commands for the same, and stop.")]


def say(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def check_flower() -> None:
    from plures.deploy.flower import check_installed

    check_installed()


def check_safety(given: Path | None, insecure: bool) -> None:
    """Either certificates or a trial, and Flower is there; to be called before anything of Flower is imported."""
    if given is None and not insecure:
        raise InvalidConfig(
            "Give the certificates and keys that 'plures deploy keys' makes (the server: --keys; a node: --ca and "
            "--key), or --insecure to try things out on this machine."
        )
    if given is not None and insecure:
        raise InvalidConfig("--insecure goes without certificates and keys: leave one of the two out.")
    check_flower()
