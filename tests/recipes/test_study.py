"""Several seeds, and methods beside an experiment: which runs a study has, and what they have in common."""

from __future__ import annotations

import json

import pytest

import plures
from plures import load_experiment, make_experiment, run_experiment
from plures.core.errors import Diverged, InvalidInput, RunFolderError
from plures.recipes.folder_reading import read_result
from plures.recipes.study import beside_of, run_members
from plures.report import records
from tests.recipes.helpers import ran, table


def study(tmp_path, seeds, beside=(), **changes):
    return plures.run_study(make_experiment(table(**changes)), out=tmp_path / "study", seeds=seeds, beside=beside)


def test_every_seed_is_a_run_like_one_of_its_own(tmp_path):
    found = study(tmp_path, 2, seed=4)
    assert [(member.label, member.seed) for member in found.members] == [("fedavg", 4), ("fedavg", 5)]
    for member in found.members:
        result = records.read_result(found.folder / member.folder)
        assert result["fingerprint"] == ran("fedavg", seed=member.seed).fingerprint
    states = {
        records.read_result(found.folder / member.folder)["fingerprint"]["final_state"] for member in found.members
    }
    assert len(states) == 2


def test_methods_beside_have_the_same_data_cohorts_and_local_work(tmp_path):
    options = {"lr": 0.03, "budget": {"epochs": 2, "batch": 4}, "personal_lr": 0.01}
    found = study(tmp_path, [7], ["local", "fedavg"], method="fedalt", cohort=2, method_options=options)
    assert [member.label for member in found.members] == ["fedalt", "local", "fedavg"]
    read = {member.label: found.folder / member.folder for member in found.members}
    cohorts = {label: [line["cohort"] for line in records.read_rounds(folder)] for label, folder in read.items()}
    assert cohorts["fedalt"] == cohorts["local"] == cohorts["fedavg"]
    data = {records.read_result(folder)["fingerprint"]["split"] for folder in read.values()}
    assert len(data) == 1
    for label in ("local", "fedavg"):
        written = load_experiment(read[label] / records.EXPERIMENT)
        assert (written.method_options["lr"], written.method_options["budget"]) == (0.03, options["budget"])
        assert "personal_lr" not in written.method_options


def test_study_json_names_the_runs_that_have_finished(tmp_path):
    found = study(tmp_path, [1, 0], ["local"])
    told = json.loads((found.folder / records.STUDY).read_text(encoding="utf-8"))["runs"]
    assert told == [member._asdict() for member in found.members]
    assert [run["folder"] for run in told] == ["fedavg/seed-1", "local/seed-1", "fedavg/seed-0", "local/seed-0"]


def test_what_is_interrupted_leaves_a_study_of_the_runs_before(tmp_path):
    class Impatient:
        def __init__(self) -> None:
            self.started_runs = 0

        def started(self, *told) -> None:
            self.started_runs += 1

        def round_done(self, *told) -> None:
            if self.started_runs == 3:
                raise KeyboardInterrupt

        def ended(self) -> None: ...

    experiment = make_experiment(table())
    with pytest.raises(KeyboardInterrupt):
        plures.run_study(experiment, out=tmp_path / "study", seeds=2, beside=["local"], watcher=Impatient())
    told = json.loads((tmp_path / "study" / records.STUDY).read_text(encoding="utf-8"))
    assert [run["folder"] for run in told["runs"]] == ["fedavg/seed-0", "local/seed-0"]
    assert [(run["label"], run["seed"]) for run in told["planned"][2:]] == [("fedavg", 1), ("local", 1)]


def test_what_is_planned_is_told_before_the_first_run(tmp_path):
    def run(experiment, **told):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_members(make_experiment(table()), run, out=tmp_path / "study", seeds=[3])
    told = json.loads((tmp_path / "study" / records.STUDY).read_text(encoding="utf-8"))
    assert (told["runs"], told["planned"]) == ([], [{"label": "fedavg", "seed": 3, "folder": "fedavg/seed-3"}])
    assert told["asked"] == {"experiment": table(), "seeds": [3], "beside": [], "usual": False}
    with pytest.raises(RunFolderError, match="no run has finished"):
        read_result(tmp_path / "study")


