"""A guard in a run: which model it falls back on, what is recorded of it, and what is refused before round 1."""

from __future__ import annotations

import pytest
import torch

import plures
from plures import EvaluationPlan, GuardPlan
from plures.core.errors import InvalidInput, PluresError
from plures.data import digits_federation
from plures.local import epochs
from plures.methods import ditto
from plures.models import mlp
from plures.report import records
from tests.recipes.helpers import problem_of, ran, same_bits


def rows_of(folder, model, round):
    rows = records.read_clients(folder)
    return {(r["name"], r["split"]): r["accuracy"] for r in rows if r["model"] == model and r["round"] == round}


def test_each_client_has_the_scores_of_the_model_it_chose(tmp_path):
    result = ran("ditto", tmp_path / "run", rounds=3, evaluation={"every": 1, "guard": True})
    choices = [row for row in records.read_choices(tmp_path / "run") if row["round"] == "3"]
    assert {row["chosen"] for row in choices} <= {"personal", "shared"}
    kinds = {kind: rows_of(tmp_path / "run", kind, "3") for kind in ("guarded", "personal", "global")}
    for row in choices:
        assert (float(row["evidence"]) > 1) == (row["chosen"] == "personal")
        for split in ("validation", "test"):
            chosen = "personal" if row["chosen"] == "personal" else "global"
            assert kinds["guarded"][row["name"], split] == kinds[chosen][row["name"], split]
    assert len(choices) == 4
    told = records.read_result(tmp_path / "run")["guard"]
    assert told == result.guard
    assert told["own_model"] == sum(row["chosen"] == "personal" for row in choices)
    assert [line["guard"]["against"] for line in result.history] == ["global"] * 3


def test_on_digits_a_guard_keeps_what_helps_and_hurts_nobody_more():
    """Two classes a client: nearly all are far better off with their own model, and choose it."""
    clients = digits_federation(num_clients=20, classes_per_client=2)
    method = ditto(lr=0.1, budget=epochs(2, batch=10), personal_budget=epochs(2, batch=10))
    plan = EvaluationPlan(every=10, guard=GuardPlan())
    result = plures.run(method, clients, mlp, rounds=10, cohort=10, evaluation=plan)
    found = result.guard["helped_and_hurt"]["test"]
    assert found["after"]["hurt"] <= found["before"]["hurt"]
    assert found["after"]["helped"] >= 0.8 * found["before"]["helped"] >= 10
    guarded, shared = (result.metrics[f"{kind}/test/accuracy"].weighted for kind in ("guarded", "global"))
    assert guarded > shared + 0.1


def test_a_margin_out_of_reach_leaves_everybody_with_the_shared_model():
    result = ran("ditto", evaluation={"guard": {"margin": 1e6}})
    assert result.guard["own_model"] == 0
    assert result.metrics["guarded/test/accuracy"] == result.metrics["global/test/accuracy"]
    assert result.guard["helped_and_hurt"]["test"]["after"] == {"helped": 0, "hurt": 0, "same": 4}


def test_a_method_without_a_whole_shared_model_falls_back_on_that_of_a_named_run(tmp_path):
    shared = ran("fedavg", tmp_path / "fedavg")
    guard = {"margin": 1e6, "against": str(tmp_path / "fedavg")}
    result = ran("fedper", tmp_path / "fedper", evaluation={"guard": guard})
    assert result.guard["against"] == str(tmp_path / "fedavg")
    assert result.metrics["guarded/test/accuracy"] == shared.metrics["global/test/accuracy"]


@pytest.mark.parametrize("tune", [None, {"budget": {"epochs": 1, "batch": 4}}], ids=["two stages", "three stages"])
def test_in_a_pipeline_it_falls_back_on_stage_a_and_guards_the_models_clients_end_with(tune, tmp_path):
    pipeline = {"pretrain": {"rounds": 2}, "cache": str(tmp_path / "kept")} | ({} if tune is None else {"tune": tune})
    plan = {"guard": {"margin": 1e6}}
    result = ran("fedper", tmp_path / "run", pipeline=pipeline, evaluation=plan)
    assert result.guard["against"] == "stage (a)"
    assert result.metrics["guarded/test/accuracy"].weighted == pytest.approx(result.stages[0].value)
    rows = [(row["round"], row["client"], row["model"], row["split"]) for row in records.read_clients(tmp_path / "run")]
    assert len(rows) == len(set(rows))
    assert {row["chosen"] for row in records.read_choices(tmp_path / "run")} == {"shared"}


@pytest.mark.parametrize(
    ("method", "guard", "says"),
    [
        ("fedavg", True, "judged by its shared model"),
        ("fedper", True, "needs a shared model to fall back on"),
        ("ditto", {"margin": -1.0}, "margin"),
        ("ditto", {"against": "nowhere"}, "nowhere cannot be read"),
        ("ditto", {"agianst": "x"}, "Did you mean 'against'"),
    ],
)
def test_a_guard_with_nothing_to_choose_from_is_refused(method, guard, says):
    assert says in str(problem_of(method, evaluation={"guard": guard}))


def test_a_run_on_other_data_is_no_fallback(tmp_path):
    ran("fedavg", tmp_path / "other", data={"seed": 5})
    with pytest.raises(InvalidInput, match="other data"):
        ran("ditto", evaluation={"guard": {"against": str(tmp_path / "other")}})


def test_a_run_without_a_whole_shared_model_is_no_fallback(tmp_path):
    ran("fedper", tmp_path / "fedper")
    with pytest.raises(PluresError, match="no whole shared model"):
        ran("ditto", evaluation={"guard": {"against": str(tmp_path / "fedper")}})


def twice(output, targets):
    return 2 * torch.nn.functional.cross_entropy(output, targets)


def test_the_shared_model_is_scored_by_the_runs_own_loss(tmp_path):
    """So that two losses never share a list: twice the cross-entropy, for both models."""
    ran("fedavg", tmp_path / "fedavg")
    guard = {"margin": 1e6, "against": str(tmp_path / "fedavg")}
    plain = ran("fedper", evaluation={"guard": guard})
    doubled = ran("fedper", evaluation={"guard": guard}, loss="tests.recipes.test_guard_in_runs:twice")
    expected = 2 * plain.metrics["guarded/test/loss"].weighted
    assert doubled.metrics["guarded/test/loss"].weighted == pytest.approx(expected)


def test_a_guarded_model_is_what_the_client_chose():
    result = ran("ditto", rounds=3, evaluation={"guard": {"margin": 0.0}})
    assert set(result.choices.values()) == {"personal", "shared"}
    for client, chosen in result.choices.items():
        wanted = result.personal_model(client, "personal" if chosen == "personal" else "global")
        for found in (result.personal_model(client), result.personal_model(client, "guarded")):
            assert same_bits(found.state_dict(), wanted.state_dict())


def test_without_a_guard_nobody_has_a_guarded_model():
    with pytest.raises(InvalidInput, match="not asked by a guard"):
        ran("ditto").personal_model(0, "guarded")
