"""On Flower, when a run has finished: its nodes once more, and newcomers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from plures.core.errors import InvalidConfig
from plures.deploy.afterwards import Finished
from plures.deploy.fetching import Newcomer
from plures.deploy.flower.fleet import FleetNode
from plures.deploy.flower.links import Link
from plures.deploy.flower.running import LINK_FOLDER, UP_SECONDS, register_all, server_link, stopped_by_signals
from plures.deploy.flower.session import Session, wait_until_up
from plures.deploy.flower.superlink import superlink
from plures.deploy.telling import Telling, silent
from plures.recipes.experiment import Experiment


@contextmanager
def connected(
    experiment: Experiment,
    out: Path,
    address: str,
    keys: Path | None,
    *,
    own_superlink: bool,
    tell: Telling = silent,
) -> Iterator[Finished]:
    """A finished deployment and its nodes, by a SuperLink that is there or one of our own."""
    link = server_link(address, keys)
    with ExitStack() as stack:
        if own_superlink:
            stack.enter_context(superlink(link, out / LINK_FOLDER, keys))
        else:
            wait_until_up(link, UP_SECONDS)
        if keys is not None:
            register_all(link, keys, tell)
        finished = Finished(experiment, lambda: Session(link).transport(), out, keyed=keys is not None, tell=tell)
        try:
            yield finished
        except BaseException as trouble:
            finished.close(trouble)
            raise
        finished.close()


def run_newcomer(
    experiment: Experiment, out: Path, name: str, link: Link, key: Path | None, *, tell: Telling = silent
) -> None:
    """Ask for the shared part, wait until it comes, and leave."""
    if not link.insecure and key is None:
        raise InvalidConfig("A newcomer needs a key of its own: --key, which 'plures deploy keys' makes.")
    node: FleetNode | None = None

    def done() -> None:
        assert node is not None
        node.stop()

    newcomer = Newcomer(experiment, out, name, done=done, tell=tell)
    node = FleetNode(link, newcomer.handle, out.with_name(f".{out.name}.node"), key=key, tell=tell)
    tell("Waiting for the server to give the shared part")
    with stopped_by_signals(node):
        node.run()
    node.memory.unlink(missing_ok=True)
