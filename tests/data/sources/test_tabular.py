"""Tables: hospitals, groups, and a user's own csv and parquet files."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES, DataSet, check_federation, natural, partition
from plures.data.sources import data_folders
from plures.data.sources.finding import at_hand
from plures.data.tables import Features

HEART = [
    *("hospital", "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
]
HEART_FILE = "heart-disease/heart-disease.csv"


def write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def patient(hospital: str, **values: Any) -> list[Any]:
    known = {"hospital": hospital, "age": 50, "trestbps": 120, "chol": 200, "num": 0} | values
    return [known.get(name, 1) for name in HEART]


def fitted(dataset: DataSet, train: Sequence[int]) -> tuple[Features, torch.Tensor]:
    """What is learnt from some rows, and all rows as features."""
    known = dataset.fitted(np.array(train))
    assert isinstance(known.prepare, Features)
    return known.prepare, known.prepare(known.examples.inputs)


def test_hospitals_are_clients_and_disease_is_num_above_0(data_folder: Path) -> None:
    rows = [patient("va", num=0), patient("cleveland", num=3), patient("va", num=1)]
    write_csv(data_folder / HEART_FILE, HEART, rows)
    dataset = SOURCES["heart-disease"].load()
    assert dataset.owner_names == ("cleveland", "va")
    assert dataset.owners is not None
    assert dataset.owners.tolist() == [1, 0, 1]
    assert dataset.examples.targets.tolist() == [0, 1, 1]
    assert dataset.class_names == ("healthy", "diseased")

    stages = SOURCES["heart-disease"].load(goal="regression")
    assert stages.examples.targets.tolist() == [0.0, 3.0, 1.0]
    assert stages.examples.targets.dtype == torch.float32
    assert (stages.goal.name, stages.num_classes) == ("regression", 1)


def test_gaps_get_the_mean_of_training_rows_and_a_mark_and_numbers_are_standardised(data_folder: Path) -> None:
    rows = [patient("a", age=40), patient("b", age=60), patient("b", age=""), patient("a", age=90)]
    write_csv(data_folder / HEART_FILE, HEART, rows)
    features, values = fitted(SOURCES["heart-disease"].load(), [0, 1, 2])
    # Of 40 and 60, the training rows with an age, the mean is 50 and the standard deviation 10.
    assert features.names == (*HEART[1:-1], "age is missing")
    assert values[:, 0].tolist() == [-1.0, 1.0, 0.0, 4.0]
    assert values[:, -1].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert values.dtype == torch.float32


def test_a_gap_that_training_rows_do_not_have_is_filled_and_not_marked(data_folder: Path) -> None:
    write_csv(data_folder / HEART_FILE, HEART, [patient("a", age=40), patient("b", age=60), patient("b", age="")])
    features, values = fitted(SOURCES["heart-disease"].load(), [0, 1])
    assert features.names == tuple(HEART[1:-1])
    assert values[:, 0].tolist() == [-1.0, 1.0, 0.0]


def test_cholesterol_and_blood_pressure_of_0_are_missing(data_folder: Path) -> None:
    write_csv(data_folder / HEART_FILE, HEART, [patient("a", chol=0), patient("a", trestbps=0), patient("a", age=0)])
    held = SOURCES["heart-disease"].load().examples.inputs
    missing = [(int(row), HEART[1 + int(column)]) for row, column in held.isnan().nonzero()]
    assert missing == [(0, "chol"), (1, "trestbps")]


@pytest.mark.parametrize(
    ("names", "row", "message"),
    [
        (HEART[:-1], patient("a")[:-1], "heart-disease.csv has no column 'num'"),
        (HEART, patient("a", chol="high"), "heart-disease.csv, row 2: column 'chol' has 'high' where it should have a"),
        (HEART, patient("a", num=""), "row 2: the target, column 'num', is missing. Give it, or drop the row"),
        (HEART, patient(""), "row 2: column 'hospital' names no client. Name one"),
        (HEART, [1, 2], "heart-disease.csv has 2 values in row 2, but 15 columns. Correct the row"),
        ([*HEART[:-1], "age"], patient("a"), "heart-disease.csv has two columns 'age'"),
    ],
)
def test_a_broken_table_is_one_error_that_names_file_and_column(
    data_folder: Path, names: list[str], row: list[Any], message: str
) -> None:
    write_csv(data_folder / HEART_FILE, names, [patient("b")[: len(names)], row])
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["heart-disease"].load()
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("content", [b"", b"hospital,age\n", b"\x1f\x8b\x08cut off", b"hospital,\xe9\n1,2\n"])
def test_a_file_without_rows_or_that_is_no_text_is_one_error(data_folder: Path, content: bytes) -> None:
    path = data_folder / HEART_FILE
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=f"{path}.*(has no rows|fetch it again)") as caught:
        SOURCES["heart-disease"].load()
    assert len(caught.value.problems) == 1


def test_nothing_trained_on_changes_with_what_is_held_out(data_folder: Path) -> None:
    """Test and validation rows become wild; the features that are trained on are the same, bit by bit."""
    rng = np.random.default_rng(0)
    rows = [[f"h{row % 3}", *rng.normal(size=2).round(3), rng.choice(["red", "blue"]), row % 2] for row in range(60)]
    names = ["h", "a", "b", "colour", "y"]
    path = write_csv(data_folder / "t.csv", names, rows)

    def federation():  # type: ignore[no-untyped-def]
        return partition(SOURCES["csv"].load(path=path, target="y", client="h"), natural(), seed=1)

    first = federation()
    trained = set(np.concatenate([own.train for own in first.population.indices]).tolist())
    wild = [row if place in trained else [row[0], 1e6, "", "green", row[4]] for place, row in enumerate(rows)]
    write_csv(path, names, wild)
    second = federation()
    check_federation(second)

    assert second.prepare.names == first.prepare.names == ("a", "b", "colour = blue", "colour = red")
    for client in range(3):
        assert torch.equal(first.client(client).train.inputs, second.client(client).train.inputs)
        assert not torch.equal(first.client(client).test.inputs, second.client(client).test.inputs)


def test_ratings_come_by_student_and_marks_by_class(data_folder: Path) -> None:
    folder = data_folder / "grouped-tables"
    ratings = [["1", "10", "1002", "2", "2", "0", "2", 5], ["2", "2", "1050", "4", "1", "1", "6", 2]]
    write_csv(folder / "insteval.csv", ["", "s", "d", "studage", "lectage", "service", "dept", "y"], ratings)
    pupils = [["1", 46, 15, "180", 29, 23, "0"], ["2", 45, 14.5, "180", 29, 10, "0"]]
    write_csv(folder / "nlschools.csv", ["", "lang", "IQ", "class", "GS", "SES", "COMB"], pupils)

    students = SOURCES["grouped-tables"].load()
    # Numbers as names are in their order, not in that of the alphabet.
    assert (students.owner_names, students.examples.targets.tolist()) == (("2", "10"), [5.0, 2.0])
    assert fitted(students, [0, 1])[0].names == ("studage", "lectage", "service", "dept = 2", "dept = 6")
    assert "d = 1002" in fitted(SOURCES["grouped-tables"].load(lecturers=True), [0, 1])[0].names

    classes = SOURCES["grouped-tables"].load(table="nlschools")
    assert (classes.owner_names, classes.examples.targets.tolist()) == (("180",), [46.0, 45.0])
    assert fitted(classes, [0, 1])[1].shape == (2, 4)
    assert classes.goal.name == "regression"


TABLE = [["ann", "1.5", "red", "yes", "0.5"], ["bob", "2.5", "NA", "no", "1"], ["ann", "?", "blue", "yes", "2"]]
NAMES = ["who", "size", "colour", "answer", "amount"]


def own_csv(folder: Path, rows: Sequence[Sequence[Any]] = TABLE, name: str = "t.csv") -> Path:
    return write_csv(folder / name, NAMES, rows)


def own_parquet(folder: Path, rows: Sequence[Sequence[Any]] = TABLE, name: str = "t.parquet") -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    columns = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    table = {name: pyarrow.array(values) for name, values in columns.items()}
    for column in ("size", "amount"):
        table[column] = pyarrow.array([None if value == "?" else float(value) for value in columns[column]])
    table["colour"] = pyarrow.array([None if value == "NA" else value for value in columns["colour"]])
    parquet.write_table(pyarrow.table(table), folder / name)
    return folder / name


OWN = [("csv", own_csv), ("parquet", own_parquet)]


@pytest.mark.parametrize(("source", "make"), OWN)
def test_own_tables_have_numbers_and_words_as_features(data_folder: Path, source: str, make: Any) -> None:
    path = make(data_folder)
    dataset = SOURCES[source].load(path=path, target="answer", client="who", features=["size", "colour"])
    assert dataset.owner_names == ("ann", "bob")
    assert dataset.class_names == ("no", "yes")
    assert dataset.examples.targets.tolist() == [1, 0, 1]
    features, values = fitted(dataset, [0, 1, 2])
    assert features.names == ("size", "size is missing", "colour = ", "colour = blue", "colour = red")
    assert values.tolist() == [[-1, 0, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0]]
    # A word that training rows do not have is none of theirs.
    names, values = fitted(dataset, [0, 1])
    assert names.names == ("size", "colour = ", "colour = red")
    assert values[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("source", "make"), OWN)
def test_the_goal_is_told_from_the_target_or_by_option(data_folder: Path, source: str, make: Any) -> None:
    path = make(data_folder)
    amount = SOURCES[source].load(path=path, target="amount")
    assert amount.goal.name == "regression"
    assert amount.examples.targets.tolist() == [0.5, 1.0, 2.0]
    assert amount.owners is None
    classes = SOURCES[source].load(path=path, target="amount", goal="classification")
    assert classes.class_names == ("0.5", "1", "2")
    assert classes.examples.targets.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("source", "make"), OWN)
def test_a_second_file_has_the_test_rows(data_folder: Path, source: str, make: Any) -> None:
    ending = "csv" if source == "csv" else "parquet"
    path, test = make(data_folder), make(data_folder, TABLE[:1], f"test.{ending}")
    dataset = SOURCES[source].load(path=path, target="answer", client="who", test=test)
    assert dataset.test is not None
    assert dataset.test_owners is not None
    assert (dataset.examples.num_examples, dataset.test.num_examples) == (3, 1)
    assert (dataset.test.targets.tolist(), dataset.test_owners.tolist()) == ([1], [0])


def test_whole_numbers_are_classes_in_the_order_of_numbers(data_folder: Path) -> None:
    path = write_csv(data_folder / "t.csv", ["x", "y"], [[1, 10], [2, 2], [3, 10]])
    dataset = SOURCES["csv"].load(path=path, target="y")
    assert (dataset.class_names, dataset.examples.targets.tolist()) == (("2", "10"), [1, 0, 1])


def test_columns_of_numbers_can_be_called_categorical(data_folder: Path) -> None:
    path = write_csv(data_folder / "t.csv", ["x", "z", "y"], [[1, 5, 0], [2, 6, 1]])
    features, _ = fitted(SOURCES["csv"].load(path=path, target="y", categorical=["x"]), [0, 1])
    assert features.names == ("z", "x = 1", "x = 2")


def test_a_column_that_never_differs_is_0_and_not_blown_up(data_folder: Path) -> None:
    path = write_csv(data_folder / "t.csv", ["x", "y"], [[0.1, 0], [0.1, 1], [0.1, 1], [0.3, 0]])
    _, values = fitted(SOURCES["csv"].load(path=path, target="y"), [0, 1, 2])
    assert values[:, 0].tolist() == pytest.approx([0, 0, 0, 0.2])


@pytest.mark.parametrize(("source", "make"), OWN)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "anwser"}, InvalidData, "has no column 'anwser'. Did you mean 'answer'"),
        ({"target": "answer", "client": "user"}, InvalidData, "has no column 'user'"),
        ({"target": "answer", "features": ["size", "weight"]}, InvalidData, "has no column 'weight'"),
        ({"target": "answer", "goal": "regression"}, InvalidData, "column 'answer'.*say goal = 'classification'"),
        ({"target": "colour"}, InvalidData, "row 2: the target, column 'colour', is missing"),
        ({"target": "answer", "client": "colour"}, InvalidData, "row 2: column 'colour' names no client"),
        ({"target": "answer", "features": []}, InvalidConfig, "There are no features"),
        ({"target": "answer", "features": ["answer"]}, InvalidConfig, "'answer' is among the features"),
        ({"target": "answer", "features": "size"}, InvalidConfig, "give a list of names"),
        ({"target": "answer", "goal": "guessing"}, InvalidConfig, "goal is 'guessing'"),
        ({"target": "answer", "test": "nowhere.csv"}, InvalidData, "There is no nowhere.csv"),
    ],
)
def test_what_a_table_cannot_give_is_one_error(
    data_folder: Path, source: str, make: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        SOURCES[source].load(path=make(data_folder), **options)
    assert len(caught.value.problems) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (
            ["1", "2", "3", "abc"],
            {},
            "t.csv, row 4: column 'x' has 'abc' where it should have a number. Correct it, or name",
        ),
        (["a", "b", "c", "d"], {"categorical": []}, "row 1: column 'x' has 'a' where it should have a number"),
        (["1", "2", "3", "inf"], {}, "row 4: column 'x' has 'inf' where it should have a number"),
        (
            [f"name {number}" for number in range(101)],
            {},
            "column 'x' has 101 different words. Leave it out of features",
        ),
    ],
)
def test_text_where_numbers_are_wanted_is_one_error(
    data_folder: Path, values: list[str], options: dict[str, Any], message: str
) -> None:
    path = write_csv(data_folder / "t.csv", ["x", "y"], [[value, 1] for value in values])
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["csv"].load(path=path, target="y", **options)
    assert len(caught.value.problems) == 1


def test_a_number_to_predict_is_not_taken_for_thousands_of_classes(data_folder: Path) -> None:
    path = write_csv(data_folder / "t.csv", ["x", "y"], [[1, number] for number in range(1001)])
    with pytest.raises(InvalidData, match=r"has 1001 values\. If it is a number to predict, say goal = 'regression'"):
        SOURCES["csv"].load(path=path, target="y")


def test_other_delimiters_and_other_columns_in_the_test_file(data_folder: Path) -> None:
    path = data_folder / "t.csv"
    path.write_text("x;y\n1.5;0\n2;1\n")
    assert SOURCES["csv"].load(path=path, target="y", delimiter=";").examples.num_examples == 2
    with pytest.raises(InvalidConfig, match="delimiter is ''"):
        SOURCES["csv"].load(path=path, target="y", delimiter="")
    other = write_csv(data_folder / "other.csv", ["x", "z"], [[1, 2]])
    with pytest.raises(InvalidData, match=f"{other} has other columns than {path}"):
        SOURCES["csv"].load(path=path, target="y", test=other, delimiter=";")


def test_parquet_types_decide_and_those_that_are_no_feature_are_refused(data_folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    table = {
        "flag": pyarrow.array([True, False, None]),
        "count": pyarrow.array([2**60, 1, 2]),
        "kind": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
        "list": pyarrow.array([[1], [2], [3]]),
    }
    parquet.write_table(pyarrow.table(table), data_folder / "t.parquet")
    dataset = SOURCES["parquet"].load(path="t.parquet", target="kind", features=["flag", "count"])
    assert dataset.examples.inputs[:2].tolist() == [[1.0, 2.0**60], [0.0, 1.0]]
    assert bool(dataset.examples.inputs[2, 0].isnan())
    assert dataset.class_names == ("a", "b")
    with pytest.raises(InvalidData, match=r"column 'list' is of type list.*Leave it out, or convert it"):
        SOURCES["parquet"].load(path="t.parquet", target="kind")


def test_a_damaged_parquet_file_is_one_error(data_folder: Path) -> None:
    path = own_parquet(data_folder)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidData, match=f"Cannot read {path}.*fetch it again") as caught:
        SOURCES["parquet"].load(path=path, target="answer")
    assert len(caught.value.problems) == 1


def test_without_pyarrow_the_error_names_the_extra(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidConfig, match=r"A parquet file needs the package pyarrow.*plures\[data\]"):
        SOURCES["parquet"].load(path="t.parquet", target="y")


def test_own_tables_ask_for_a_path() -> None:
    assert at_hand(SOURCES["csv"]) == at_hand(SOURCES["parquet"]) == "give path"


def real(name: str, file: str, **options: Any) -> DataSet:
    if not any((folder / file).exists() for folder in data_folders()):
        pytest.skip(f"{name} is not in PLURES_DATA")
    return SOURCES[name].load(**options)


@pytest.mark.data
def test_heart_disease_has_the_patients_and_the_diseased_of_each_hospital() -> None:
    dataset = real("heart-disease", HEART_FILE)
    assert dataset.owners is not None
    assert dataset.owner_names == ("cleveland", "hungarian", "switzerland", "va")
    assert np.bincount(dataset.owners).tolist() == [303, 294, 123, 200]
    assert np.bincount(dataset.owners, weights=dataset.labels).tolist() == [139, 106, 115, 149]
    federation = partition(dataset, natural(), seed=0)
    check_federation(federation)
    # Ten of the thirteen features have gaps, three of them hardly any: two patients have no restecg.
    assert federation.input_shape[0] in (22, 23)


@pytest.mark.data
@pytest.mark.parametrize(("table", "num_rows", "num_clients"), [("insteval", 73_421, 2972), ("nlschools", 2287, 133)])
def test_grouped_tables_have_their_students_and_classes(table: str, num_rows: int, num_clients: int) -> None:
    dataset = real("grouped-tables", f"grouped-tables/{table}.csv", table=table)
    assert (dataset.examples.num_examples, len(dataset.owner_names)) == (num_rows, num_clients)
    check_federation(partition(dataset, natural(), seed=0), sample=20)
