"""A run of our own on a SuperLink: created, taken and ended by this process, without `flwr run`.

Private parts of flwr 1.41: HttpGrid, the clients of the Control and Runtime APIs, TaskIdentity.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import subprocess
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import RetryState
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from plures.core.errors import InvalidConfig
from plures.deploy.flower.arriving import Arriving, announced_on
from plures.deploy.flower.grid import OnGrid
from plures.deploy.flower.links import Link, SuperLinkError
from plures.deploy.flower.refusals import code_of, is_distrust, reason, told
from plures.deploy.telling import Telling, silent
from plures.deploy.transport import Answer, Letter, Ticket

PASSING = (502, 503, 504)
"""Answers of a SuperLink, or of a proxy before it, that is not ready."""
PATIENCE_SECONDS = 300.0
"""For a SuperLink that is started again."""
BEAT_SECONDS, LEAVE_SECONDS = 10.0, 5.0
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
PYPROJECT = """[project]
name = "plures"
version = "0.0.0"
description = "{name}"
[tool.flwr.app]
publisher = "plures"
[tool.flwr.app.components]
serverapp = "none:app"
clientapp = "none:app"
"""
"""An app without code: nodes run what is installed there."""


def control(link: Link) -> ControlHttpClient:
    interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    return ControlHttpClient.from_server_address(link.reached, link.insecure, link.ca_bytes, interceptors=interceptors)


def register(link: Link, public_key: Path, name: str) -> bool:
    """Let a node in that has this key; whether it was not in before."""
    try:
        key = load_ssh_public_key(public_key.read_bytes())
        pem = public_key_to_bytes(key)  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidConfig(f"Cannot read the key {public_key}: {error}. 'plures deploy keys' makes one.") from error
    request = RegisterNodeRequest(public_key=pem, name=name)
    with control(link) as client:
        try:
            told(link, lambda: client.RegisterNode(request))
        except SuperLinkError as error:
            if code_of(error.__cause__) == ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
                return False
            raise
    return True


def known_nodes(link: Link) -> dict[int, str]:
    """Every node that was ever registered, and how it is: registered, online, offline or unregistered."""
    with control(link) as client:
        found = told(link, lambda: client.ListNodes(ListNodesRequest()))
    return {node.node_id: node.status for node in found.nodes_info}


class Session:
    """The server's process in the place of a ServerApp; one in a process, for Flower keeps its identity there."""

    def __init__(self, link: Link, tell: Telling = silent) -> None:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what is to be said, we say
        self.link, self.tell, self.control = link, tell, control(link)
        self.lost: str | None = None
        """Why the run is not ours any more."""
        fab = build_fab_from_files({"pyproject.toml": PYPROJECT.format(name=uuid.uuid4()).encode()})[0]
        request = StartRunRequest(fab=fab_to_proto(Fab("", fab, {})))
        self.run_id = told(link, lambda: self.control.StartRun(request)).run_id
        try:
            self.token = self._acquired(hashlib.sha256(fab).hexdigest())
        except BaseException:
            told(link, lambda: self.control.StopRun(StopRunRequest(run_id=self.run_id)))
            raise
        self.grid = HttpGrid(link.reached, link.insecure, link.ca_bytes, token=self.token)
        self.grid._retry_invoker.should_giveup = gives_up
        self.grid._retry_invoker.on_backoff = self._waits
        self.grid._retry_invoker.max_time = PATIENCE_SECONDS
        self.ended = threading.Event()
        self.beats = threading.Thread(target=self._beats, daemon=True, name="heartbeat")
        self.beats.start()
        begun = told(link, lambda: self.grid._runtime_client.PullTaskInput(PullTaskInputRequest()))
        TaskIdentity.task_id, TaskIdentity.run_id = begun.task_id, begun.run.run_id
        TaskIdentity.node_id = begun.context.node_id
        self.grid.set_run(run_from_proto(begun.run))

    def _acquired(self, fab_hash: str) -> str:
        """The token of our task: by the hash of an app that nobody else has, no other can be given to us."""
        interceptors: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
        if self.link.secret is not None:
            secret = self.link.secret
            interceptors.append(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[ACQUIRE]))
        with self._runtime(interceptors) as client:
            got = told(self.link, lambda: client.AcquireTask(AcquireTaskRequest(agentapp_fab_hashes=[fab_hash])))
        if not got.HasField("task") or got.task.run_id != self.run_id:
            raise SuperLinkError(
                "The SuperLink has given the run to somebody else: start it with --isolation process, and no "
                "flower-superexec beside it."
            )
        return got.token

    def _runtime(self, interceptors: Sequence[ProtobufClientInterceptor]) -> RuntimeHttpClient:
        link = self.link
        return RuntimeHttpClient.from_server_address(
            link.reached, link.insecure, link.ca_bytes, interceptors=interceptors
        )

    def _beats(self) -> None:
        """A task that is silent for a minute is taken from us."""
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="flwr-serverapp"),
            RuntimeTokenHttpInterceptor(token=self.token),
        ]
        with self._runtime(interceptors) as client:
            while self.lost is None and not self.ended.wait(BEAT_SECONDS):
                try:
                    if not client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success:
                        self.lost = "it was ended there"
                except httpx.HTTPStatusError as error:
                    if error.response.status_code not in PASSING and not self.ended.is_set():
                        self.lost = reason(error)
                except (httpx.HTTPError, OSError):
                    continue  # whoever sends or asks notices too

    def _waits(self, state: RetryState) -> None:
        if state.tries == 1:
            self.tell(f"The SuperLink on {self.link.address} cannot be reached; trying for {PATIENCE_SECONDS:g} s")

    def transport(self) -> OnGrid:
        return Watched(self)

    def end(self, trouble: BaseException | None) -> None:
        """Tell the SuperLink how the run has ended, as far as it listens."""
        self.ended.set()
        self.grid._retry_invoker.max_tries = 2
        status, details = (SubStatus.COMPLETED, "") if trouble is None else (SubStatus.FAILED, type(trouble).__name__)
        try:
            request = PushTaskOutputRequest(sub_status=status, details=details)
            self.grid._runtime_client.PushTaskOutput(request)
        except (httpx.HTTPError, OSError):
            pass  # a SuperLink that is gone notices by itself that nobody is there
        finally:
            self.beats.join(LEAVE_SECONDS)  # a thread that outlives the interpreter may abort it
            self.grid.close()
            self.control.close()

    def status(self) -> tuple[str, str, str]:
        """As the SuperLink has it: status, how it ended, details."""
        with control(self.link) as client:
            found = told(self.link, lambda: client.ListRuns(ListRunsRequest(run_id=self.run_id)))
        status = found.run_dict[self.run_id].status
        return status.status, status.sub_status, status.details


