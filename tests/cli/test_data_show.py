"""`plures data show`: the federation of an experiment file as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.helpers import widest


def test_it_shows_every_client_of_the_file_in_80_columns(plures, experiment):
    said = plures("data", "show", experiment)

    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "digits, by_class, 10 clients, seed 0"
    assert [line.split()[0] for line in lines[3:13]] == [str(client) for client in range(10)]
    assert lines[-1].startswith("10 clients")
    assert widest(said.out) <= 80


def test_changes_of_the_command_line_count(plures, experiment):
    changes = ["--set", "data.clients=100", "--set", "data.partition=dirichlet", "--set", "data.newcomers=0.2"]

    said = plures("data", "show", experiment, *changes)

    assert "digits, dirichlet, 100 clients, seed 0" in said.out
    assert "... 90 more ..." in said.out
    assert "Newcomers, which take no part in training: 20 of the 100 clients." in said.out
    assert widest(said.out) <= 80


def test_json_has_every_client_and_the_fingerprint(plures, experiment):
    said = plures("data", "show", experiment, "--json", "--set", "data.newcomers=3")

    found = json.loads(said.out)
    assert (found["num_clients"], found["num_classes"], found["label_space"]) == (10, 10, "global")
    assert found["fingerprint"].keys() == {"data", "split"}
    assert sum(client["newcomer"] for client in found["clients"]) == 3
    first = found["clients"][0]
    assert first.keys() == {"name", "train", "validation", "test", "classes", "newcomer"}
    assert sum(first["classes"].values()) == first["train"]
    assert len(first["classes"]) == 2


def test_it_writes_a_picture(plures, experiment, tmp_path):
    pytest.importorskip("matplotlib")

    said = plures("data", "show", experiment, "--png", tmp_path / "clients.png")

    assert said.out.splitlines()[-1] == f"Picture: {tmp_path / 'clients.png'}"
    assert (tmp_path / "clients.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_one_line_names_the_extra(plures, experiment, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "plures.data.drawing", raising=False)

    said = plures("data", "show", experiment, "--png", "clients.png")

    assert said.code == 2
    assert said.err == "error: A picture needs matplotlib: pip install 'plures[plot]'.\n"


def test_a_federation_that_cannot_be_is_one_line(plures, experiment):
    said = plures("data", "show", experiment, "--set", "data.split_by=time")

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: split_by = 'time' cannot be used")


def test_the_help_fits_80_columns(plures):
    said = plures("data", "show", "--help")

    assert (said.code, said.err) == (0, "")
    assert all(option in said.out for option in ("--set", "--png", "--json"))
    assert widest(said.out) <= 80
