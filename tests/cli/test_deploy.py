"""`plures deploy`: what it makes and prints, and that whatever is wrong is one sentence."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import plures
from plures.cli.deploy import deploy_app
from plures.core.errors import InvalidConfig, PluresError
from plures.deploy.splitting import split_to_folders
from tests.deploy.helpers import small

has_flower = pytest.mark.skipif(
    find_spec("flwr") is None,
    reason='Flower is not installed: pip install "plures[flower]"',
)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a federation that was split."""
    path = tmp_path_factory.mktemp("deploy") / "split"
    split_to_folders(small("fedalt", rounds=1), path)
    return path


def call(*words: object) -> str:
    result = CliRunner().invoke(deploy_app, [str(word) for word in words], catch_exceptions=True)
    if isinstance(result.exception, PluresError):
        raise result.exception
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def client(ready: Path, tmp_path: Path, *more: object) -> str:
    return call("client", ready / "experiment.toml", "--data", ready / "0", "--state", tmp_path / "state", *more)


def server(ready: Path, tmp_path: Path, *more: object) -> str:
    return call("server", ready / "experiment.toml", "--out", tmp_path / "out", *more)


def test_split_writes_a_folder_for_each_client(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(
        'method = "fedavg"\n[data]\nsource = "digits"\nclients = 2\nclasses_per_client = 5\n[model]\nname = "mlp"\n'
    )
    call("split", file, "--out", tmp_path / "try")
    assert tomllib.loads((tmp_path / "try" / "experiment.toml").read_text())["deploy"]["clients"] == ["0", "1"]
    assert (tmp_path / "try" / "1" / "train.safetensors").is_file()


@has_flower
def test_keys_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    call("keys", keys, "--host", "fl.example.org", "--node", "north")
    call("keys", keys, "--node", "south")
    names = {str(path.relative_to(keys)) for path in keys.rglob("*") if path.is_file()}
    nodes = {f"nodes/{name}{end}" for name in ("north", "south") for end in ("", ".pub")}
    assert names == nodes | {"ca.key", "ca.crt", "server.key", "server.pem", "secret"}
    for name in ("ca.key", "server.key", "secret", "nodes/north", "nodes/south"):
        assert (keys / name).stat().st_mode & 0o777 == 0o600, name
    assert keys.stat().st_mode & 0o777 == 0o700


@has_flower
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "Give --host"),
        (["--host", "a", "--node", "../x"], "cannot be a file"),
        (["--host", "a", "--node", "x.pub"], "cannot be a file"),
        (["--host", "ü.example"], "name or the address of a machine"),
    ],
)
def test_keys_that_cannot_be_made_are_refused(words: list[str], what: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=what):
        call("keys", tmp_path / "keys", *words)


@has_flower
def test_print_shows_commands_of_flower(ready: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    call("keys", keys, "--host", "localhost", "--node", "0")
    words = shlex.split(server(ready, tmp_path, "--keys", keys, "--superlink", "0.0.0.0:8500", "--print"))
    assert Path(words[0]).name == "flower-superlink"
    assert {"--enable-supernode-auth", "--ssl-keyfile", "--superexec-auth-secret-file"} <= set(words)
    safety = ["--ca", keys / "ca.crt", "--key", keys / "nodes" / "0", "--superlink", "fl.example.org:8500"]
    words = shlex.split(client(ready, tmp_path, *safety, "--print"))
    assert Path(words[0]).name == "flower-supernode"
    assert words[words.index("--superlink") + 1] == "fl.example.org:8500"
    assert tomllib.loads(words[-1].replace(" ", "\n"))["name"] == "0"
    assert not (tmp_path / "out").exists()


@has_flower
def test_app_names_the_plures_that_is_installed(ready: Path, tmp_path: Path) -> None:
    call("app", ready / "experiment.toml", "--folder", tmp_path / "app", "--out", tmp_path / "out", "--insecure")
    table = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert table["config"] == {
        "experiment": str((ready / "experiment.toml").resolve()),
        "out": str((tmp_path / "out").resolve()),
        "keyed": False,
    }
    for name in ("server_app", "client_app"):
        code = (tmp_path / "app" / "plures_app" / f"{name}.py").read_text()
        assert f"from plures.deploy.flower.apps import {name} as app" in code


@has_flower
def test_safety_is_asked_for(ready: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="--insecure to try"):
        client(ready, tmp_path)
    with pytest.raises(InvalidConfig, match="--insecure to try"):
        server(ready, tmp_path)
    with pytest.raises(InvalidConfig, match="leave one of the two out"):
        server(ready, tmp_path, "--insecure", "--keys", tmp_path)
    with pytest.raises(InvalidConfig, match="must be encrypted"):
        client(ready, tmp_path, "--insecure", "--superlink", "fl.example.org:8500")
    with pytest.raises(InvalidConfig, match="must be encrypted"):
        server(ready, tmp_path, "--insecure", "--superlink", "0.0.0.0:8500")
    with pytest.raises(InvalidConfig, match="is no address"):
        client(ready, tmp_path, "--insecure", "--superlink", "here")
    with pytest.raises(InvalidConfig, match="There is no certificate"):
        client(ready, tmp_path, "--ca", tmp_path / "none")
    with pytest.raises(InvalidConfig, match="is no certificate"):
        client(ready, tmp_path, "--ca", ready / "experiment.toml")
    with pytest.raises(InvalidConfig, match=r"has no ca.crt|There is no certificate"):
        server(ready, tmp_path, "--keys", tmp_path)


@has_flower
def test_a_node_without_its_key_or_with_another_file_says_so(ready: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    call("keys", keys, "--host", "localhost")
    with pytest.raises(InvalidConfig, match="needs its key"):
        client(ready, tmp_path, "--ca", keys / "ca.crt")
    with pytest.raises(InvalidConfig, match="Cannot read the key"):
        client(ready, tmp_path, "--ca", keys / "ca.crt", "--key", keys / "ca.crt")


@has_flower
def test_a_port_that_is_taken_is_named(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plures.deploy.flower.superlink.FREE_SECONDS", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidConfig, match=f"Cannot listen on {address}"):
            server(ready, tmp_path, "--insecure", "--superlink", address)


@has_flower
def test_a_state_folder_has_one_node(tmp_path: Path) -> None:
    from plures.deploy.flower.running import alone_in

    with alone_in(tmp_path), pytest.raises(InvalidConfig, match="Another process uses"), alone_in(tmp_path):
        pass


WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("flwr", "cryptography", "httpx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import importlib.metadata as metadata
known = metadata.version
def version(name):
    if name == "flwr":
        raise metadata.PackageNotFoundError(name)
    return known(name)
metadata.version = version
import plures.deploy
from plures.cli import main
main()
"""


def test_nothing_but_the_package_for_flower_imports_it() -> None:
    source = Path(plures.__file__).parent
    files = [path for path in source.rglob("*.py") if "flower" not in path.relative_to(source).parts]
    assert len(files) > 100
    assert not [path for path in files if re.search(r"^\s*(from|import) flwr\b", path.read_text(), re.MULTILINE)]


def test_without_flower_there_is_help_and_one_clear_error(ready: Path, tmp_path: Path) -> None:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT, "deploy", *(str(word) for word in words)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})

    shown = run("--help")
    assert shown.returncode == 0, shown.stderr
    assert "server" in shown.stdout
    words = ["--data", ready / "0", "--state", tmp_path / "state", "--insecure"]
    refused = run("client", ready / "experiment.toml", *words)
    assert refused.returncode == 2
    assert 'pip install "plures[flower]"' in refused.stderr
    assert "Traceback" not in refused.stderr
