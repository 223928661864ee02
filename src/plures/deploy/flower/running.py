"""Server and node as processes on Flower."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from plures.core.errors import InvalidConfig
from plures.deploy.flower.fleet import FleetNode
from plures.deploy.flower.keys import CA, NODES, SECRET
from plures.deploy.flower.links import Link
from plures.deploy.flower.session import Session, register, wait_until_up
from plures.deploy.flower.superlink import LOG, superlink
from plures.deploy.handler import Handler
from plures.deploy.keeping import private_folder
from plures.deploy.node_data import read_folder
from plures.deploy.serving import serve
from plures.deploy.telling import Telling, silent
from plures.recipes.experiment import Experiment
from plures.recipes.results import RunResult
from plures.recipes.watching import Watcher

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LINK_FOLDER = "link"
"""In the server's folder: log and database of the SuperLink."""
NODE_NUMBER = "node"
"""In a node's folder: the number that it had last."""
LOCK = "lock"
UP_SECONDS = 60.0


def server_link(address: str, keys: Path | None) -> Link:
    """How the server reaches its SuperLink: with the secret that lets it take runs."""
    if keys is None:
        return Link(address=address)
    secret = keys / SECRET
    return Link(address=address, ca=keys / CA, secret=secret.read_bytes() if secret.is_file() else None)


def run_server(
    experiment: Experiment,
    out: Path,
    address: str,
    keys: Path | None,
    *,
    own_superlink: bool,
    resume: bool = False,
    watcher: Watcher | None = None,
    tell: Telling = silent,
) -> RunResult:
    """The run of an experiment on a SuperLink that is there, or on one that lasts as long as the run."""
    link = server_link(address, keys)
    with ExitStack() as stack:
        if own_superlink:
            tell(f"Starting a SuperLink on {address}; its log is {out / LINK_FOLDER / LOG}")
            stack.enter_context(superlink(link, out / LINK_FOLDER, keys))
        else:
            wait_until_up(link, UP_SECONDS)
        if keys is not None:
            register_all(link, keys, tell)
        return serve(
            experiment,
            lambda: Session(link, tell).transport(),
            out,
            keyed=keys is not None,
            resume=resume,
            watcher=watcher,
            tell=tell,
        )


def register_all(link: Link, keys: Path, tell: Telling) -> None:
    """Let in every node that has a key in the folder; those that are in already are left as they are."""
    known = sorted((keys / NODES).glob("*.pub"))
    if not known:
        raise InvalidConfig(f"{keys / NODES} has no key of a node: 'plures deploy keys {keys} --node NAME' makes them.")
    for public in known:
        if register(link, public, public.stem):
            tell(f"The key of {public.stem} is registered")


def run_node(
    experiment: Experiment,
    data: Path,
    state: Path,
    name: str,
    link: Link,
    key: Path | None,
    *,
    tell: Telling = silent,
) -> None:
    """A node that answers until it is told to stop; bad examples and a bad state are found before it connects."""
    if not link.insecure and key is None:
        raise InvalidConfig("A node needs its key: --key KEYS/nodes/NAME, which 'plures deploy keys' makes.")
    if link.insecure and key is not None:
        raise InvalidConfig("--insecure goes without keys: leave --key out, or give --ca.")
    private_folder(state)
    handler = Handler(experiment, lambda: read_folder(data, experiment), state, name, tell)
    examples = handler.data()
    tell(f"{name}: {examples.train.num_examples} examples to train on")
    node = FleetNode(link, handler.handle, state / NODE_NUMBER, key=key, tell=tell)
    with alone_in(state), stopped_by_signals(node):
        node.run()
    tell("Stopped")


@contextmanager
def alone_in(state: Path) -> Iterator[None]:
    """Two processes with one state would undo each other's work."""
    with (state / LOCK).open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InvalidConfig(f"Another process uses {state}: a node runs once.") from error
        yield


class stopped_by_signals:  # noqa: N801 - it is used as a function
    """Ctrl-C and SIGTERM end a node: at once where it waits, and in the midst of its work too.

    What it was working at never was: states are kept when a visit is over, and the server hears that it went away.
    """

    def __init__(self, node: FleetNode) -> None:
        self.node, self.before = node, dict[int, Any]()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.stop)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Once: leaving must not be disturbed."""
        if not self.node.stopping.is_set():
            self.node.stop()
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        return kind is KeyboardInterrupt
