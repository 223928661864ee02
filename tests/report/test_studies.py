"""From folders to series: which runs belong together, what they are called, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from plures.core.errors import InvalidConfig, RunFolderError
from plures.report.client_scores import read_scores
from plures.report.references import read_with_reference, stage_a
from plures.report.studies import read_series
from tests.report.run_folders import write_clients, write_run, write_study

VALUES = {"personal/test": [0.5, 0.7], "global/test": [0.4, 0.6]}


def labels_of(*folders: Path) -> dict[str, list[int]]:
    return {series.label: list(series.runs) for series in read_series(folders)}


def test_runs_that_differ_in_their_seed_alone_are_one_label(tmp_path):
    runs = [
        write_run(tmp_path / f"{method}-{seed}", VALUES, method=method, seed=seed)
        for method in ("fedalt", "local")
        for seed in (2, 0)
    ]

    assert labels_of(*runs, runs[0]) == {"fedalt": [0, 2], "local": [0, 2]}


def test_configurations_of_one_method_are_told_apart_by_their_folders(tmp_path):
    for name, rate in (("fast", 0.5), ("slow", 0.1)):
        for seed in (0, 1):
            write_run(tmp_path / name / f"seed-{seed}", VALUES, method="fedalt", seed=seed, options={"lr": rate})
    runs = sorted(tmp_path.glob("*/*"))

    assert labels_of(*runs) == {"fedalt:fast": [0, 1], "fedalt:slow": [0, 1]}
    assert labels_of(runs[0], runs[2]) == {"fedalt:fast/seed-0": [0], "fedalt:slow/seed-0": [0]}


def test_folders_that_are_named_by_their_method_are_labels_as_they_are(tmp_path):
    for name, rate in (("fedalt-a", 0.5), ("fedalt-b", 0.1)):
        for seed in (10, 11):
            write_run(tmp_path / f"{name}_{seed}", VALUES, method="fedalt", seed=seed, options={"lr": rate})

    assert labels_of(*sorted(tmp_path.iterdir())) == {"fedalt-a": [10, 11], "fedalt-b": [10, 11]}


def test_seeds_that_are_strewn_over_folders_have_the_name_of_the_first(tmp_path):
    for place, (first, second) in {"x": (0.5, 0.1), "y": (0.1, 0.5)}.items():
        seed = int(place == "y")
        write_run(tmp_path / place / "one", VALUES, seed=seed, options={"lr": first})
        write_run(tmp_path / place / "two", VALUES, seed=seed, options={"lr": second})

    assert labels_of(*sorted(tmp_path.glob("*/*"))) == {"fedavg:one": [0, 1], "fedavg:two": [0, 1]}


def test_runs_from_python_without_a_configuration_stand_alone(tmp_path):
    runs = [write_run(tmp_path / f"run{seed}", VALUES, seed=seed, configured=False) for seed in (0, 1)]

    assert labels_of(*runs) == {"fedavg:run0": [0], "fedavg:run1": [1]}


def test_a_study_has_its_own_labels(tmp_path):
    for label, seed in (("a", 0), ("a", 1), ("b", 1)):
        write_run(tmp_path / "study" / label / str(seed), VALUES, seed=seed)
    study = write_study(tmp_path / "study", [("a", 0, "a/0"), ("a", 1, "a/1"), ("b", 1, "b/1")])
    loose = write_run(tmp_path / "loose", VALUES, method="local")

    assert labels_of(study, loose) == {"a": [0, 1], "b": [1], "local": [0]}


def test_two_studies_with_the_same_label_are_told_apart(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name / "a" / "0", VALUES)
        write_study(tmp_path / name, [("a", 0, "a/0")])

    assert list(labels_of(tmp_path / "one", tmp_path / "two")) == ["one/a/0", "two/a/0"]


def test_different_data_are_refused_with_both_names(tmp_path):
    one = write_run(tmp_path / "one", VALUES)
    two = write_run(tmp_path / "two", VALUES, seed=1, result={"fingerprint": {"data": "d", "split": "other"}})

    with pytest.raises(InvalidConfig, match=r"one and .*two have different data .*another way"):
        read_series([one, two])


def test_different_metrics_are_refused(tmp_path):
    one, two = write_run(tmp_path / "one", VALUES), write_run(tmp_path / "two", VALUES, seed=1, metric="rmse")

    with pytest.raises(InvalidConfig, match="judged by accuracy and by rmse"):
        read_series([one, two])


def test_the_same_configuration_and_seed_twice_is_refused(tmp_path):
    one, two = write_run(tmp_path / "one", VALUES), write_run(tmp_path / "two", VALUES)

    with pytest.raises(InvalidConfig, match="the same seed, 0"):
        read_series([one, two])


def test_unfinished_runs_are_refused_beside_finished_ones(tmp_path):
    cut = {"status": "interrupted", "rounds_done": 3, "rounds": 5}
    one, two = write_run(tmp_path / "one", VALUES), write_run(tmp_path / "two", VALUES, seed=1, result=cut)

    with pytest.raises(InvalidConfig, match=r"two did not finish \(interrupted after 3 of 5 rounds\).*plures run"):
        read_series([one, two])
    assert labels_of(two) == {"fedavg": [1]}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing", "There is no folder"),
        ("empty", "is no run folder"),
        ("started", "goes on, or was killed"),
        ("parent", "has some inside"),
        ("cut", "is damaged"),
        ("odd", "it has no status, method"),
        ("configuration", "experiment.toml is damaged"),
        ("study", "again into a new folder, or name the run folders"),
        ("bad_study", "study.json is damaged"),
        ("empty_study", "names no runs"),
    ],
)
def test_a_folder_that_cannot_be_read_is_one_clear_error(tmp_path, name, told):
    (tmp_path / "empty").mkdir()
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "rounds.jsonl").write_text("", encoding="utf-8")
    write_run(tmp_path / "parent" / "run", VALUES)
    (write_run(tmp_path / "cut", VALUES) / "result.json").write_text('{"status": "fin', encoding="utf-8")
    (write_run(tmp_path / "odd", VALUES) / "result.json").write_text('{"cost": 3}', encoding="utf-8")
    (write_run(tmp_path / "configuration", VALUES) / "experiment.toml").write_text("= 3", encoding="utf-8")
    write_study(tmp_path / "study", [("a", 0, "a")])
    (write_study(tmp_path / "bad_study", []) / "study.json").write_text('{"runs": [3]}', encoding="utf-8")
    write_study(tmp_path / "empty_study", [])

    with pytest.raises(RunFolderError, match=told):
        read_series([tmp_path / name])


def test_fedavg_is_the_reference_unless_another_is_named(tmp_path):
    first = write_run(tmp_path / "first", VALUES, method="local")
    usual = write_run(tmp_path / "usual", VALUES)
    apart = write_run(tmp_path / "apart", VALUES, method="ditto")

    assert read_with_reference([first, usual], None)[1].label == "fedavg"
    assert read_with_reference([first], None)[1].label == "local"
    assert read_with_reference([first, usual], "local")[1].label == "local"
    assert read_with_reference([first, usual], str(first))[1].label == "local"
    series, reference = read_with_reference([first, usual], str(apart))
    assert reference.label == "ditto"
    assert [one.label for one in series] == ["ditto", "local", "fedavg"]
    with pytest.raises(InvalidConfig, match="Did you mean 'local'"):
        read_with_reference([first, usual], "loca")


def test_a_study_with_several_labels_is_no_reference(tmp_path):
    loose = write_run(tmp_path / "loose", VALUES)
    for label in ("a", "b"):
        write_run(tmp_path / "study" / label, VALUES, method="local")
    study = write_study(tmp_path / "study", [("a", 0, "a")])

    assert read_with_reference([loose], str(study))[1].label == "a"
    write_study(study, [("a", 0, "a"), ("b", 0, "b")])
    with pytest.raises(InvalidConfig, match="several labels"):
        read_with_reference([loose], str(study))


def test_stage_a_is_found_from_the_folder_where_the_pipeline_was_run_and_below(tmp_path, monkeypatch):
    write_run(tmp_path / "kept" / "key", VALUES, headline="global")
    stages = [
        {"stage": "pretrain", "rounds": 3, "folder": "kept/key"},
        {"stage": "personal", "rounds": 5, "folder": "runs/one"},
    ]
    run = write_run(tmp_path / "runs" / "one", VALUES, method="fedalt", result={"stages": stages})
    series = read_series([run])[0]

    assert stage_a(series).first.result["method"] == "fedavg"
    monkeypatch.chdir(tmp_path)
    assert stage_a(read_series([Path("runs/one")])[0]).first.folder == Path("kept/key")
    (tmp_path / "kept").rename(tmp_path / "lost")
    with pytest.raises(RunFolderError, match="was kept in kept/key, which is not there"):
        stage_a(series)
    with pytest.raises(InvalidConfig, match=r"no stage \(a\)"):
        stage_a(read_series([write_run(tmp_path / "plain", VALUES)])[0])


def test_the_last_evaluated_round_is_kept_and_of_two_rows_the_later(tmp_path):
    """A pipeline adds rows of fine-tuned models to a round that may have some already."""
    first = [(1, client, f"c{client}", "finetuned", "test", 5, 0.1, 1.0) for client in (0, 1, 2)]
    second = [(2, client, f"c{client}", "finetuned", "test", 5, 0.2, 1.0) for client in (2, 0)]
    other = [(3, 0, "c0", "personal", "test", 5, 0.9, 1.0), (3, 0, "c0", "newcomers/finetuned", "test", 5, 0.9, 1.0)]
    third = [(2, 2, "c2", "finetuned", "test", 6, 0.3, "")]
    write_clients(tmp_path, [("accuracy", "loss")], [first, second, other, third])

    found = read_scores(tmp_path, "finetuned", ("test", "train"), ("accuracy", "loss", "auc"))

    assert list(found) == ["test"]
    scores = found["test"]
    assert (scores.clients.tolist(), scores.names, scores.examples.tolist()) == ([0, 2], ["c0", "c2"], [5, 6])
    assert scores.values["accuracy"].tolist() == [0.2, 0.3]
    assert [str(value) for value in scores.values["loss"]] == ["1.0", "nan"]
    assert "auc" not in scores.values


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(b"round,client\n1,2\n"),
        gzip.compress(b"round,client,name,model,split,examples,accuracy\n1,0,c0,personal,test,many,0.5\n"),
        gzip.compress(b"round,client,name,model,split,examples,accuracy\n1,0\n"),
        gzip.compress(b"round,client,name,model,split,examples,accuracy\n" * 100)[:-12],
        b"",
    ],
    ids=["no gzip", "too few columns", "no number", "a short row", "cut off", "empty"],
)
def test_a_damaged_file_of_clients_is_one_clear_error(tmp_path, content):
    (tmp_path / "clients.csv.gz").write_bytes(content)

    with pytest.raises(RunFolderError, match=r"clients\.csv\.gz"):
        read_scores(tmp_path, "personal", ("test",), ("accuracy",))


def test_a_run_without_the_file_of_clients_says_so(tmp_path):
    with pytest.raises(RunFolderError, match=r"has no clients\.csv\.gz"):
        read_scores(tmp_path, "personal", ("test",), ("accuracy",))
