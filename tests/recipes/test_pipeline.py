"""Three stages as one run: each from where the one before ended, the first one kept for others."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from plures import load_experiment, make_experiment, run_experiment
from plures.core.errors import InvalidConfig
from plures.evaluate.protocols import Evaluator
from plures.report import records
from tests.recipes.helpers import same_bits, table

PRETRAIN = {"method": "fedavg", "rounds": 3, "lr": 0.2}
TUNE = {"budget": {"epochs": 2, "batch": 4}, "lr": 0.3}


def piped(tmp_path, method="fedalt", pretrain=PRETRAIN, tune=TUNE, **changes):
    stages = {"pretrain": pretrain, "tune": tune}
    pipeline = {name: value for name, value in stages.items() if value is not None}
    return make_experiment(table(method, pipeline={**pipeline, "cache": str(tmp_path / "cache")}, **changes))


def kept(tmp_path):
    return sorted((tmp_path / "cache").iterdir()) if (tmp_path / "cache").exists() else []


def test_the_second_stage_starts_from_the_model_of_the_first(tmp_path):
    """Without a step of its own it ends there: body shared, and each head the global one."""
    still = {"lr": 0.0, "personal_lr": 0.0}
    result = run_experiment(piped(tmp_path, tune=None, method_options=still), out=tmp_path / "run")
    first = run_experiment(make_experiment(table("fedavg", rounds=3, method_options={"lr": 0.2})))
    body = {name: value for name, value in first.server.shared.items() if name in result.server.shared}
    assert same_bits(result.server.shared, body)
    head = {name: value for name, value in first.server.shared.items() if name not in body}
    assert head
    assert all(same_bits(result.store.get(client), head) for client in result.history[0]["cohort"])


def test_the_first_stage_is_trained_once_and_reused_by_others(tmp_path):
    one = run_experiment(piped(tmp_path), out=tmp_path / "one")
    (folder,) = kept(tmp_path)
    before = (folder / records.RESULT).stat().st_mtime_ns
    other = run_experiment(piped(tmp_path, "fedsim"), out=tmp_path / "other")
    assert kept(tmp_path) == [folder]
    assert (folder / records.RESULT).stat().st_mtime_ns == before
    assert (one.stages[0].reused, other.stages[0].reused) == (False, True)
    assert one.stages[0].value == other.stages[0].value


@pytest.mark.parametrize(
    "changes", [{"pretrain": {**PRETRAIN, "lr": 0.1}}, {"seed": 5}, {"data": {"seed": 3}}, {"model": {"hidden": [6]}}]
)
def test_another_configuration_or_other_data_have_a_first_stage_of_their_own(tmp_path, changes):
    run_experiment(piped(tmp_path), out=tmp_path / "one")
    run_experiment(piped(tmp_path, **changes), out=tmp_path / "two")
    assert len(kept(tmp_path)) == 2


def test_a_first_stage_that_did_not_finish_is_trained_anew(tmp_path):
    run_experiment(piped(tmp_path), out=tmp_path / "one")
    (folder,) = kept(tmp_path)
    result = json.loads((folder / records.RESULT).read_text())
    (folder / records.RESULT).write_text(json.dumps(result | {"status": "interrupted"}))
    again = run_experiment(piped(tmp_path), out=tmp_path / "two")
    assert not again.stages[0].reused
    assert records.read_result(folder)["status"] == "finished"


def test_a_reused_first_stage_and_no_folder_at_all_give_the_same_result(tmp_path):
    runs = [run_experiment(piped(tmp_path), out=tmp_path / name) for name in ("one", "two")]
    runs.append(run_experiment(piped(tmp_path)))
    assert len({run.fingerprint["final_state"] for run in runs}) == 1
    assert runs[0].metrics == runs[1].metrics == runs[2].metrics


def test_tuning_moves_the_personal_part_alone_and_is_recorded_with_its_gain(tmp_path):
    result = run_experiment(piped(tmp_path), out=tmp_path / "run")
    found = records.read_result(tmp_path / "run")
    assert [stage["stage"] for stage in found["stages"]] == ["pretrain", "personal", "tune"]
    values = [found["metrics"]["personal/test/accuracy"], found["metrics"]["finetuned/test/accuracy"]]
    assert [stage["value"] for stage in found["stages"][1:]] == [value["weighted"] for value in values]
    for before, stage in zip(found["stages"], found["stages"][1:], strict=False):
        assert stage["gain"] == stage["value"] - before["value"]
    assert (result.headline, found["headline"]) == ("finetuned", "finetuned")
    tuned = load_file(tmp_path / "run" / records.TUNED)
    names = {name.split("/", 1)[1] for name in tuned}
    assert names == {"head.weight", "head.bias"}
    rows = [row for row in records.read_clients(tmp_path / "run") if row["model"] == "finetuned"]
    assert {row["split"] for row in rows} == {"validation", "test"}
    assert len(rows) == 2 * result.federation.num_clients


def test_what_is_kept_of_the_tuning_is_what_was_scored(tmp_path):
    result = run_experiment(piped(tmp_path), out=tmp_path / "run")
    tuned = load_file(tmp_path / "run" / records.TUNED)
    evaluator = Evaluator(result.program, result.federation, result.store)
    for score in result.scores("finetuned"):
        own = {name.split("/", 1)[1]: v for name, v in tuned.items() if name.startswith(f"{score.client}/")}
        assert evaluator._score(score.client, result.server.shared | own, "test") == score


def test_without_rounds_of_its_own_it_is_finetuning_of_the_first_stage(tmp_path):
    """Ditto's variant ft: all of the model moves, pulled to the shared one."""
    tune = {**TUNE, "part": "all", "pull": 0.4}
    result = run_experiment(piped(tmp_path, "fedavg", tune=tune, rounds=0))
    options = {"lr": 0.2, "personal_lr": 0.3, "lam": 0.4, "variant": "ft", "adapt": TUNE["budget"]}
    # Three rounds of the same training; the tuning then draws the batches of round 3, not of round 0.
    direct = run_experiment(make_experiment(table("ditto", rounds=3, method_options=options)))
    assert [stage.stage for stage in result.stages] == ["pretrain", "tune"]
    assert same_bits(result.server.shared, direct.server.shared)
    assert result.metrics["global/test/accuracy"] == direct.metrics["global/test/accuracy"]
    full = {**tune, "budget": {"steps": 3, "batch": "full"}}
    whole = run_experiment(piped(tmp_path, "fedavg", tune=full, rounds=0))
    options["adapt"] = full["budget"]
    again = run_experiment(make_experiment(table("ditto", rounds=3, method_options=options)))
    assert whole.metrics["finetuned/test/loss"].mean == pytest.approx(
        again.metrics["finetuned/test/loss"].mean, rel=1e-5
    )


