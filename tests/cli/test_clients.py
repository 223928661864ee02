"""plures clients: who fares worst, who is helped, in 80 columns and as JSON."""

from __future__ import annotations

import json

import pytest

from tests.cli.helpers import widest
from tests.report.run_folders import write_clients, write_federation, write_run, write_study


def values_of(num_clients: int, step: float) -> dict[str, list[float]]:
    return {"personal/test": [client * step for client in range(num_clients)]}


def members(num_clients: int, **more: object) -> list[dict[str, object]]:
    facts = {"role": "participant", "validation": 5, "test": 10, "classes": 3}
    labels = {"train_labels": '{"1": 20}', "test_labels": '{"1": 10}'}
    return [
        {"client": number, "name": f"c{number}", "train": 20, **facts, **labels, **more}
        for number in range(num_clients)
    ]


def test_every_client_has_a_row_and_a_difference(plures, tmp_path):
    own = write_run(tmp_path / "own", {"personal/test": [0.5, 0.9, 0.2]}, method="fedalt")
    reference = write_run(tmp_path / "reference", {"global/test": [0.5, 0.4, 0.3]}, headline="global")
    write_federation(own, members(4))

    done = plures("clients", own, "--against", reference)

    assert done.code == 0
    heading, *rows = [line.split() for line in done.out.split("\n\n")[0].splitlines()]
    assert heading == ["client", "train", "test", "classes", "accuracy", "loss", "delta"]
    assert rows == [
        ["c2", "20", "10", "3", "20.0", "1.000", "-10.0"],
        ["c0", "20", "10", "3", "50.0", "1.000", "0.0"],
        ["c1", "20", "10", "3", "90.0", "1.000", "+50.0"],
    ]
    assert "1 helped, 1 hurt, 1 same" in done.out
    assert "bottom decile 20.0" in done.out
    assert "without test examples: 1" in done.out
    assert widest(done.out) <= 80


def test_of_many_clients_the_worst_and_the_best_are_shown(plures, tmp_path):
    run = write_run(tmp_path / "run", values_of(100, 0.01))

    done = plures("clients", run)

    rows = [line.split()[0] for line in done.out.split("\n\n")[0].splitlines()[1:]]
    assert rows == [*(f"c{number}" for number in range(15)), "...", *(f"c{number}" for number in range(85, 100))]
    assert "70 of 100 clients are not shown" in done.out
    assert "bottom decile 10.0" in done.out


def test_the_first_few_by_another_column(plures, tmp_path):
    run = write_run(tmp_path / "run", values_of(12, 0.05), examples=list(range(30, 18, -1)))

    done = plures("clients", run, "--sort", "examples", "--worst", "2")

    assert [line.split()[:2] for line in done.out.splitlines()[1:3]] == [["c11", "19"], ["c10", "20"]]
    assert "10 of 12 clients are not shown" in done.out


def test_what_clients_still_know_of_other_classes_has_columns(plures, tmp_path):
    run = write_run(tmp_path / "run", values_of(2, 0.5))
    rows = [
        (5, 0, "a client of a very long name, which is folded", "personal", "test", 10, 0.5, 1.5, 0.75, "", 0),
        (5, 1, "c1", "personal", "test", 10, 0.25, 1.25, 0.5, 0, 0.5),
    ]
    write_clients(run, [("accuracy", "loss", "seen_accuracy", "unseen_accuracy", "unseen_share")], [rows])
    write_federation(run, members(2))

    done = plures("clients", run, "--against", run)

    lines = done.out.splitlines()
    assert lines[0].split()[4:] == ["accuracy", "loss", "seen", "unseen", "share", "delta"]
    assert lines[1].split()[-6:] == ["50.0", "1.500", "75.0", "-", "0.0", "0.0"]
    assert widest(done.out) <= 80


def test_targets_that_are_no_classes_have_no_number_of_them(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, 1.25]}, metric="rmse")
    write_federation(run, members(2, classes="", train_labels="", test_labels=""))

    done = plures("clients", run)

    assert done.out.splitlines()[1].split() == ["c1", "20", "10", "-", "1.250", "1.000"]
    assert "smaller is better" in done.out
    assert json.loads(plures("clients", run, "--json").out)["clients"][0]["train_labels"] is None


def test_json_has_everything_in_order(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, None, 0.25]})
    write_federation(run, members(3))

    found = json.loads(plures("clients", run, "--json").out)

    assert [client["accuracy"] for client in found["clients"]] == [0.25, 0.5, None]
    assert found["clients"][0]["train_labels"] == {"1": 20}
    assert found["overview"]["worst"] == 0.25


def test_a_study_is_asked_for_its_label_and_its_seeds_are_averaged(plures, tmp_path):
    for label, shift in (("mine", 0.25), ("theirs", 0.0)):
        for seed in (0, 1):
            values = {"personal/test": [0.5 + shift - seed / 2, 0.25 + seed / 4]}
            write_run(tmp_path / label / str(seed), values, seed=seed)
    study = write_study(tmp_path, [(label, seed, f"{label}/{seed}") for label in ("mine", "theirs") for seed in (0, 1)])

    assert "Choose one with --label" in plures("clients", study).err
    done = plures("clients", study, "--label", "mine", "--against", "theirs")

    assert [line.split() for line in done.out.splitlines()[1:3]] == [
        ["c1", "10", "37.5", "1.000", "0.0"],
        ["c0", "10", "50.0", "1.000", "+25.0"],
    ]
    assert "mean of 2 seeds" in done.out
    assert "1 helped, 0 hurt, 1 same (0 change with the seed)" in " ".join(done.out.split())


def test_newcomers_are_shown_on_request_and_never_among_participants(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.9], "newcomers/finetuned/test": [0.5, 0.25]})
    write_federation(run, [*members(1), *members(2, role="newcomer", train=7)])

    assert len(plures("clients", run).out.split("\n\n")[0].splitlines()) == 2
    done = plures("clients", run, "--newcomers")
    assert [line.split()[:2] for line in done.out.splitlines()[1:3]] == [["c1", "7"], ["c0", "7"]]
    assert "finetuned model of newcomers" in done.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--sort", "delta"], "name one with --against"),
        (["--sort", "colour"], "Known: accuracy"),
        (["--split", "train"], "no scores personal/train/accuracy"),
        (["--against", "nobody"], "no such folder"),
        (["--label", "fedalt"], "Did you mean 'fedavg'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(plures, tmp_path, args, told):
    done = plures("clients", write_run(tmp_path / "run", {"personal/test": [0.5]}), *args)

    assert done.code == 2
    assert done.err.startswith("error: ")
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_model_that_overflows_is_the_worst_and_clients_without_a_value_are_counted(plures, tmp_path):
    own = write_run(tmp_path / "own", {"personal/test": [0.5, float("inf"), None]}, method="fedalt", metric="rmse")
    reference = write_run(tmp_path / "reference", {"personal/test": [1.0, 1.0, 1.0]}, metric="rmse")

    done = plures("clients", own, "--against", reference)

    assert [line.split() for line in done.out.splitlines()[1:4]] == [
        ["c1", "10", "inf", "1.000", "+inf"],
        ["c0", "10", "0.5000", "1.000", "-0.5000"],
        ["c2", "10", "-", "1.000", "-"],
    ]
    text = " ".join(done.out.split())
    assert "2 clients: worst inf, bottom decile inf" in text
    assert "mean inf, std - (ddof 0)" in text
    assert "1 helped, 1 hurt, 0 same" in text
    assert "left out, as they lack a value: 1" in text
    assert "Without rmse, and so not counted: 1" in text
    assert widest(done.out) <= 80
