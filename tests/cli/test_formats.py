"""Tables in every format, on the terminal and in files."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import pytest

from tests.cli.helpers import widest
from tests.report.run_folders import write_run


@pytest.fixture
def runs(tmp_path):
    """Two seeds each of Local, FedAvg and a method whose label needs care everywhere."""
    for method, gain in (("local", -0.125), ("fedavg", 0.0), ("per_fedavg", 0.25)):
        for seed in (0, 1):
            values = {"personal/test": [0.5 + gain, 0.625 + gain - seed / 8], "personal/train": [0.75, 0.75]}
            write_run(tmp_path / f"{method}-{seed}", values, method=method, seed=seed)
    return sorted(tmp_path.glob("*-*"))


def test_markdown_is_a_table_and_paragraphs(plures, runs):
    said = plures("compare", *runs, "--format", "markdown")

    lines = said.out.splitlines()
    assert said.code == 0
    assert [line.split(" | ")[0] for line in lines[:5]] == [
        *("| label     ", "| :---------", "| local     ", "| fedavg    ", "| per_fedavg"),
    ]
    assert "**78.1 ± 3.1**" in lines[4]
    assert any(line.startswith("accuracy: test examples") for line in lines)


def test_csv_is_for_pandas(plures, runs):
    """Of per_fedavg: 0.8125 and 0.75, so 0.78125 +- 0.03125; FedAvg has 0.25 less of each client."""
    said = plures("compare", *runs, "--format", "csv")

    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(said.out))}
    own = {name: float(rows["per_fedavg"][name]) for name in ("mean", "std", "n", "difference", "low", "high")}
    assert own == {"mean": 0.78125, "std": 0.03125, "n": 2, "difference": 0.25, "low": 0.25, "high": 0.25}
    assert {name: rows["per_fedavg"][name] for name in ("helped", "hurt", "rounds", "bytes", "best")} == {
        **{"helped": "2", "hurt": "0", "rounds": "1", "bytes": "1500", "best": "true"},
    }
    assert (rows["fedavg"]["difference"], rows["fedavg"]["reference"], rows["local"]["reference"]) == ("", "", "fedavg")


def test_csv_of_deltas_has_a_row_per_label_and_split(plures, runs):
    rows = list(csv.DictReader(io.StringIO(plures("compare", *runs, "--deltas", "--format", "csv").out)))

    assert [(row["label"], row["split"]) for row in rows] == [
        *(("local", "train"), ("local", "test"), ("per_fedavg", "train"), ("per_fedavg", "test")),
    ]
    assert float(rows[1]["median"]) == -0.125


def test_latex_has_what_is_said_as_comments(plures, runs):
    lines = plures("compare", *runs, "--format", "latex").out.splitlines()

    first = lines.index(r"\begin{tabular}{lrrrrrrrr}")
    assert all(line.startswith("% ") for line in lines[:first])
    assert lines[first + 6].startswith(r"per\_fedavg & 2 & \textbf{78.1 $\pm$ 3.1} & 78.1 & ")
    assert widest("\n".join(lines[:first])) <= 80


def test_json_says_what_was_added(plures, runs):
    found = json.loads(plures("compare", runs[-1], "--json").out)

    assert [row["label"] for row in found["labels"]] == ["local", "fedavg", "per_fedavg"]
    assert list(found["beside"]["added"]) == ["local", "fedavg"]
    assert found["best"] == ["per_fedavg"]
    assert found == json.loads(plures("compare", runs[-1], "--format", "json").out)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("t.md", "| label"),
        ("t.csv", "label,method"),
        ("t.tex", "% Needs"),
        ("t.json", "{\n"),
        ("t.txt", "label  "),
        ("T.CSV", "label,method"),
    ],
)
def test_a_file_has_the_format_of_its_ending(plures, runs, name, begins):
    said = plures("compare", *runs, "--out", name)

    assert (said.code, said.out, said.err) == (0, "", f"Written: {name}\n")
    assert Path(name).read_bytes().decode("utf-8").startswith(begins)
    assert [path.name for path in Path().iterdir()] == [name]


def test_a_format_that_is_named_is_stronger_than_the_ending(plures, runs):
    plures("compare", *runs, "--format", "latex", "--out", "table.txt")

    assert r"\toprule" in Path("table.txt").read_text(encoding="utf-8")


def test_a_file_is_replaced_whole_or_left_as_it_was(plures, runs, monkeypatch):
    Path("t.md").write_text("precious", encoding="utf-8")
    monkeypatch.setattr("os.fsync", full_disk)

    said = plures("compare", *runs, "--out", "t.md")

    assert said.code == 2
    assert "Cannot write t.md: No space left" in said.err
    assert [path.name for path in Path().iterdir()] == ["t.md"]
    assert Path("t.md").read_text(encoding="utf-8") == "precious"


def full_disk(number: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--json", "--format", "csv"), "two formats"),
        (("--out", "nowhere/t.md"), "Cannot write nowhere/t.md"),
        (("--out", "."), "Cannot write"),
        (("--out", "t.foo"), "Cannot write t.foo: its ending tells no format. There are .md, .csv, .tex, .json, .txt"),
        (("--format", "json", "--out", "t.csv"), "its ending is that of csv, but json is asked for"),
        (("--json", "--out", "t.md"), "its ending is that of markdown, but json is asked for"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(plures, runs, args, told):
    said = plures("compare", *runs, *args)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert told in " ".join(said.err.split())
    assert not list(Path().iterdir())


def test_an_unknown_format_is_refused_with_those_there_are(plures, runs):
    said = plures("compare", *runs, "--format", "html")

    assert said.code == 2
    assert "markdown" in said.err


def test_clients_have_the_same_formats(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [client / 40 for client in range(40)]})

    rows = list(csv.DictReader(io.StringIO(plures("clients", run, "--format", "csv").out)))
    assert [row["name"] for row in rows] == [f"c{client}" for client in range(40)]
    assert (rows[1]["accuracy"], rows[1]["test_items"], rows[1]["client"]) == ("0.025", "10", "1")
    assert len(list(csv.reader(io.StringIO(plures("clients", run, "--worst", "3", "--format", "csv").out)))) == 4
    text = plures("clients", run, "--format", "markdown").out
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 2 + 31
    assert "10 of 40 clients are not shown" in text


def test_what_the_command_makes_is_found_the_next_time(plures, experiment):
    short = ("--set", "rounds=1", "--set", "data.clients=6", "--set", "method=fedper")
    plures("run", experiment, *short, "--out", "runs/mine")
    told = json.loads(plures("compare", "runs/mine", "--json").out)["beside"]
    assert told["missing"] == ["local", "fedavg"]

    assert plures(*shlex.split(told["command"])[1:]).code == 0

    found = plures("compare", "runs/mine").out
    assert [line.split()[0] for line in found.splitlines()[1:4]] == ["local", "fedavg", "fedper"]
    assert "Added, as found beside: local (runs/mine-beside/local/seed-0)" in found
    other = ("--set", "rounds=2", *short[2:])
    plures("run", experiment, *other, "--out", "runs/longer")
    assert json.loads(plures("compare", "runs/longer", "--json").out)["beside"]["missing"] == ["local", "fedavg"]