def test_a_pull_holds_the_tuned_models_near_the_shared_one(tmp_path):
    def distance(pull):
        tune = {"part": "all", "budget": {"steps": 20, "batch": "full"}, "lr": 0.1, "pull": pull}
        out = tmp_path / f"pull-{pull}"
        result = run_experiment(piped(tmp_path, "fedavg", tune=tune, rounds=0), out=out)
        tuned = load_file(out / records.TUNED)
        return sum(float((v - result.server.shared[n.split("/", 1)[1]]).norm()) for n, v in tuned.items())

    assert distance(0.0) > distance(0.5) > distance(2.0) > 0


@pytest.mark.parametrize(("method", "part"), [("ditto", "personal"), ("pfedme", "all"), ("fedalt", "personal")])
def test_the_pull_holds_twins_near_the_shared_model_and_personal_layers_near_their_start(tmp_path, method, part):
    def distance(pull):
        tune = {"part": part, "budget": {"steps": 30, "batch": "full"}, "lr": 0.1, "pull": pull}
        out = tmp_path / f"pull-{pull}"
        result = run_experiment(piped(tmp_path, method, tune=tune), out=out)
        anchors = load_file(kept(tmp_path)[0] / records.SHARED) | result.server.shared  # heads start as those of (a)
        tuned = load_file(out / records.TUNED)
        own = {name: value for name, value in tuned.items() if "twin." in name or method == "fedalt"}
        assert own
        return sum(float((v - anchors[n.split("/", 1)[1].removeprefix("twin.")]).norm()) for n, v in own.items())

    assert distance(0.0) > distance(0.5) > distance(2.0) > 0


