"""The nginx of docs/deployment.md: nodes get through it, and nobody reaches what starts runs and lets nodes in."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs plures[flower]")

import httpx
from flwr.proto.control_pb2 import StartRunRequest

from plures.deploy.flower.fleet import FleetNode
from plures.deploy.flower.keys import make_keys
from plures.deploy.flower.links import Link, SuperLinkError
from plures.deploy.flower.running import register_all, server_link
from plures.deploy.flower.session import Session, control, known_nodes, register
from plures.deploy.flower.superlink import superlink
from plures.deploy.transport import Letter

PAGE = Path(__file__).parents[3] / "docs" / "deployment.md"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
AROUND = """daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{block}}}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="there is no nginx here"),
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # of Flower's, by a newer pathspec
]


@contextmanager
def proxy(folder: Path, port: int, superlink_port: int, keys: Path) -> Iterator[None]:
    """The block of the page, with the ports and the folder of this test."""
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for word, here in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "127.0.0.1:8500": f"127.0.0.1:{superlink_port}",
        "fl.example.org": "localhost",
        "/etc/plures/keys": str(keys),
    }.items():
        assert word in block
        block = block.replace(word, here)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, block=block), encoding="utf-8")
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen([str(NGINX), "-c", str(folder / "nginx.conf")], stdout=log, stderr=log)
    try:
        wait_for(port)
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def node(link: Link, folder: Path, key: Path, said: list[str]) -> Iterator[None]:
    fleet = FleetNode(link, lambda letter: letter[::-1], folder / f"{key.name}-number", key=key, tell=said.append)
    thread = threading.Thread(target=fleet.run)
    thread.start()
    try:
        yield
    finally:
        fleet.stop()
        thread.join(10)
        fleet.client.close()


def test_nodes_get_through_the_proxy_and_nothing_else_does(tmp_path: Path) -> None:
    keys, (inner, outer) = tmp_path / "keys", free_ports()
    make_keys(keys, ["localhost", "127.0.0.1"], ["north"])
    make_keys(tmp_path / "strangers", ["localhost"], ["stranger"])
    inside, outside = server_link(f"127.0.0.1:{inner}", keys), Link(address=f"localhost:{outer}", ca=keys / "ca.crt")
    said, strange = list[str](), list[str]()
    with ExitStack() as stack:
        stack.enter_context(superlink(inside, tmp_path / "link", keys))
        stack.enter_context(proxy(tmp_path, outer, inner, keys))
        register_all(inside, keys, said.append)
        stack.enter_context(node(outside, tmp_path, keys / "nodes" / "north", said))
        stack.enter_context(node(outside, tmp_path, tmp_path / "strangers" / "nodes" / "stranger", strange))
        check_that_nodes_are_served(inside, bytes(range(256)) * 40_000)
        assert strange
        assert not any("Connected" in line for line in strange)
        check_that_the_rest_is_refused(outside, inside, tmp_path / "strangers" / "nodes" / "stranger.pub")
    assert sum("Connected" in line for line in said) == 1


def check_that_nodes_are_served(inside: Link, letter: bytes) -> None:
    """A letter of 10 MB, which goes in pieces of 5: nginx alone would take 1."""
    transport = Session(inside).transport()
    try:
        (number,) = until(transport.nodes)
        tickets = transport.push([Letter(number, letter, 30.0)])
        (answer,) = until(lambda: transport.pull(tickets))
        assert answer.failure is None
        assert answer.data == letter[::-1]
    finally:
        transport.close()


def check_that_the_rest_is_refused(outside: Link, inside: Link, stranger: Path) -> None:
    before = known_nodes(inside)
    with control(outside) as client, pytest.raises(httpx.HTTPStatusError, match="403 Forbidden"):
        client.StartRun(StartRunRequest())
    with pytest.raises(SuperLinkError, match="403 Forbidden"):
        register(outside, stranger, "stranger")
    with pytest.raises(SuperLinkError, match="403 Forbidden"):
        known_nodes(outside)
    assert known_nodes(inside).keys() == before.keys()
    for path in (
        "/",
        "/openapi.json",
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "//v1/control/start-run",
    ):
        assert status(outside, path) == 403, path


def status(link: Link, path: str) -> int:
    """Of a path as it stands: a client of HTTP would tidy it up."""
    context = ssl.create_default_context(cafile=str(link.ca))
    with context.wrap_socket(socket.create_connection(("127.0.0.1", link.port)), server_hostname="localhost") as line:
        line.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        return int(line.recv(100).split()[1])


def until(find, seconds: float = 30.0):
    """What is found as soon as there is something."""
    end = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


def wait_for(port: int) -> None:
    def answers() -> bool:
        with closing(socket.socket()) as line:
            return line.connect_ex(("127.0.0.1", port)) == 0

    until(answers, 10.0)


def free_ports() -> tuple[int, int]:
    with closing(socket.socket()) as one, closing(socket.socket()) as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
