"""A node that stays: it asks the SuperLink for letters and answers them in this process, by installed code alone.

Flower's own SuperNode starts a process for every message, and runs there what the server ships. Private parts of flwr
1.41: the client of the Fleet API, and how messages are taken apart into objects.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from plures.deploy.flower.keys import read_key
from plures.deploy.flower.links import Link, SuperLinkError
from plures.deploy.flower.packing import packed, unpacked
from plures.deploy.flower.refusals import code_of, is_distrust, sentence
from plures.deploy.telling import Telling, silent
from plures.report.writing import replace_whole

POLL_SECONDS = 0.1
BEAT_SECONDS = 10
"""The shortest that Flower allows; a node that is silent twice as long is taken for gone."""
RETRY_SECONDS = 1.0
LEAVE_SECONDS = 5.0
OBJECT_SECONDS = 600.0
"""For the pieces of a large message."""
PASSING = (502, 503, 504)
"""Answers of a proxy whose SuperLink is not ready."""
UNKNOWN, OVER = 401, 403
"""The SuperLink does not know this node; the run is over."""

Handle = Callable[[bytes], bytes]


class FleetNode:
    """One node of a federation, until it is told to stop."""

    def __init__(
        self, link: Link, handle: Handle, memory: Path, *, key: Path | None = None, tell: Telling = silent
    ) -> None:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what is to be said, we say
        self.link, self.handle, self.memory, self.tell = link, handle, memory, tell
        self.key = read_key(key) if key is not None else ec.generate_private_key(ec.SECP384R1())
        self.is_keyed = key is not None
        self.client = FleetHttpClient.from_server_address(
            link.address,
            link.insecure,
            link.ca_bytes,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(self.key, self.key.public_key()),
            ],
        )
        self.node: Node | None = None
        self.stopping = threading.Event()
        self._beating = threading.Lock()
        self._was_in = False
        self._said = ""

    def run(self) -> None:
        """Answer letters until somebody calls `stop`; the SuperLink may come and go."""
        beats = threading.Thread(target=self._beats, daemon=True, name="heartbeat")
        beats.start()
        try:
            while not self.stopping.is_set():
                self._step()
        finally:
            self.stopping.set()
            self._leave()
            beats.join(LEAVE_SECONDS)  # a thread that outlives the interpreter may abort it

    def stop(self) -> None:
        """After the letter that is being answered."""
        self.stopping.set()

    def _step(self) -> None:
        try:
            if self.node is None:
                self.node = self._activated()
            found = self.client.PullMessages(PullMessagesRequest(node=self.node))
            self._said = ""
            if found.messages_list:
                self._answer(message_from_proto(found.messages_list[0]), found.message_object_trees[0])
            else:
                self.stopping.wait(POLL_SECONDS)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == UNKNOWN:
                self.node = None
            if error.response.status_code != OVER:
                self._say(f"{self._refusal(error)}; trying again")
            self.stopping.wait(RETRY_SECONDS)
        except (httpx.HTTPError, OSError) as error:
            if is_distrust(error) and not self._was_in:
                raise SuperLinkError(f"{sentence(self.link, error)}.") from error
            self._say(f"{sentence(self.link, error)}; trying again")
            self.stopping.wait(RETRY_SECONDS)
        except (
            ObjectPullError,
            ObjectPushError,
            ValueError,
        ) as error:  # a letter whose pieces do not come, or are none
            self._say(f"A message is left out: {type(error).__name__}")

    def _refusal(self, error: httpx.HTTPStatusError) -> str:
        if code_of(error) != ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            return sentence(self.link, error)
        return f"{self.link.address} does not let this node in: its key is not registered there, or is in use elsewhere"

    def _activated(self) -> Node:
        """Online; one that was killed first leaves, in the name of what it was before."""
        pem = public_key_to_bytes(self.key.public_key())
        if not self.is_keyed:
            self._register(pem)
        request = ActivateNodeRequest(public_key=pem, heartbeat_interval=BEAT_SECONDS)
        try:
            number = self.client.ActivateNode(request).node_id
        except httpx.HTTPStatusError:
            before = self._before()
            if before is None:
                raise
            self.client.DeactivateNode(DeactivateNodeRequest(node_id=before))
            # Long enough for a server to hear that what the dead process had is lost.
            self.stopping.wait(RETRY_SECONDS)
            number = self.client.ActivateNode(request).node_id
        if self.is_keyed:
            replace_whole(self.memory, str(number).encode())
        self._was_in = True
        self.tell(f"Connected to {self.link.address} as node {number}")
        return Node(node_id=number)

    def _register(self, pem: bytes) -> None:
        """A node without a key registers one of its own making, as Flower's do; it may have done so before."""
        try:
            self.client.RegisterNode(RegisterNodeFleetRequest(public_key=pem))
        except httpx.HTTPStatusError as error:
            if error.response.status_code >= 500:
                raise

    def _before(self) -> int | None:
        if not self.is_keyed or not self.memory.is_file():
            return None
        text = self.memory.read_text(encoding="ascii", errors="replace").strip()
        return int(text) if text.isdecimal() else None

    def _beats(self) -> None:
        while not self.stopping.wait(BEAT_SECONDS * 0.7):
            with self._beating:
                node = self.node
                if node is None or self.stopping.is_set():
                    continue
                request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=BEAT_SECONDS)
                try:
                    self.client.SendNodeHeartbeat(request)
                except (httpx.HTTPError, OSError):
                    continue  # the loop notices too

    def _answer(self, heading: Message, tree: Any) -> None:
        assert self.node is not None
        began, run = time.time(), heading.metadata.run_id
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(self.client.PullObject, self.node, run),
            make_confirm_message_received_fn_protobuf(self.client.ConfirmMessageReceived, self.node, run),
            return_type=Message,
            initial_backoff=0.05,
            backoff_cap=1.0,
            max_time=OBJECT_SECONDS,
        )
        message.metadata.__dict__["_message_id"] = heading.metadata.message_id
        try:
            reply = Message(packed(self.handle(unpacked(message.content))), reply_to=message)
        except Exception as error:  # noqa: BLE001 - a handler answers errors itself; should it not, none gets out
            self.tell(f"{type(error).__name__}: {error}")
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, type(error).__name__), reply_to=message)
        until = message.metadata.created_at + message.metadata.ttl
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            while time.time() < until:
                try:
                    self._push(reply, run, time.time() - began)
                    return
                except (httpx.TransportError, httpx.HTTPStatusError) as error:
                    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in PASSING:
                        raise
                    self._say(f"{sentence(self.link, error)}; the answer is sent again")
                    if self.stopping.wait(RETRY_SECONDS):
                        return

    def _push(self, reply: Message, run: int, seconds: float) -> None:
        assert self.node is not None
        bare = remove_content_from_message(reply) if reply.has_content() else reply
        pushed = self.client.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(bare)],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
        )
        push_objects(
            get_all_nested_objects(reply),
            make_push_object_fn_protobuf(self.client.PushObject, self.node, run, pushed.session_id),
            object_ids_to_push=set(pushed.objects_to_push),
        )

    def _leave(self) -> None:
        """Offline at once; no heartbeat may follow, for it would bring the node back."""
        node, self.node = self.node, None
        if node is None:
            return
        is_quiet = self._beating.acquire(timeout=LEAVE_SECONDS)
        try:
            self.client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
            if not self.is_keyed:
                self.client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node.node_id))
        except (httpx.HTTPError, OSError):
            return  # it will be taken for gone
        finally:
            if is_quiet:
                self._beating.release()

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.tell(text)