def test_of_stateless_clients_the_gain_is_that_of_the_tuning(tmp_path):
    result = run_experiment(piped(tmp_path, method_options={"stateful": False}))
    assert [stage.metric.split("/")[0] for stage in result.stages] == ["global", "personal", "finetuned"]
    assert result.stages[2].gain == result.stages[2].value - result.stages[1].value


def test_what_the_round_was_selected_by_is_told_as_it_was(tmp_path):
    found = run_experiment(piped(tmp_path), out=tmp_path / "run").as_json()
    assert found["selected"]["by"] == "personal/validation/accuracy, weighted"


def test_heads_of_different_sizes_start_fresh_where_the_first_stage_has_another(tmp_path):
    data = {"label_space": "local", "partition": "dirichlet", "alpha": 0.5}
    result = run_experiment(piped(tmp_path, data=data))
    assert [stage.stage for stage in result.stages] == ["pretrain", "personal", "tune"]


def test_tuning_may_be_the_methods_own(tmp_path):
    result = run_experiment(piped(tmp_path, "ditto", tune="method"))
    assert result.stages[-1].metric == "finetuned/test/accuracy"


def test_stateless_clients_are_tuned_from_the_common_start(tmp_path):
    options = {"stateful": False}
    result = run_experiment(piped(tmp_path, method_options=options), out=tmp_path / "run")
    assert list(result.store.clients()) == []
    assert load_file(tmp_path / "run" / records.TUNED)


def test_adapters_are_added_after_the_first_stage_from_one_common_draw(tmp_path):
    model = {"adapters": {"kind": "lora", "on": "body.*", "rank": 2}}
    options = {"personal": "adapters", "lr": 0.0, "personal_lr": 0.0}
    result = run_experiment(piped(tmp_path, tune=None, model=model, method_options=options), out=tmp_path / "run")
    first = load_file(kept(tmp_path)[0] / records.SHARED)
    assert same_bits(result.server.shared, first)
    states = [result.store.get(client) for client in result.store.clients()]
    assert len(states) > 1
    assert all(same_bits(state, states[0]) for state in states)
    assert all("adapter" in name for name in states[0])


def test_the_resolved_configuration_runs_to_the_same_result(tmp_path):
    first = run_experiment(piped(tmp_path), out=tmp_path / "run")
    again = run_experiment(load_experiment(tmp_path / "run" / records.EXPERIMENT))
    assert again.fingerprint == first.fingerprint
    assert again.metrics == first.metrics


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pretrain": {"method": "fedper"}}, "needs a method that shares its whole model, not fedper"),
        ({"pretrain": {"method": "fedagv"}}, "Did you mean 'fedavg'"),
        ({"pretrain": {"method": "fedavg", "lrr": 1}}, "fedavg has no option 'lrr'"),
        ({"tune": {"epochs": 3}}, "Unknown key 'pipeline.tune.TuneTable.epochs'"),
        ({"tune": {"part": "head"}}, "pipeline.tune"),
        ({"method": "fedavg"}, "fedavg has no personal part to tune"),
        ({"pretrain": None, "rounds": 0}, "rounds = 0 leaves nothing to train"),
    ],
)
def test_what_cannot_be_is_one_error_and_leaves_nothing(tmp_path, changes, says):
    with pytest.raises(InvalidConfig, match=r"pipeline|fedavg|rounds") as found:
        run_experiment(piped(tmp_path, **changes), out=tmp_path / "run")
    assert says.split("TuneTable.")[-1] in str(found.value)
    assert not (tmp_path / "run").exists()


def test_no_rounds_without_a_pipeline_are_an_error():
    with pytest.raises(InvalidConfig, match="rounds = 0: a run has at least one round"):
        make_experiment(table(rounds=0))


def test_a_tensor_of_the_first_stage_is_never_written_into(tmp_path):
    run_experiment(piped(tmp_path), out=tmp_path / "one")
    (folder,) = kept(tmp_path)
    before = load_file(folder / records.SHARED)
    run_experiment(piped(tmp_path, "fedsim", rounds=4), out=tmp_path / "two")
    after = load_file(folder / records.SHARED)
    assert all(torch.equal(before[name], after[name]) for name in before)
