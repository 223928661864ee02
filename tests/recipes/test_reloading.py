"""A run from its folder is the run that was made; what is missing or damaged is named."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import plures
from plures.core.errors import PluresError, RunFolderError
from plures.data import digits_federation
from plures.methods import METHODS, fedalt
from plures.models import mlp
from plures.recipes import reloading
from tests.recipes.helpers import ran, same_bits, table


def assert_same(found, wanted, clients=range(4)):
    """The same records, states, scores (which are written with six digits) and models, bit by bit."""
    assert found.as_json() == json.loads(json.dumps(wanted.as_json()))
    assert same_bits(found.server.shared, wanted.server.shared)
    assert found.server.round == wanted.server.round
    assert list(found.history) == json.loads(json.dumps(wanted.history))
    for client in clients:
        assert same_bits(found.store.get(client) or {}, wanted.store.get(client) or {})
        assert same_bits(found.personal_model(client).state_dict(), wanted.personal_model(client).state_dict())
    for found_score, score in zip(found.scores(), wanted.scores(), strict=True):
        assert dict(found_score.values) == pytest.approx(dict(score.values), rel=1e-5)
        assert (found_score.client, found_score.examples) == (score.client, score.examples)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_of_every_method_is_the_same_again(kept, method):
    run = kept(method)
    assert_same(plures.load_run(run.folder), run)


def test_a_coded_wire_and_capacities_are_those_of_the_run(tmp_path):
    changes = {"wire": {"download": "int8"}, "capacity": {"density": [0.3, 0.5, 0.6, 0.8]}}
    run = ran("fedspa", tmp_path / "run", **changes)
    found = plures.load_run(tmp_path / "run")
    assert_same(found, run)
    assert [found.program.capacity(client) for client in range(4)] == [0.3, 0.5, 0.6, 0.8]


def test_newcomers_have_the_models_that_they_were_scored_with(tmp_path):
    run = ran("fedspa", tmp_path / "run", data={"newcomers": 1})
    found = plures.load_run(tmp_path / "run")
    assert_same(found, run, clients=range(3))
    assert same_bits(found.personal_model(3).state_dict(), run.personal_model(3).state_dict())
    inputs, targets = found.newcomers.client(0).test
    accuracy = float((found.personal_model(3)(inputs).argmax(dim=1) == targets).double().mean())
    (score,) = found.scores(newcomers=True)
    assert accuracy == pytest.approx(score.accuracy, abs=1e-6)
    with pytest.raises(PluresError, match="is a newcomer"):
        found.personal_model(3, "personal")


PIPELINE = {
    "pipeline": {"pretrain": {"method": "fedavg", "rounds": 2}, "tune": {"budget": {"epochs": 2, "batch": 4}}},
    "evaluation": {"guard": {"margin": 0.0}},
}


@pytest.mark.parametrize("method", ["fedalt", "fedbabu"])
def test_all_stages_of_a_pipeline_come_back(tmp_path, method):
    pipeline = PIPELINE["pipeline"] | {"cache": str(tmp_path / "first")}
    tune = "method" if method == "fedbabu" else pipeline["tune"]
    run = ran(method, tmp_path / "run", **PIPELINE | {"pipeline": pipeline | {"tune": tune}})
    found = plures.load_run(tmp_path / "run")
    assert_same(found, run)
    assert found.tuned.keys() == run.tuned.keys() == set(range(4))
    assert found.choices == run.choices
    assert set(found.choices.values()) <= {"finetuned", "shared"}
    assert found.stages == run.stages
    for client in range(4):
        tuned = found.personal_model(client, "finetuned").state_dict()
        assert same_bits(tuned, run.personal_model(client, "finetuned").state_dict())
        assert all(torch.equal(tuned[name], value) for name, value in found.tuned[client].items() if name in tuned)


def test_stage_a_that_is_gone_is_named(tmp_path):
    pipeline = PIPELINE["pipeline"] | {"cache": str(tmp_path / "first")}
    ran("fedalt", tmp_path / "run", pipeline=pipeline)
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(RunFolderError, match=r"stage \(a\), but .*first.*shared.safetensors is missing"):
        plures.load_run(tmp_path / "run")


def test_what_a_guard_falls_back_on_comes_from_the_other_run(tmp_path):
    ran("fedavg", tmp_path / "other", rounds=3)
    run = ran("fedalt", tmp_path / "run", evaluation={"guard": {"against": str(tmp_path / "other"), "margin": 1e6}})
    found = plures.load_run(tmp_path / "run")
    assert set(found.choices.values()) == {"shared"}
    assert_same(found, run)
    shared = plures.load_run(tmp_path / "other").server.shared
    assert same_bits(dict(found.personal_model(0).state_dict()), {name: shared[name] for name in sorted(shared)})


def test_an_interrupted_run_has_its_last_whole_round(tmp_path):
    class Stop:
        def started(self, *args): ...

        def round_done(self, report, metrics):
            if report.round == 2:
                raise KeyboardInterrupt

        def ended(self): ...

    with pytest.raises(KeyboardInterrupt):
        plures.run_experiment(plures.make_experiment(table("ditto", rounds=9)), out=tmp_path / "run", watcher=Stop())
    found = plures.load_run(tmp_path / "run")
    assert (found.status, found.server.round, found.metrics) == ("interrupted", 2, {})
    straight = ran("ditto", rounds=2)
    assert same_bits(found.personal_model(1).state_dict(), straight.personal_model(1).state_dict())


# Runs from code

FEDERATION = digits_federation(num_clients=5, classes_per_client=2)


def test_a_run_from_code_is_loaded_with_its_parts_from_code(tmp_path):
    run = plures.run(fedalt(), FEDERATION, mlp, rounds=1, cohort=2, seed=3, out=tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"no experiment.toml: the run was made from code.*model=..., federation="):
        plures.load_run(tmp_path / "run")
    found = plures.load_run(tmp_path / "run", model=mlp, federation=FEDERATION, method="fedalt")
    assert_same(found, run, clients=range(5))


def test_parts_that_are_not_those_of_the_run_are_refused(tmp_path):
    plures.run("fedalt", FEDERATION, mlp, rounds=1, cohort=2, out=tmp_path / "run")
    other = digits_federation(num_clients=5, classes_per_client=2, seed=1)
    with pytest.raises(RunFolderError, match="The data are not those"):
        plures.load_run(tmp_path / "run", model=mlp, federation=other, method="fedalt")
    with pytest.raises(RunFolderError, match=r"does not fit this network and method: they differ in 'body.1.bias'"):
        plures.load_run(tmp_path / "run", model=lambda: mlp(hidden=(7,)), federation=FEDERATION, method="fedalt")
    with pytest.raises(RunFolderError, match=r"does not fit this network and method: they differ in 'head.bias'"):
        plures.load_run(tmp_path / "run", model=mlp, federation=FEDERATION, method="fedavg")


# Folders that are none, or are damaged


@pytest.mark.parametrize(
    "file", ["result.json", "rounds.jsonl", "shared.safetensors", "personal.safetensors", "clients.csv.gz"]
)
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_missing_or_damaged_file_is_named(kept, tmp_path, file, damage):
    shutil.copytree(kept("fedalt").folder, tmp_path / "run")
    path = tmp_path / "run" / file
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    if (file, damage) == ("rounds.jsonl", "cut"):  # a line that a crash has cut off is left out
        assert len(plures.load_run(tmp_path / "run").history) < 2
        return
    with pytest.raises(RunFolderError, match=file.replace(".", r"\.")):
        plures.load_run(tmp_path / "run")


def test_models_of_another_run_are_noticed(kept, tmp_path):
    shutil.copytree(kept("fedalt").folder, tmp_path / "run")
    shutil.copy(kept("fedsim").folder / "personal.safetensors", tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"are not those that result.json tells of"):
        plures.load_run(tmp_path / "run")


def test_what_is_no_run_is_told_apart(tmp_path):
    with pytest.raises(RunFolderError, match="There is no folder"):
        plures.load_run(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"has no result.json: it is no run"):
        plures.load_run(tmp_path)
    (tmp_path / "rounds.jsonl").write_text("")
    with pytest.raises(RunFolderError, match=r"has no result.json: the run goes on, or was ended before"):
        plures.load_run(tmp_path)
    (tmp_path / "study.json").write_text('{"runs": [{"label": "a", "seed": 0, "folder": "a/seed-0"}]}')
    with pytest.raises(RunFolderError, match=r"is a study of 1 runs. Give one of them: .*a/seed-0"):
        plures.load_run(tmp_path)


def test_a_result_of_another_version_is_told(tmp_path):
    (tmp_path / "result.json").write_text('{"method": "fedavg"}')
    with pytest.raises(RunFolderError, match="has no 'seed', as runs of this version write it"):
        plures.load_run(tmp_path)


def test_the_fields_of_a_result_are_no_facts(kept):
    run = kept("fedavg")
    assert plures.load_run(run.folder).facts == json.loads(json.dumps(run.facts))
    told = run.as_json().keys() - run.facts.keys()
    assert told <= set(reloading.NOT_FACTS)
