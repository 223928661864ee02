"""Local and FedAvg beside what is compared: which runs are taken, which never, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plures.core.errors import InvalidConfig
from plures.report.selecting import select
from tests.report.run_folders import write_run, write_study

VALUES = {"personal/test": [0.5, 0.7]}
NETWORK = {"name": "mlp", "hidden": [64]}
FACTS = {"cohort": 4, "rounds": 5}


def wrote(folder: Path, method: str, seed: int = 0, *, model=NETWORK, options=None, configured=True, **changes) -> Path:
    """A run of five rounds with cohorts of four, but for what is given."""
    result = FACTS | changes
    return write_run(
        folder, VALUES, method=method, seed=seed, model=model, options=options, configured=configured, result=result
    )


def added(*paths: Path, against=None, alone=False) -> dict[str, list[str]]:
    found = select(paths, against, alone=alone)
    return {one.label: [run.folder.name for run in one.runs.values()] for one in found.beside.added}


def labels(*paths: Path, **more) -> list[str]:
    return [one.label for one in select(paths, **more).series]


@pytest.fixture
def own(tmp_path) -> Path:
    return wrote(tmp_path / "own", "fedalt")


def test_local_and_fedavg_are_found_in_the_same_folder_and_come_first(tmp_path, own):
    for method in ("ditto", "fedavg", "local"):
        wrote(tmp_path / method, method)

    found = select([own])

    assert [one.label for one in found.series] == ["local", "fedavg", "fedalt"]
    assert found.reference.label == "fedavg"
    assert found.beside.missing == ()
    (word,) = found.words()
    assert word.startswith("Added, as found beside: local (")
    assert str(tmp_path / "local") in word or "/local)" in word


def test_alone_means_alone(tmp_path, own):
    wrote(tmp_path / "fedavg", "fedavg")

    found = select([own], alone=True)

    assert [one.label for one in found.series] == ["fedalt"]
    assert found.words() == []


def test_what_is_given_is_not_looked_for(tmp_path, own):
    other = wrote(tmp_path / "mine", "fedavg", options={"lr": 0.5})
    wrote(tmp_path / "fedavg", "fedavg")

    assert added(own, other) == {}
    assert labels(own, other) == ["fedavg", "fedalt"]


def test_labels_of_a_study_are_ordered_too(tmp_path):
    for label in ("fedalt", "finetune", "fedavg", "local"):
        wrote(tmp_path / "study" / label, label)
    study = write_study(tmp_path / "study", [(label, 0, label) for label in ("fedalt", "finetune", "fedavg", "local")])

    assert labels(study) == ["local", "fedavg", "finetune", "fedalt"]


OTHER = {
    "data": {"fingerprint": {"data": "x", "split": "s"}},
    "deal": {"fingerprint": {"data": "d", "split": "x"}},
    "rounds": {"rounds": 6},
    "cohorts": {"cohort": 3},
    "metric": {"metric": "loss"},
    "unfinished": {"status": "interrupted"},
    "diverged": {"status": "diverged"},
    "network": {"model": {"name": "mlp", "hidden": [32]}},
    "seed": {"seed": 1},
    "stage (a)": {"stages": [{"stage": "pretrain", "rounds": 5, "folder": "gone"}]},
    "no configuration": {"configured": False},
}


@pytest.mark.parametrize("changes", OTHER.values(), ids=OTHER)
def test_a_run_under_other_conditions_is_never_taken(tmp_path, own, changes):
    wrote(tmp_path / "fedavg", "fedavg", **changes)

    found = select([own])

    assert found.beside.added == ()
    assert found.beside.missing == ("local", "fedavg")
    assert found.reference.label == "fedalt"


def test_adapters_of_a_method_about_a_part_make_no_other_network(tmp_path):
    own = wrote(tmp_path / "own", "fedalt", model=NETWORK | {"adapters": {"kind": "lora"}})
    wrote(tmp_path / "fedavg", "fedavg")

    assert added(own) == {"fedavg": ["fedavg"]}


def test_rounds_of_stage_a_count(tmp_path):
    stages = [{"stage": "pretrain", "rounds": 3, "folder": "gone"}, {"stage": "personal", "rounds": 5, "folder": "own"}]
    own = wrote(tmp_path / "own", "fedalt", stages=stages)
    wrote(tmp_path / "short", "fedavg", rounds=5)
    wrote(tmp_path / "long", "fedavg", rounds=8)

    assert added(own) == {"fedavg": ["long"]}


def test_seeds_are_those_of_the_runs_given(tmp_path):
    own = [wrote(tmp_path / f"own-{seed}", "fedalt", seed) for seed in (1, 2)]
    for seed in (0, 1, 2, 3):
        wrote(tmp_path / f"fedavg-{seed}", "fedavg", seed)

    assert added(*own) == {"fedavg": ["fedavg-1", "fedavg-2"]}


def test_of_several_configurations_that_with_the_same_local_work_is_taken(tmp_path):
    own = wrote(tmp_path / "own", "fedalt", options={"lr": 0.1, "personal_lr": 0.7})
    wrote(tmp_path / "fast", "fedavg", options={"lr": 0.5})
    wrote(tmp_path / "same", "fedavg", options={"lr": 0.1})

    assert added(own) == {"fedavg": ["same"]}


def test_where_several_fit_as_well_none_is_taken_and_all_are_named(tmp_path, own):
    wrote(tmp_path / "one", "fedavg", options={"server": 1.0})
    wrote(tmp_path / "two", "fedavg", options={"server": 0.5})

    found = select([own])

    assert found.beside.added == ()
    text = " ".join(found.words())
    assert "fedavg: 2 configurations lie beside that fit as well" in text
    assert "one" in text
    assert "two" in text
    assert "No local with" in text


def test_the_same_run_twice_is_one(tmp_path, own):
    for name in ("one", "two"):
        wrote(tmp_path / name, "fedavg")

    assert added(own) == {"fedavg": ["one"]}


def test_runs_from_python_are_taken_beside_their_like(tmp_path):
    own = wrote(tmp_path / "own", "fedalt", configured=False)
    wrote(tmp_path / "fedavg", "fedavg", configured=False)

    assert added(own) == {"fedavg": ["fedavg"]}
    assert "run plures.methods.local() likewise" in " ".join(select([own]).words())


def test_two_runs_from_python_with_the_same_seed_are_not_known_to_be_the_same(tmp_path):
    own = wrote(tmp_path / "own", "fedalt", configured=False)
    for name in ("one", "two"):
        wrote(tmp_path / name, "fedavg", configured=False)

    assert added(own) == {}


def test_runs_of_the_same_study_are_found_from_one_of_them(tmp_path):
    for label in ("fedalt", "fedavg", "local"):
        wrote(tmp_path / "study" / label / "seed-0", label)
    write_study(tmp_path / "study", [(label, 0, f"{label}/seed-0") for label in ("fedalt", "fedavg", "local")])

    assert list(added(tmp_path / "study" / "fedalt" / "seed-0")) == ["local", "fedavg"]


def test_runs_of_a_study_that_lies_beside_are_found(tmp_path, own):
    wrote(tmp_path / "study" / "fedavg" / "seed-0", "fedavg")
    write_study(tmp_path / "study", [("fedavg", 0, "fedavg/seed-0")])

    assert added(own) == {"fedavg": ["seed-0"]}


def test_runs_elsewhere_are_not_looked_for(tmp_path):
    own = wrote(tmp_path / "here" / "own", "fedalt")
    wrote(tmp_path / "there" / "fedavg", "fedavg")
    wrote(tmp_path / "here" / "deeper" / "fedavg", "fedavg")

    assert added(own) == {}


def test_what_is_damaged_beside_is_passed_by(tmp_path, own):
    for name, file in (("result", "result.json"), ("configuration", "experiment.toml")):
        (wrote(tmp_path / name, "fedavg") / file).write_text("{ = ", encoding="utf-8")
    (write_study(tmp_path / "study", []) / "study.json").write_text('{"runs": [3]}', encoding="utf-8")
    odd = wrote(tmp_path / "odd", "fedavg")
    result = json.loads((odd / "result.json").read_text(encoding="utf-8"))
    (odd / "result.json").write_text(json.dumps(result | {"rounds": "many"}), encoding="utf-8")

    assert added(own) == {}


def test_runs_that_differ_among_themselves_are_told_apart_and_get_nothing_added(tmp_path, own):
    other = wrote(tmp_path / "other", "ditto", rounds=10)
    wrote(tmp_path / "fedavg", "fedavg")

    found = select([own, other])

    assert found.beside.added == ()
    first, second = found.words()
    assert first == "These labels were not run alike; they differ in rounds (fedalt 5, ditto 10)."
    assert "local and fedavg: not looked for, as the runs given differ in rounds" in second


def test_unfinished_runs_get_nothing_added(tmp_path):
    own = wrote(tmp_path / "own", "fedalt", status="interrupted")
    wrote(tmp_path / "fedavg", "fedavg")

    assert added(own) == {}
    assert select([own]).words() == []


def test_the_command_that_makes_what_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 4):
        wrote(tmp_path / "runs" / f"fed alt-{seed}", "fedalt", seed)

    words = select([Path("runs/fed alt-0"), Path("runs/fed alt-4")]).words()

    assert words[0].startswith("No local and no fedavg with the same data, rounds, cohorts, network and seeds")
    assert words[1:] == [
        "  plures run 'runs/fed alt-0/experiment.toml' \\",
        "      --seeds 0,4 \\",
        "      --out 'runs/fed alt-0-beside'",
    ]
    (tmp_path / "runs" / "fed alt-0-beside").mkdir()
    assert select([Path("runs/fed alt-0")]).beside.command[1:] == ("--seeds 1", "--out 'runs/fed alt-0-beside-2'")


def test_a_study_says_why_it_has_no_fedavg(tmp_path):
    wrote(tmp_path / "study" / "fedalt", "fedalt")
    study = write_study(tmp_path / "study", [("fedalt", 0, "fedalt")])
    told = json.loads((study / "study.json").read_text(encoding="utf-8"))
    (study / "study.json").write_text(json.dumps(told | {"left_out": {"fedavg": "no room."}}), encoding="utf-8")

    found = select([study])

    assert found.words()[0] == "fedavg was left out: no room."
    assert found.beside.missing == ("local",)


def test_what_is_added_may_be_the_reference(tmp_path, own):
    wrote(tmp_path / "local", "local")

    assert select([own], "local").reference.label == "local"
    assert select([own]).reference.label == "fedalt"
    with pytest.raises(InvalidConfig, match="no such label"):
        select([own], "fedavg")
    with pytest.raises(InvalidConfig, match="no such label"):
        select([own], "local", alone=True)


def test_a_reference_folder_counts_among_those_given(tmp_path, own):
    other = wrote(tmp_path / "elsewhere" / "other", "fedavg", options={"lr": 0.5})
    wrote(tmp_path / "fedavg", "fedavg")

    found = select([own], str(other))

    assert found.reference.first.folder == other
    assert [one.label for one in found.series] == ["fedavg", "fedalt"]


def test_an_added_label_is_never_one_that_is_taken(tmp_path):
    wrote(tmp_path / "study" / "a", "fedalt")
    study = write_study(tmp_path / "study", [("fedavg", 0, "a")])
    wrote(tmp_path / "fedavg", "fedavg")

    first, second = labels(study)
    assert first.startswith("fedavg:")
    assert second == "fedavg"
