"""Flower's SuperLink as a process: how it is started, for people and by us."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plures.core.errors import InvalidConfig, RunFolderError
from plures.deploy.flower import guard
from plures.deploy.flower.keys import CA, SECRET, SERVER, SERVER_KEY
from plures.deploy.flower.links import Link
from plures.deploy.flower.session import wait_until_up

START_SECONDS = 120.0
FREE_SECONDS = 10.0
"""For a port whose last user has just died."""
LOG, DATABASE = "superlink.log", "superlink.db"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""No telemetry, no question about newer versions, no installing of what a server asks for."""


def superlink_command(link: Link, database: Path, keys: Path | None) -> list[str]:
    """With TLS and keys of nodes where there are some; runs are taken by us, and by nobody else."""
    words = [program("flower-superlink"), "--host", link.host, "--port", str(link.port), "--isolation", "process"]
    words += ["--database", str(database), "--disable-runtime-dependency-installation"]
    if keys is None:
        return [*words, "--insecure"]
    for name in (CA, SERVER, SERVER_KEY, SECRET):
        if not (keys / name).is_file():
            raise InvalidConfig(f"{keys} has no {name}: make it by 'plures deploy keys {keys} --host HOST'.")
    words += ["--ssl-ca-certfile", str(keys / CA), "--ssl-certfile", str(keys / SERVER)]
    words += ["--ssl-keyfile", str(keys / SERVER_KEY), "--enable-supernode-auth"]
    return [*words, "--superexec-auth-secret-file", str(keys / SECRET)]


def program(name: str) -> str:
    """A program of Flower's, of the environment that we run in."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise InvalidConfig(f'There is no program {name}: pip install "plures[flower]".')
    return found


@contextmanager
def superlink(link: Link, folder: Path, keys: Path | None) -> Iterator[None]:
    """A SuperLink of our own, as long as we live; its log and database are in the folder."""
    command = superlink_command(link, folder / DATABASE, keys)
    wait_until_free(link)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = (folder / LOG).open("ab")
    except OSError as error:
        raise RunFolderError(f"Cannot write {folder / LOG}: {error.strerror or error}.") from error
    environment = {**os.environ, **QUIET, "FLWR_HOME": str((folder / "flower").resolve())}
    with log:
        process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us: the run ends first
        )
    assert process.stdin is not None
    try:
        wait_until_up(link, START_SECONDS, process, folder / LOG)
        process.stdin.write(guard.UP)
        process.stdin.flush()
        yield
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def wait_until_free(link: Link) -> None:
    """Somebody else's SuperLink on the same port must not be taken for ours."""
    until = time.monotonic() + FREE_SECONDS
    family = socket.AF_INET6 if ":" in link.host else socket.AF_INET
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((link.host, link.port))
                return
            except OSError as error:
                if time.monotonic() >= until:
                    raise InvalidConfig(
                        f"Cannot listen on {link.address}: {error.strerror or error}. Choose another --superlink, or "
                        "give --external for a SuperLink that is running there."
                    ) from error
        time.sleep(0.2)
