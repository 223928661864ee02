"""`plures run` under several seeds and with methods beside, and `plures advise`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plures.report import records
from tests.cli.helpers import widest

SHORT = ("--set", "rounds=2", "--set", "data.clients=6")


def test_seeds_and_methods_beside_end_in_one_table(plures, experiment):
    said = plures("run", experiment, *SHORT, "--seeds", "2", "--beside", "local", "--alone", "--out", "study")

    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].split()[:2] == ["label", "n"]
    assert {line.split()[0]: line.split()[1] for line in lines[1:3]} == {"local": "2", "fedavg": "2"}
    assert "95% bootstrap" in said.out
    assert widest(said.out) <= 80
    assert sorted(path.name for path in Path("study").iterdir()) == ["fedavg", "local", "study.json"]
    assert sorted(path.name for path in Path("study/local").iterdir()) == ["seed-0", "seed-1"]


def test_local_fedavg_and_finetune_run_beside_and_come_first(plures, experiment):
    said = plures("run", experiment, *SHORT, "--set", "method=fedper", "--beside", "ditto", "--out", "study")

    assert [line.split()[0] for line in said.out.splitlines()[1:6]] == [
        "local",
        "fedavg",
        "finetune",
        "fedper",
        "ditto",
    ]
    assert "looked for" not in said.out
    assert widest(said.out) <= 80


def test_what_cannot_run_beside_is_left_out_with_a_word(plures, experiment):
    """FedBN keeps running statistics on clients; a method that shares everything is not told whose they are."""
    said = plures(
        *("run", experiment, *SHORT, "--set", "method=fedbn", "--set", "model.batch_norm=true"),
        *("--seeds", "1", "--out", "study"),
    )

    assert said.code == 0
    text = " ".join(said.out.split())
    assert "fedavg was left out: Mlp keeps running statistics" in text
    assert "plures run" not in text
    assert text == " ".join((plures("compare", "study").out + "Results: study").split())


def test_a_run_of_one_seed_stays_one_run(plures, experiment):
    assert plures("run", experiment, *SHORT, "--out", "run").code == 0
    assert Path("run/result.json").is_file()


def test_models_that_are_the_same_are_shown_once_and_kept_in_json(plures, experiment):
    said = plures("run", experiment, *SHORT, "--out", "run")

    assert "global = personal/test" in said.out
    assert said.out.count("accuracy  ") == 2
    assert {"global/test/accuracy", "personal/test/accuracy"} <= records.read_result(Path("run"))["metrics"].keys()


def test_a_list_of_seeds_is_taken_as_it_is(plures, experiment):
    said = plures("run", experiment, *SHORT, "--seeds", "5,3", "--alone", "--json", "--out", "study")

    json.loads(said.out)
    assert [run["seed"] for run in json.loads(Path("study/study.json").read_text(encoding="utf-8"))["runs"]] == [5, 3]


@pytest.mark.parametrize("seeds", ["0", "-1", "two", "1,", "1,1"])
def test_wrong_seeds_are_one_clear_error(plures, experiment, seeds):
    said = plures("run", experiment, "--seeds", seeds, "--out", "study")

    assert (said.code, said.out) == (2, "")
    assert "seeds" in said.err
    assert not Path("study").exists()


def test_newcomers_and_guard_are_told_below_the_table(plures, experiment):
    said = plures(
        *("run", experiment, *SHORT, "--set", "method=ditto", "--set", "evaluation.guard=true"),
        *("--set", "data.newcomers=2", "--out", "run"),
    )

    told = records.read_result(Path("run"))
    assert "Newcomers (2): newcomers/finetuned/test/accuracy" in said.out
    assert f"Guard: {told['guard']['own_model']} of 4 clients take their own model" in " ".join(said.out.split())
    assert widest(said.out) <= 80


def test_advice_is_a_table_with_lines_for_a_file(plures, experiment):
    options = ("--rounds", "1", "--pretrain", "1", "--set", "data.clients=6", "--out", "advice")
    said = plures("advise", experiment, *options)

    assert said.code == 0
    first = [line.split("  ")[0] for line in said.out.splitlines()[1:6]]
    assert first[0].startswith("nothing")
    assert any(line.startswith("output layer") for line in first)
    assert "Not tried: norms." in said.out
    assert widest(said.out) <= 80


def test_advice_as_json_is_all_there_is_on_stdout(plures, experiment):
    options = ("--rounds", "1", "--pretrain", "1", "--set", "data.clients=6", "--out", "advice", "--json")
    rows = json.loads(plures("advise", experiment, *options).out)

    assert rows == json.loads(Path("advice/advice.json").read_text(encoding="utf-8"))
    assert rows[0]["part"] == "nothing"
