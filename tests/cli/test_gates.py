"""plures gates: groups of clients in a table, as JSON and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plures.recipes import make_experiment, run_experiment
from tests.cli.helpers import widest

TABLE = {"rounds": 3, "cohort": 8, "data": {"source": "digits", "clients": 8}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    options = {"lr": 0.5, "gate_lr": 1.5}
    run_experiment(make_experiment({"method": "pfedgate", "method_options": options, **TABLE}), out=folder / "gated")
    run_experiment(make_experiment({"method": "fedper", **TABLE}), out=folder / "plain")
    return folder


def test_the_table_has_every_client_once_and_the_agreement_with_the_labels(plures, runs):
    done = plures("gates", runs / "gated", "--groups", "3")
    assert done.code == 0
    heading, *rows = done.out.split("\n\n")[0].splitlines()
    assert heading.split() == ["group", "clients", "labels"]
    start, stop = heading.index("clients"), heading.index("labels")
    named = [name.strip() for row in rows for name in row[start:stop].split(",")]
    assert sorted(map(int, named)) == list(range(8))
    assert len(rows) == 3
    assert widest(done.out) <= 80
    assert "Spearman" in done.out


def test_json_is_for_programs(plures, runs):
    done = plures("gates", runs / "gated", "--json")
    found = json.loads(done.out)
    assert found["clients"] == sorted(found["order"]) == list(range(8))
    assert len(found["tree"]) == 7
    assert -1 <= found["spearman"] <= 1
    assert 0 < found["p_value"] <= 1
    assert set(found["names"]) == set(found["labels"]) == {str(client) for client in range(8)}


def test_the_dendrogram_is_drawn(plures, runs):
    done = plures("gates", runs / "gated", "--plot", "gates.png")
    assert done.code == 0
    assert Path("gates.png").read_bytes().startswith(b"\x89PNG")
    assert "Dendrogram: gates.png" in done.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["plain"], "has no gates"),
        (["nothing"], "nothing"),
        (["gated", "--plot", "no/such/folder/gates.png"], "Cannot write"),
        (["gated", "--plot", "gates.doc"], "Cannot write"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(plures, runs, args, told):
    done = plures("gates", runs / args[0], *args[1:])
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert told in done.err
    assert "Traceback" not in done.err
