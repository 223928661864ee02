"""A command in a process that has everything imported; to a node, something may be done.

record    a file for every request that leaves and every answer that comes, as bytes
nan       rounds in which the upload is NaN
pause     a round in whose midst the node waits for long, once; the file `flag` says that it does
slow      seconds that every training takes longer
half      rounds in which an answer is announced, and its pieces are not sent
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from plures.cli import main
from plures.deploy.flower import fleet
from plures.deploy.handler import Handler
from plures.deploy.messages import opened_order
from tests.deploy.test_losses import with_nan


def change(how: dict[str, Any]) -> None:
    handle, push = Handler.handle, fleet.push_objects

    def changed(self: Handler, letter: bytes) -> bytes:
        order, _ = opened_order(letter)
        if order.kind != "train":
            return handle(self, letter)
        if order.round == how.get("pause") and not Path(how["flag"]).exists():
            Path(how["flag"]).touch()
            time.sleep(600)
        time.sleep(how.get("slow", 0))
        reply = handle(self, letter)
        if order.round in how.get("half", ()):
            fleet.push_objects = lambda *given, **more: None  # type: ignore[assignment]
        else:
            fleet.push_objects = push
        return with_nan(reply) if order.round in how.get("nan", ()) else reply

    Handler.handle = changed  # type: ignore[method-assign]
    if "record" in how:
        record(Path(how["record"]))


def record(path: Path) -> None:
    """Below everything that packs and cuts: what goes through the HTTP client."""
    send = httpx.Client.send

    def recorded(self: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        answer = send(self, request, **more)
        if not more.get("stream"):
            with path.open("ab") as file:
                for data in (request.content, answer.content):
                    file.write(struct.pack("<Q", len(data)) + data)
        return answer

    httpx.Client.send = recorded  # type: ignore[method-assign, assignment]


def begun_with(words: list[str], how: dict[str, Any], log: str, environment: dict[str, str]) -> None:
    """As if by the command line, in a session of its own; what it says goes to a file."""
    os.setsid()
    os.environ |= environment
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    change(how)
    sys.argv = ["plures", *words]
    main()