def test_usual_methods_run_beside_unless_they_are_there_already(tmp_path):
    experiment = make_experiment(table("fedavg"))
    found = plures.run_study(experiment, out=tmp_path / "study", seeds=[0], beside=["ditto"], usual=True)
    assert [member.label for member in found.members] == ["fedavg", "ditto", "local", "finetune"]
    assert found.left_out == {}


def test_a_usual_method_that_diverges_does_not_cost_the_study(tmp_path):
    def run(experiment, **told):
        if experiment.method == "fedavg" and experiment.seed == 1:
            raise Diverged("The loss is nan", client="3", round=1, phase="train", remedy="Lower the rate.")
        return run_experiment(experiment, **told)

    experiment = make_experiment(table("fedper"))
    found = run_members(experiment, run, out=tmp_path / "study", seeds=[0, 1], usual=True)
    told = json.loads((tmp_path / "study" / records.STUDY).read_text(encoding="utf-8"))
    assert [run["folder"] for run in told["runs"] if run["label"] == "fedavg"] == ["fedavg/seed-0"]
    assert told["left_out"] == found.left_out
    assert told["planned"] == told["runs"]
    assert found.left_out["fedavg"].startswith("seed 1: The loss is nan (client 3")
    with pytest.raises(Diverged):
        run_members(experiment, run, out=tmp_path / "asked", seeds=[1], beside=["fedavg"], usual=True)


def test_stages_before_the_rounds_count_for_methods_beside():
    pipeline = {"pretrain": {"rounds": 5}, "tune": "method"}
    changes = {"pipeline": pipeline, "model": {"input_dropout": {"on": "head", "rate": 0.3}}, "rounds": 2}
    found = beside_of(make_experiment(table("fedalt", **changes)), "fedavg")
    assert found.rounds == 7
    assert found.pipeline is None
    assert found.model.input_dropout is None


@pytest.mark.parametrize(("method", "expected"), [("fedper", "head"), ("finetune", None), ("fedavg", None)])
def test_methods_about_a_part_are_about_the_same_one(method, expected):
    found = beside_of(make_experiment(table("fedalt", split={"personal": "head"})), method)
    assert found.split.personal == expected


def test_a_guard_and_capacities_are_the_experiments_own_affair():
    found = beside_of(make_experiment(table("fedspa", capacity={"density": 0.3})), "fedavg")
    assert found.capacity is None
    guarded = beside_of(make_experiment(table("ditto", evaluation={"guard": True, "models": ["personal"]})), "fedavg")
    assert guarded.evaluation.guard is False
    assert guarded.evaluation.models is None


@pytest.mark.parametrize(
    ("seeds", "beside", "says"),
    [
        ([], [], "give one or more"),
        ([1, 1], [], "each once"),
        ([0], ["fedavgg"], "Did you mean 'fedavg'"),
        ([0], ["fedalt"], "own method"),
        (0, [], "one or more"),
    ],
)
def test_a_wrong_study_is_one_clear_error_and_leaves_no_folder(seeds, beside, says, tmp_path):
    with pytest.raises(InvalidInput, match=says):
        study(tmp_path, seeds, beside, method="fedalt")
    assert not (tmp_path / "study").exists()


def test_what_is_wrong_with_a_method_beside_is_found_before_the_first_run(tmp_path):
    with pytest.raises(InvalidInput, match="fedbn: Mlp has no normalisation layer"):
        study(tmp_path, [0], ["fedbn"])
    assert not (tmp_path / "study").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "mine").write_text("", encoding="utf-8")
    with pytest.raises(RunFolderError, match="not empty"):
        study(tmp_path, [0])


def test_adapters_stay_with_methods_about_a_part_and_with_no_others():
    changes = {"model": {"adapters": {"kind": "lora", "on": "*"}}, "split": {"personal": "adapters"}}
    experiment = make_experiment(table("fedalt", **changes))
    assert beside_of(experiment, "fedsim").model.adapters == {"kind": "lora", "on": "*"}
    assert beside_of(experiment, "fedavg").model.adapters is None
