"""plures compare: labels side by side in 80 columns, as JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from plures.recipes import make_experiment, run_experiment
from plures.report.running import running_now
from tests.cli.helpers import widest
from tests.report.run_folders import write_run, write_study


@pytest.fixture
def runs(tmp_path):
    """Three methods with long names, two seeds; the last method lacks a seed."""
    found = []
    for method, gain in (("fedavg", 0.0), ("subsampling", 0.2), ("per_fedavg", -0.3)):
        for seed in (0, 1) if method != "per_fedavg" else (0,):
            values = {"personal/test": [0.5 + gain, 0.6 + gain - seed / 10], "personal/train": [0.9, 0.8]}
            found.append(write_run(tmp_path / f"{method}-{seed}", values, method=method, seed=seed))
    return found


def rows_of(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.split("\n\n")[0].splitlines()}


def test_labels_stand_side_by_side(plures, runs):
    """fedavg: 0.55 and 0.5, so 52.5 +- 2.5; subsampling has 20 points more of each client and seed."""
    done = plures("compare", *runs)

    assert done.code == 0
    rows = rows_of(done.out)
    assert rows["label"] == ["n", "accuracy", "chosen", "low", "10%", "difference", "+/-", "rounds", "sent"]
    assert rows["fedavg"] == ["2", "52.5±2.5", "52.5", "50.0", "reference", "-", "1.00", "1.5", "kB"]
    assert rows["subsampling"] == [
        *("2", "*72.5±2.5", "72.5", "70.0", "+20.0", "[+20.0", "+20.0]", "2/0", "1.00", "1.5", "kB"),
    ]
    assert rows["per_fedavg"][:2] == ["1", "25.0"]
    assert "pairs of like seed: subsampling 2, per_fedavg 1" in " ".join(done.out.split())
    assert "(ddof 0)" in done.out
    assert widest(done.out) <= 80


def test_of_errors_the_smaller_is_better_and_rows_have_two_lines(plures, tmp_path):
    for method, error in (("fedavg", 0.75), ("fedper", 0.25)):
        for seed in (0, 1):
            values = {"personal/test": [error, error + seed]}
            write_run(tmp_path / f"{method}-{seed}", values, method=method, seed=seed, metric="rmse")

    done = plures("compare", *sorted(tmp_path.glob("fed*")))

    assert done.code == 0
    assert "smaller is better" in done.out
    assert rows_of(done.out)["fedper"][-4:] == ["2/0", "1.00", "1.5", "kB"]
    assert widest(done.out) <= 80
    assert "%" not in done.out.splitlines()[1]


def test_a_reference_may_be_named_by_label_or_folder(plures, runs):
    for reference in ("subsampling", str(runs[2])):
        done = plures("compare", *runs, "--against", reference)
        assert rows_of(done.out)["subsampling"][4] == "reference"
        assert rows_of(done.out)["fedavg"][4:8] == ["-20.0", "[-20.0", "-20.0]", "0/2"]


def test_a_study_is_one_argument_and_its_labels_may_have_brackets(plures, tmp_path, runs):
    listed = [("fedavg [old]", 0, "fedavg-0"), ("a label that is much longer than others", 0, "subsampling-0")]
    study = write_study(tmp_path, listed)

    done = plures("compare", study)

    assert done.code == 0
    assert "[old]" in done.out.split("\n\n")[0]
    assert "clients only: one seed" in " ".join(done.out.split())
    assert widest(done.out) <= 80


def test_a_study_that_was_cut_says_so_in_the_table_the_json_and_the_page(plures, tmp_path, runs):
    done = [("fedavg", 0, "fedavg-0"), ("subsampling", 0, "subsampling-0")]
    planned = [*done, *((f"label-{number}", number, f"later/{number}") for number in range(7))]
    study = write_study(tmp_path, done, planned)
    expected = "was cut: 2 of 9 runs are there; missing: label-0 seed 0,"

    said = plures("compare", study)
    assert expected in " ".join(said.out.split())
    assert "label-5 seed 5 and 1 more." in " ".join(said.out.split())
    (told,) = json.loads(plures("compare", study, "--json").out)["cut"]
    assert (told["planned"], told["goes_on"], len(told["missing"])) == (9, False, 7)
    assert plures("report", study).code == 0
    assert expected in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("planned", [None, [("fedavg", 0, "fedavg-0")]], ids=["older", "whole"])
def test_a_whole_study_says_nothing_of_cuts(plures, tmp_path, runs, planned):
    study = write_study(tmp_path, [("fedavg", 0, "fedavg-0")], planned)

    assert "The study" not in plures("compare", study).out
    assert json.loads(plures("compare", study, "--json").out)["cut"] == []


def test_a_study_under_way_is_not_called_cut(plures, tmp_path, runs):
    study = write_study(tmp_path, [("fedavg", 0, "fedavg-0")], [("fedavg", 0, "fedavg-0"), ("local", 0, "local")])
    (study / "running.json").write_text(json.dumps(running_now(runs=2)), encoding="utf-8")

    assert "goes on: 1 of 2 runs are there; missing: local seed 0." in " ".join(plures("compare", study).out.split())


def test_where_nothing_can_be_bold_a_star_marks_the_best(plures, runs, monkeypatch):
    said = plures("compare", *runs)
    assert [label for label, row in rows_of(said.out).items() if row[1].startswith("*")] == ["subsampling"]
    assert "*: best and means within its std" in " ".join(said.out.split())

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    styled = plures("compare", *runs).out
    assert "\x1b[1m72.5±2.5" in styled
    assert "bold: best" in " ".join(styled.split())
    assert "*" not in styled


def test_what_becomes_of_clients_is_told_on_request(plures, runs):
    done = plures("compare", *runs, "--deltas")

    lines = [line.split() for line in done.out.splitlines() if line.startswith("subsampling")]
    assert lines[1] == ["subsampling", "train", "0/0/2", "0", *["0.0"] * 6]
    assert lines[2] == ["subsampling", "test", "2/0/0", "0", *["+20.0"] * 6]
    assert widest(done.out) <= 80


def test_json_is_for_programs(plures, runs):
    found = json.loads(plures("compare", *runs, "--json").out)

    assert [row["label"] for row in found["labels"]] == ["fedavg", "subsampling", "per_fedavg"]
    assert found["reference"] == "fedavg"
    assert found["labels"][1]["difference"]["per_seed"]["mean"] == pytest.approx(0.2)


def test_a_real_run_is_compared_with_a_real_run(plures, tmp_path):
    table = {"rounds": 2, "cohort": 4, "data": {"source": "digits", "clients": 8}}
    for method in ("fedavg", "fedper"):
        run_experiment(make_experiment({"method": method, **table}), out=tmp_path / method)

    done = plures("compare", tmp_path / "fedavg", tmp_path / "fedper", "--deltas")

    assert done.code == 0
    assert set(rows_of(done.out)) == {"label", "fedavg", "fedper"}
    assert widest(done.out) <= 80


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nothing"], "There is no folder"),
        (["fedavg-0", "--against", "nobody"], "no such label"),
        (["fedavg-0", "--against", "stage-a"], "no stage (a)"),
        (["fedavg-0", "--model", "finetuned"], "no scores finetuned/test/accuracy"),
        (["fedavg-0", "--newcomers"], "no scores newcomers/finetuned/test/accuracy"),
        (["fedavg-0", "--newcomers"], "Set data.newcomers"),
        (["fedavg-0", "--split", "validation"], "Name the split in `splits` of [evaluation]"),
        (["fedavg-0", "other"], "different data"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(plures, tmp_path, runs, args, told):
    write_run(tmp_path / "other", {"personal/test": [0.5]}, method="local", result={"fingerprint": {"data": "x"}})

    done = plures("compare", *(tmp_path / arg if arg in ("nothing", "fedavg-0", "other") else arg for arg in args))

    assert done.code == 2
    assert done.err.startswith("error: ")
    assert told in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_runs_that_all_did_not_finish_are_compared_with_a_word_of_warning(plures, tmp_path):
    run = write_run(tmp_path / "cut", {"personal/test": [0.5]}, result={"status": "interrupted"})

    assert "None of these runs has finished." in plures("compare", run).out


def test_a_model_that_overflows_is_shown_as_it_is(plures, tmp_path):
    """Of two clients one has an infinite error under each seed: hurt, and no mean below infinity."""
    for method, error in (("fedavg", 2.0), ("fedper", float("inf"))):
        for seed in (0, 1):
            values = {"personal/test": [1.0, error, None]}
            write_run(tmp_path / f"{method}-{seed}", values, method=method, seed=seed, metric="rmse")

    done = plures("compare", *sorted(tmp_path.glob("fed*")), "--deltas")

    assert done.code == 0
    assert rows_of(done.out)["fedper"][:6] == ["2", "inf", "inf", "inf", "+inf", "[-]"]
    assert rows_of(done.out)["fedper"][6] == "0/1"
    text = " ".join(done.out.split())
    assert "inf: on some client a model overflows." in text
    assert "as they lack a value: fedper 1." in text
    assert "Left out, as they lack a value: fedper test 1." in text
    assert widest(done.out) <= 80
