"""Data sets of the Hugging Face hub: tables, arrays, images and text, held in memory; by name with the hub played."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES, check_federation, from_hub, natural, partition
from plures.data.tables import Features

datasets = pytest.importorskip("datasets")


def table(count: int = 6) -> Any:
    """Two users; labels with names, of which one never occurs."""
    columns = {
        "user": ["ann", "bob"] * (count // 2),
        "age": [10 * row for row in range(count)],
        "colour": ["red", "blue", "red"] * (count // 3),
        "amount": [0.5 * row for row in range(count)],
        "label": [row % 2 for row in range(count)],
        "text": [f"Post {row}!" for row in range(count)],
        "vector": [[row, row + 0.5] for row in range(count)],
    }
    names = datasets.ClassLabel(names=["no", "yes", "never"])
    dataset = datasets.Dataset.from_dict(columns)
    return dataset.cast_column("label", names)


def test_columns_of_numbers_and_words_are_features_and_labels_keep_their_names() -> None:
    dataset = from_hub(table(), inputs=["age", "colour"], target="label", client="user")
    assert dataset.owner_names == ("ann", "bob")
    assert dataset.class_names == ("no", "yes", "never")
    assert (dataset.num_classes, dataset.labels.tolist()) == (3, [0, 1, 0, 1, 0, 1])
    fitted = dataset.fitted(np.arange(6))
    assert isinstance(fitted.prepare, Features)
    assert fitted.prepare.names == ("age", "colour = blue", "colour = red")


def test_a_real_target_is_predicted_as_a_number() -> None:
    dataset = from_hub(table(), inputs="age", target="amount")
    assert dataset.goal.name == "regression"
    assert dataset.examples.targets.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    labels = from_hub(table(), inputs="age", target="label", goal="regression")
    assert labels.examples.targets.tolist() == [0.0, 1.0] * 3


def test_a_column_of_arrays_is_one_array_and_test_rows_are_apart() -> None:
    dataset = from_hub(table(), inputs="vector", target="label", client="user", test=table().select([0, 3]))
    assert dataset.examples.inputs.shape == (6, 2)
    assert dataset.examples.inputs.dtype == torch.float32
    assert dataset.test is not None
    assert dataset.test.inputs.tolist() == [[0.0, 0.5], [3.0, 3.5]]
    assert dataset.test.targets.tolist() == [0, 1]
    assert dataset.test_owners is not None
    assert dataset.test_owners.tolist() == [0, 1]
    check_federation(partition(dataset, natural(min_examples=2), seed=0))


def test_images_are_bytes_with_channels_first() -> None:
    pytest.importorskip("PIL")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 9, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    given = datasets.Dataset.from_dict({"image": list(pixels), "label": ["b", "a", "b"]}, features=features)
    dataset = from_hub(given, inputs="image", target="label")
    assert np.array_equal(dataset.examples.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
    assert dataset.class_names == ("a", "b")
    assert dataset.prepare is not None
    assert float(dataset.prepare(dataset.examples.inputs).max()) <= 1.0


def test_without_a_target_the_next_word_of_a_text_is_predicted() -> None:
    dataset = from_hub(table(), inputs="text", client="user", length=5, test=table(6).select([0]))
    assert dataset.goal.name == "next_token"
    assert dataset.owner_names == ("ann", "bob")
    words = [dataset.class_names[token] for token in dataset.examples.targets[0].tolist()]
    assert words == ["post", "0", "!", "<eos>", "<pad>"]
    assert dataset.test is not None
    assert dataset.test.inputs.shape == (1, 5)
    nobody = from_hub(table(), inputs="text")
    assert (nobody.owners, nobody.owner_names) == (None, ())


def unlabelled() -> Any:
    return table().map(lambda row: row | {"label": -1 if row["age"] == 30 else row["label"]})


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (table(), {"inputs": "agee", "target": "label"}, "The data set has no column 'agee'. Did you mean 'age'"),
        (table(), {"inputs": "age", "target": "labels"}, "has no column 'labels'. Did you mean 'label'"),
        (table(), {"inputs": "age", "target": "label", "client": "who"}, "has no column 'who'"),
        (unlabelled(), {"inputs": "age", "target": "label"}, "row 4: the target, column 'label', has no label"),
        (table(), {"inputs": ["age", "vector"], "target": "label"}, "column 'vector' is of type list"),
        (datasets.DatasetDict(train=table()), {"inputs": "age"}, r"has splits \(train\): give one of them"),
        (table().to_iterable_dataset(), {"inputs": "age"}, "no datasets.Dataset: give one that is held"),
        (table().select([]), {"inputs": "age", "target": "label"}, "has no rows"),
        (
            datasets.Dataset.from_dict({"v": [[1], [1, 2]], "y": [0, 1]}),
            {"inputs": "v", "target": "y"},
            r"row 2: column 'v' has shape \(2,\), but row 1 has \(1,\): pad or cut",
        ),
    ],
)
def test_what_a_data_set_cannot_give_is_one_error(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        from_hub(given, **options)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "age"}, "Without a target the next word is predicted: give one column of text"),
        ({"inputs": ["text", "colour"]}, "give one column of text"),
        ({"inputs": "text", "length": 0}, "length is 0"),
        ({"inputs": "age", "target": "label", "goal": "next"}, "goal is 'next'"),
        ({"inputs": ["age", "label"], "target": "label"}, "'label' is among the features"),
        ({"inputs": [], "target": "label"}, "There are no features"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        from_hub(table(), **options)


def test_a_data_set_is_fetched_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, config: str | None, *, split: str) -> Any:
        asked.append((name, config, split))
        return table() if split == "train" else table().select([1])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    dataset = SOURCES["hub"].load("who/what", "age", target="label", client="user", test_split="test", config="small")
    assert asked == [("who/what", "small", "train"), ("who/what", "small", "test")]
    assert dataset.test is not None
    assert (dataset.examples.num_examples, dataset.test.num_examples) == (6, 1)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Couldn't reach 'who/what' on the Hub (OfflineModeIsEnabled)"),
        ValueError("Unknown split 'trian'. Should be one of ['train']."),
        datasets.exceptions.DatasetNotFoundError("Dataset 'who/what' doesn't exist"),
        datasets.exceptions.DatasetGenerationError(),
    ],
)
def test_what_the_hub_does_not_give_is_one_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InvalidData, match=r"'who/what' cannot be had from the hub: .*\. Check the name, the split"):
        SOURCES["hub"].load("who/what", "age", target="label")


def test_offline_there_is_one_error_and_no_wait(tmp_path: Path) -> None:
    program = (
        "from plures.data import SOURCES\n"
        "from plures.core.errors import InvalidData\n"
        "try:\n    SOURCES['hub'].load('who/what', 'x', target='y')\n"
        "except InvalidData as error:\n    print(error)\n"
    )
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=offline, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("The data set 'who/what' cannot be had from the hub: ")
    assert done.stdout.count("\n") == 1


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidConfig, match=r"A data set of the Hugging Face hub needs .*datasets.*plures\[data\]"):
        SOURCES["hub"].load("who/what", "x", target="y")
