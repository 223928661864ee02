"""Replies come in pieces, and each is fetched by itself: who dies while it sends keeps nobody else waiting.

Flower's grid fetches one reply after another, and waits minutes for pieces that never come. Private parts of flwr 1.41:
the client of the Runtime API, and how messages are put together from objects.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, inflate_object_from_contents, pull_objects
from flwr.superlink.grid import HttpGrid

from plures.deploy.flower.grid import answer_of
from plures.deploy.transport import Answer, Failure, Ticket

PIECES_SECONDS = 200.0
"""The SuperLink itself gives up after 180."""
AT_ONCE_SECONDS = 0.02
"""Small replies are there as soon as they are announced."""

Fetch = Callable[[], Answer]
Announced = Callable[[list[Ticket]], Iterator[tuple[Ticket, Fetch]]]


class Arriving:
    """Asks for what is announced, and gives what has come whole."""

    def __init__(self, announced: Announced) -> None:
        self._announced = announced
        self._come: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._under_way: set[Ticket] = set()

    def pull(self, tickets: Collection[Ticket]) -> list[Answer]:
        asked = [ticket for ticket in tickets if ticket not in self._under_way]
        threads = []
        for ticket, fetch in self._announced(asked) if asked else ():
            self._under_way.add(ticket)
            threads.append(threading.Thread(target=self._fetch, args=(ticket, fetch), daemon=True, name="reply"))
            threads[-1].start()
        for thread in threads:
            thread.join(AT_ONCE_SECONDS)
        found = []
        while not self._come.empty():
            found.append(self._come.get())
        self._under_way.difference_update(answer.ticket for answer in found)
        return found

    def _fetch(self, ticket: Ticket, fetch: Fetch) -> None:
        try:
            answer = fetch()
        except (ObjectPullError, httpx.HTTPError, OSError, ValueError) as error:
            answer = Answer(ticket, failure=Failure("gone", f"its answer came in part ({type(error).__name__})"))
        self._come.put(answer)


def announced_on(grid: HttpGrid) -> Announced:
    """What the SuperLink says has come, and for each reply how to fetch its pieces."""

    def announced(tickets: list[Ticket]) -> Iterator[tuple[Ticket, Fetch]]:
        found = grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=tickets))
        for heading, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            yield heading.metadata.reply_to_message_id, fetching(grid, heading, tree)

    return announced


def fetching(grid: HttpGrid, heading: Any, tree: Any) -> Fetch:
    def fetch() -> Answer:
        assert grid._run is not None
        number, client = grid._run.run_id, grid._runtime_client
        contents = pull_objects(
            object_ids=[part.object_id for part in iterate_object_tree(tree)],
            pull_object_fn=make_pull_object_fn_protobuf(client.PullObject, grid.node, number),
            initial_backoff=0.05,
            backoff_cap=1.0,
            max_time=PIECES_SECONDS,
        )
        name = heading.metadata.message_id
        client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=grid.node, run_id=number, message_object_id=name)
        )
        message = inflate_object_from_contents(name, contents)
        assert isinstance(message, Message)
        return answer_of(message)

    return fetch