class Watched(OnGrid):
    """The grid of a session; a run that is not ours any more ends here."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.grid, ended=session.end)
        self.session, self.arriving = session, Arriving(announced_on(session.grid))

    def nodes(self) -> Collection[int]:
        self._check()
        return told(self.session.link, super().nodes)

    def push(self, letters: Sequence[Letter]) -> list[Ticket]:
        self._check()
        return told(self.session.link, functools.partial(super().push, letters))

    def pull(self, tickets: Collection[Ticket]) -> list[Answer]:
        self._check()
        return told(self.session.link, functools.partial(self.arriving.pull, tickets))

    def _check(self) -> None:
        if self.session.lost is not None:
            raise SuperLinkError(
                f"The SuperLink has ended this run: {self.session.lost}. The same command with --resume goes on."
            )


def gives_up(error: Exception) -> bool:
    """Whether it is of no use to ask again."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code not in PASSING
    return is_distrust(error)


def wait_until_up(
    link: Link, seconds: float, process: subprocess.Popen[bytes] | None = None, log: Path | None = None
) -> None:
    """Until the SuperLink answers."""
    until, where = time.monotonic() + seconds, "" if log is None else f" Its log is {log}."
    while True:
        try:
            known_nodes(link)
            return
        except SuperLinkError as error:
            if process is not None and process.poll() is not None:
                raise SuperLinkError(f"The SuperLink has ended as soon as it was started.{where}") from error
            if time.monotonic() >= until or "cannot be reached" not in str(error):
                raise SuperLinkError(f"{error}{where}") from error
        time.sleep(0.2)
