"""Nothing that comes from outside is ever unpickled or run: neither in the code, nor when bait is given to it."""

from __future__ import annotations

import ast
import hashlib
import io
import pickle
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import plures
from plures import load_run, make_experiment, run_experiment
from plures.core.errors import PluresError
from plures.data.sources.reading import read_npz
from plures.recipes.newcomer_files import from_npz, from_safetensors
from plures.recipes.warm_start import load_weights
from plures.report import records
from plures.stores.blobs import checksum
from plures.stores.disk import DiskStore
from tests.fuzz.folders import copy_of, experiment, know_tiny, manifest_of, sign
from tests.recipes.helpers import table

SOURCE = Path(plures.__file__).parent
MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "jsonpickle"}
"""That make objects, or run code, out of bytes."""
BUILTINS = {"eval", "exec", "compile", "__import__"}
LOADERS = {"torch.load", "np.load", "numpy.load", "torch.jit.load", "torch.export.load", "torch.package"}
ALLOWED = {
    ("engines/arena.py", "import pickle"): "messages between a process and those that it has forked itself",
    ("recipes/formats.py", "torch.export.load"): "a file that it has written a moment ago, to try it",
}
"""Every exception, and why it is none of data from outside."""


def uses(path: Path) -> Iterator[str]:
    """What a file has of the above; an error class of pickle's is no harm, nor is a loader told not to unpickle."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (f"import {name.name}" for name in node.names if name.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield from (f"import {node.module}.{name.name}" for name in node.names if name.name != "UnpicklingError")
        elif isinstance(node, ast.Call):
            yield from called(node)


def called(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    told = {word.arg: ast.unparse(word.value) for word in node.keywords}
    if name in BUILTINS or (name in LOADERS and (told.get("weights_only"), told.get("allow_pickle")) == (None, None)):
        yield name
    for option, right in (("weights_only", "True"), ("allow_pickle", "False"), ("trust_remote_code", "False")):
        if told.get(option, right) != right:
            yield f"{name}({option}={told[option]})"


def found_in(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "some.py"
    path.write_text(text, encoding="utf-8")
    return list(uses(path))


def test_no_module_unpickles_or_runs_what_it_reads():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 300
    found = {(str(path.relative_to(SOURCE)), use) for path in files for use in uses(path)}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import pickle", "import pickle"),
        ("from marshal import loads", "import marshal.loads"),
        ("import numpy as np\nnp.load(path)", "np.load"),
        ("np.load(path, allow_pickle=True)", "np.load(allow_pickle=True)"),
        ("torch.load(path)", "torch.load"),
        ("torch.load(path, weights_only=False)", "torch.load(weights_only=False)"),
        ("np.load(path, allow_pickle=choice)", "np.load(allow_pickle=choice)"),
        ("def f(x):\n    return eval(x)", "eval"),
        ("load_dataset(name, trust_remote_code=True)", "load_dataset(trust_remote_code=True)"),
    ],
)
def test_what_is_looked_for_is_found(text, told, tmp_path):
    assert found_in(text, tmp_path) == [told]


def test_what_is_no_harm_is_passed_by(tmp_path):
    lines = ["from pickle import UnpicklingError", "model.eval()", "np.load(path, allow_pickle=False)"]
    assert found_in("\n".join([*lines, "torch.load(path, weights_only=True)"]), tmp_path) == []


# Bait


class Bait:
    """An object that leaves a file behind when it is unpickled."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self):
        return Path.touch, (self.trap,)


@pytest.fixture
def trap(tmp_path) -> Iterator[Path]:
    """A file that must not be there after the test."""
    know_tiny()
    yield tmp_path / "sprung"
    assert not (tmp_path / "sprung").exists(), "something was unpickled"


def test_the_bait_works(tmp_path):
    pickle.loads(pickle.dumps(Bait(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


def as_pickle(trap: Path) -> bytes:
    return pickle.dumps(Bait(trap), protocol=2)


def as_torch(trap: Path) -> bytes:
    file = io.BytesIO()
    torch.save({"head.weight": torch.zeros(2), "more": Bait(trap)}, file)
    return file.getvalue()


def as_old_torch(trap: Path) -> bytes:
    file = io.BytesIO()
    torch.save(Bait(trap), file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def as_npz(trap: Path) -> bytes:
    file = io.BytesIO()
    array = np.empty(2, dtype=object)
    array[:] = [Bait(trap), 1]
    np.savez(file, inputs=array, targets=array, x=array, y=array)
    return file.getvalue()


def as_npy(trap: Path) -> bytes:
    """The array alone, as np.load would take it too."""
    with zipfile.ZipFile(io.BytesIO(as_npz(trap))) as packed:
        return packed.read("inputs.npy")


BAITS = {make.__name__: make for make in (as_pickle, as_torch, as_old_torch, as_npz, as_npy)}


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin", ".npz", ""])
@pytest.mark.parametrize("bait", BAITS)
def test_bait_as_a_file_of_weights_is_refused(bait, suffix, trap, tmp_path):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(BAITS[bait](trap))
    with pytest.raises(PluresError, match="weights"):
        load_weights(path)
    with pytest.raises(PluresError, match="weights"):
        run_experiment(make_experiment(table("fedavg", model={"weights": str(path)})))


@pytest.mark.parametrize("bait", BAITS)
def test_bait_as_examples_is_refused(bait, trap, tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(BAITS[bait](trap))
    for read in (lambda: read_npz(path, "inputs", "targets"), lambda: from_npz(path), lambda: from_safetensors(path)):
        with pytest.raises(PluresError, match=r"data\.npz"):
            read()
    source = {"source": {"name": "npz", "path": str(path)}}
    with pytest.raises(PluresError):
        run_experiment(make_experiment(table("fedavg", data=source)))


@pytest.mark.parametrize("name", [records.SHARED, records.PERSONAL, records.RESULT, records.ROUNDS, records.CLIENTS])
@pytest.mark.parametrize("bait", BAITS)
def test_bait_in_a_run_folder_is_refused(bait, name, trap):
    with copy_of("states", finished=True) as folder:
        (folder / name).write_bytes(BAITS[bait](trap))
        with pytest.raises(PluresError, match=name):
            load_run(folder)


@pytest.mark.parametrize("bait", BAITS)
def test_bait_as_a_checkpoint_is_refused(bait, trap):
    with copy_of("states") as folder:
        path, told = manifest_of(folder)
        content = BAITS[bait](trap)
        path.with_suffix(".safetensors").write_bytes(content)
        told["tensors"] |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        sign(path, told)
        with pytest.raises(PluresError, match="damaged"):
            run_experiment(experiment("states"), out=folder, resume=True)
        path.write_bytes(content)
        with pytest.raises(PluresError, match="damaged"):
            run_experiment(experiment("states"), out=folder, resume=True)


@pytest.mark.parametrize("bait", BAITS)
def test_bait_as_what_a_client_keeps_is_refused(bait, trap):
    with copy_of("states") as folder:
        with sqlite3.connect(folder / records.STATES) as connection:
            (id,) = connection.execute("SELECT max(id) FROM states").fetchone()
            content = BAITS[bait](trap)
            row = (checksum(id, content), content, id)
            connection.execute("UPDATE states SET checksum = ?, state = ? WHERE id = ?", row)
        connection.close()
        with DiskStore(folder / records.STATES) as store, pytest.raises(PluresError, match="no state"):
            store.get(id >> 32)
