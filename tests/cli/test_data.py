"""plures data: what there is, what is in a set, and how it is got."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from plures.data import SOURCES
from tests.cli.helpers import widest
from tests.data.sources.image_files import noise, write_mnist, write_npz


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv("PLURES_DATA", str(place))
    return place


def write_unipen(folder: Path) -> None:
    write_npz(
        folder / "unipen-chars/unipen-chars.npz",
        x=noise(10, 28, 28),
        y=np.arange(10) % 3,
        writer=np.repeat([0, 2, 3], [1, 3, 6]),
        writers=np.array(["a", "b", "c", "d"]),
        classes=np.array(["x", "y", "z"]),
    )


def test_every_set_is_listed_in_80_columns_with_whether_it_is_at_hand(plures, folder):
    write_mnist(folder / "mnist")

    said = plures("data", "list")

    rows = {line.split()[0]: line.split()[1:3] for line in said.out.splitlines() if not line.startswith(" ")}
    assert said.code == 0
    assert widest(said.out) <= 80
    assert set(rows) == {"name", *SOURCES}
    assert rows["mnist"][0] == rows["digits"][0] == "yes"
    assert rows["fashion-mnist"][0] == rows["mnist-writers"][0] == "no"
    assert rows["npz"] == ["give", "path"]


def test_the_list_as_json_has_what_is_looked_for(plures, folder):
    rows = {row["name"]: row for row in json.loads(plures("data", "list", "--json").out)}

    assert list(rows) == list(SOURCES)
    assert rows["mnist"]["hub"] == "ylecun/mnist"
    assert rows["omniglot"]["at_hand"] == "no"
    assert rows["omniglot"]["files"] == list(SOURCES["omniglot"].files)


def test_info_tells_sizes_classes_clients_memory_and_fingerprint(plures, folder):
    write_unipen(folder)

    said = plures("data", "info", "unipen")

    facts = dict(line.split(maxsplit=1) for line in said.out.splitlines() if not line.startswith("per client"))
    assert widest(said.out) <= 80
    assert facts["examples"].strip() == "10"
    assert facts["shape"].strip() == "1x28x28 uint8"
    assert facts["clients"].strip() == "3 natural ones"
    assert "1 to 6 examples (quartiles 2, 3, 4)" in said.out
    assert f"({10 * (784 + 8):,} bytes)" in facts["memory"]
    assert len(facts["fingerprint"].strip()) == 64


def test_info_as_json_has_the_quartiles_of_clients_with_examples(plures, folder):
    write_unipen(folder)

    facts = json.loads(plures("data", "info", "unipen", "--json").out)

    # Sizes 1, 3 and 6: the quartiles lie halfway between neighbours.
    sizes = {"count": 3, "least": 1, "lower_quartile": 2, "median": 3, "upper_quartile": 4.5, "most": 6}
    assert facts["clients"] == sizes
    assert (facts["examples"], facts["test_examples"], facts["classes"]) == (10, None, 3)
    assert (facts["bytes"], facts["type"], facts["shape"]) == (10 * (784 + 8), "uint8", [1, 28, 28])


def test_info_passes_options_on(plures, folder):
    path = write_npz(folder / "mine.npz", a=np.ones((4, 2)), b=np.array([0.5, 1, 2, 3]))

    said = plures("data", "info", "npz", "--set", f"path={path}", "--set", "inputs=a", "--set", "labels=b", "--json")

    facts = json.loads(said.out)
    assert (facts["goal"], facts["classes"], facts["clients"]) == ("regression", None, None)


def test_the_fingerprint_changes_with_the_test_examples_too(plures, folder):
    def fingerprint() -> str:
        return json.loads(plures("data", "info", "mnist", "--json").out)["fingerprint"]

    arrays = [noise(4, 28, 28), np.zeros(4, np.uint8), noise(2, 28, 28), np.zeros(2, np.uint8)]
    write_mnist(folder / "mnist", arrays)
    before = fingerprint()
    assert fingerprint() == before
    arrays[2][0, 0, 0] ^= 1
    write_mnist(folder / "mnist", arrays)
    assert fingerprint() != before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("info", "minst"), "There is no data source 'minst'. Did you mean 'mnist'"),
        (("info", "mnist"), "The data set 'mnist' is not at hand"),
        (("info", "npz"), "data set 'npz' needs path"),
        (("info", "emnist", "--set", "from=letters"), "data set 'emnist' has no option 'from'. Did you mean 'form'"),
        (("info", "emnist", "--set", "form=leters"), "form is 'leters'. Did you mean 'letters'"),
        (("info", "omniglot", "--set", "size=big"), "size is 'big'"),
        (("get", "minst"), "There is no data source 'minst'"),
        (("get", "omniglot"), "'omniglot' cannot be fetched"),
    ],
)
def test_what_cannot_be_done_is_one_message(plures, folder, args, says):
    said = plures("data", *args)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert said.err.count("error: ") == 1
    assert says in said.err
    assert "Traceback" not in said.err


def test_a_damaged_file_is_one_message(plures, folder):
    write_mnist(folder / "mnist")
    path = folder / "mnist/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])

    said = plures("data", "info", "mnist")

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: Cannot read {path}: ")
    assert len(said.err.splitlines()) == 1


def test_get_writes_what_the_loader_reads_and_says_where(plures, folder, tmp_path, monkeypatch):
    rows = [{"image": noise(28, 28, seed=n), "label": n} for n in range(3)]
    library = ModuleType("datasets")
    library.load_dataset = lambda name: {"train": rows, "test": rows}
    monkeypatch.setitem(sys.modules, "datasets", library)

    said = plures("data", "get", "mnist")
    elsewhere = plures("data", "get", "mnist", "--into", tmp_path / "other")

    assert str(folder / "mnist/mnist.npz") in said.out
    assert str(tmp_path / "other/mnist/mnist.npz") in elsewhere.out
    assert "PLURES_DATA" in elsewhere.out
    assert json.loads(plures("data", "info", "mnist", "--json").out)["examples"] == 3


def test_get_without_the_library_is_one_message(plures, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)

    said = plures("data", "get", "mnist")

    assert (said.code, said.out) == (2, "")
    assert "pip install 'plures[data]'" in said.err
