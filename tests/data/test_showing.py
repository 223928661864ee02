"""A federation in numbers, as a table of 80 columns and as a picture."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import by_class, digits_federation, federate, iid, partition
from plures.data.showing import ClientRow, counts_of, rows_of, text_of


def row(name: str = "ann", train: int = 10, classes: dict[int, int] | None = None) -> ClientRow:
    return ClientRow(name=name, train=train, validation=3, test=4, classes={0: 4, 2: 6} if classes is None else classes)


@pytest.mark.parametrize("label_space", ["global", "local"])
def test_rows_count_examples_and_original_labels(label_space: Any) -> None:
    federation = digits_federation(num_clients=5, label_space=label_space)

    for client, found in enumerate(rows_of(federation)):
        data = federation.client(client)
        sizes = (found.train, found.validation, found.test)
        assert sizes == tuple(batch.num_examples for batch in data.splits.values())
        assert tuple(found.classes) == data.classes
        assert sum(found.classes.values()) == found.train


def test_a_class_that_is_only_tested_on_counts_as_a_class_without_training_examples() -> None:
    train, test = Batch(torch.zeros(3, 1), torch.tensor([0, 0, 4])), Batch(torch.zeros(2, 1), torch.tensor([2, 4]))

    [found] = rows_of(federate([(train, test)]))

    assert found.classes == {0: 2, 2: 0, 4: 1}


@pytest.mark.parametrize("targets", [torch.rand(40), torch.zeros(40, 5, dtype=torch.int64)], ids=["numbers", "tokens"])
def test_targets_that_are_no_classes_have_sizes_only(targets: torch.Tensor) -> None:
    batch = Batch(torch.zeros(40, 1), targets)

    [found] = rows_of(federate([(batch, batch)]))

    assert (found.train, found.test, found.classes) == (40, 40, {})
    assert "40" in text_of([found], 1)


def test_reading_rows_leaves_nothing_in_memory() -> None:
    federation = partition((torch.zeros(200, 3), torch.arange(200) % 4), iid(8), seed=0)
    rows_of(federation)

    assert len(federation.cache) == 0


def test_counts_are_clients_by_classes() -> None:
    assert counts_of([row(), row(classes={1: 5})], 3).tolist() == [[4, 0, 6], [0, 5, 0]]


def test_a_line_has_sizes_classes_a_bar_and_a_letter_for_each_class() -> None:
    lines = text_of([row(train=10), row("bob", train=5)], 3).splitlines()

    assert lines[0].split() == ["client", "train", "valid.", "test", "classes", "training", "examples,", "by", "class"]
    assert lines[1].split() == ["ann", "10", "3", "4", "2", "█" * 14, "▆·█"]
    assert lines[2].split() == ["bob", "5", "3", "4", "2", "█" * 7, "▆·█"]
    assert lines[-1].split() == ["2", "clients", "15", "6", "8", "2"]


@pytest.mark.parametrize("num_clients", [1, 24, 25, 1000])
@pytest.mark.parametrize("num_classes", [1, 10, 100])
def test_a_table_fits_80_columns_and_a_screen_or_two(num_clients: int, num_classes: int) -> None:
    classes = dict.fromkeys(range(num_classes), 123_456)
    rows = [row(f"a client with a long name, {client}", 1_234_567 - client, classes) for client in range(num_clients)]

    lines = text_of(rows, num_classes).splitlines()

    assert max(map(len, lines)) <= 80
    assert len(lines) <= 30


def test_a_long_federation_is_shown_by_its_ends_and_quartiles() -> None:
    text = text_of([row(f"c{client}", client + 1) for client in range(101)], 3)

    assert "... 91 more ..." in text
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("c") and not line.startswith("client")]
    assert shown == ["c0", "c1", "c2", "c3", "c4", "c96", "c97", "c98", "c99", "c100"]
    quartiles = [int(line[16:].split()[0]) for line in text.splitlines() if line.startswith(("least", "25", "median"))]
    assert quartiles == [1, 26, 51]


def test_a_picture_has_a_heat_map_bars_a_title_and_labels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from plures.data.drawing import draw, figure_of

    federation = partition((torch.zeros(200, 3), torch.arange(200) % 4), by_class(8, 2), seed=0)
    rows = rows_of(federation)
    figure = figure_of(rows, 4, "a title")
    heat, bars, colours = figure.axes

    assert figure.get_suptitle() == "a title"
    assert np.ma.filled(heat.images[0].get_array(), 0).tolist() == counts_of(rows, 4).tolist()
    assert [label.get_text() for label in heat.get_yticklabels()] == [str(client) for client in range(8)]
    assert (heat.get_xlabel(), heat.get_ylabel(), bars.get_xlabel()) == ("class", "client", "examples")
    assert colours.get_xlabel() == "examples"
    assert [container.get_label() for container in bars.containers] == ["train", "validation", "test"]
    draw(rows, 4, "a title", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("num_clients", [1, 300])
def test_a_picture_without_classes_has_bars_only(num_clients: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from plures.data.drawing import draw, figure_of

    rows = [row(f"c{client}", classes={}) for client in range(num_clients)]

    assert len(figure_of(rows, 1, "numbers").axes) == 1
    draw(rows, 1, "numbers", tmp_path / "picture.png")


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from plures.data.drawing import draw

    with pytest.raises(InvalidData, match=r"Cannot write .*absent.*No such file"):
        draw([row()], 3, "title", tmp_path / "absent" / "picture.png")


def test_without_matplotlib_one_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "plures.data.drawing", raising=False)

    with pytest.raises(InvalidConfig, match=r"pip install 'plures\[plot\]'"):
        importlib.import_module("plures.data.drawing")
