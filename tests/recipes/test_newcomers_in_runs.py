"""Newcomers in a run: evaluated apart at its end, numbered after the participants, and no part of training."""

from __future__ import annotations

import json
import math

import pytest
import torch

import plures
from plures import EvaluationPlan
from plures.core.adapting import Newcomer
from plures.core.errors import InvalidInput
from plures.data import digits_federation
from plures.data.joining import Everyone
from plures.evaluate import Evaluator
from plures.local import epochs
from plures.methods import METHODS, fedalt, fedavg, fedspa
from plures.models import mlp, with_own_heads
from plures.report import records
from tests.recipes.helpers import NEED_NORMS, built, ran

NEWCOMERS = {"data": {"newcomers": 2}}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_tells_how_newcomers_fare_and_how_far_they_are_from_participants(method, tmp_path):
    norms = {"batch_norm": method in NEED_NORMS}
    result = ran(method, tmp_path / "run", data={"clients": 6, "newcomers": 2}, model=norms)
    gap = result.gap
    assert gap is not None
    assert gap.clients == 2
    own, theirs = result.metrics[gap.participants], result.metrics[gap.newcomers]
    assert gap.weighted == pytest.approx(own.weighted - theirs.weighted)
    assert gap.mean == pytest.approx(own.mean - theirs.mean)
    kind = "global" if result.headline == "global" else "finetuned"
    assert (gap.participants, gap.newcomers) == (f"{kind}/test/accuracy", f"newcomers/{kind}/test/accuracy")
    assert "newcomers/finetuned/test/accuracy" in result.metrics
    told = records.read_result(tmp_path / "run")["newcomers"]
    assert told["weighted"] == pytest.approx(gap.weighted)
    rows = [row for row in records.read_clients(tmp_path / "run") if row["model"].startswith("newcomers/")]
    assert {row["client"] for row in rows} == {"4", "5"}
    assert {row["round"] for row in rows} == {"2"}


def test_newcomers_change_nothing_of_the_run():
    """The same participants as a federation of their own give the same bits and the same metrics."""
    found = built("fedalt", **NEWCOMERS)
    options = {"rounds": 2, "evaluation": EvaluationPlan(every=1)}
    alone = plures.run(found.method, found.federation, found.networks, **options)
    both = plures.run(found.method, found.federation, found.networks, newcomers=found.newcomers, **options)
    assert alone.fingerprint == both.fingerprint
    assert alone.gap is None
    added = ("newcomers/", "finetuned/")  # participants are scored after fine-tuning too, to be compared with
    assert {name: value for name, value in both.metrics.items() if not name.startswith(added)} == alone.metrics
    assert alone.history[0]["metrics"] == both.history[0]["metrics"]
    assert not [name for name in both.history[0]["metrics"] if "newcomers" in name]


def test_a_newcomers_score_is_that_of_the_model_its_method_welcomes_it_with():
    found = built("fedalt", **NEWCOMERS)
    result = plures.run(found.method, found.federation, found.networks, rounds=2, newcomers=found.newcomers)
    clients = Everyone(participants=found.federation, newcomers=found.newcomers)
    for score in result.scores(newcomers=True):
        newcomer = Newcomer(program=result.program, population=clients, server=result.server, client=score.client)
        params, data = newcomer.welcomed(), found.newcomers.client(score.client - 2).test
        output = result.program.binding(0).task.output(params, data.inputs)
        assert score.accuracy == float((output.argmax(dim=1) == data.targets).double().mean())
    assert len(result.scores(newcomers=True)) == 2


def test_digits_newcomers_get_a_model_that_is_far_better_than_the_shared_one():
    """Two classes each, of which guessing gets a half; the shared model still takes them for some of the others."""
    participants, newcomers = digits_federation(num_clients=20, classes_per_client=2).hold_out(5, seed=0)
    method = fedavg(lr=0.1, budget=epochs(2, batch=10))
    result = plures.run(method, participants, mlp, rounds=8, cohort=8, newcomers=newcomers)
    shared, tuned = (result.metrics[f"newcomers/{kind}/test/accuracy"].mean for kind in ("global", "finetuned"))
    assert tuned > 0.75
    assert tuned > shared + 0.2


def test_newcomers_have_heads_of_their_own_number_of_classes():
    """In local label spaces heads differ in size, also beyond the participants."""
    federation = plures.data.partition(
        (torch.randn(120, 4), torch.arange(120) % 5), plures.data.dirichlet(8, alpha=0.3), seed=1, label_space="local"
    )
    participants, newcomers = federation.hold_out(3, seed=0)
    clients = Everyone(participants=participants, newcomers=newcomers)
    networks = with_own_heads(lambda classes: mlp(shape=(4,), classes=classes), clients.num_classes)
    result = plures.run(fedalt(), participants, networks, rounds=1, newcomers=newcomers)
    sizes = {result.program.binding(number).values["head.weight"].shape[0] for number in clients.newcomer_numbers}
    assert sizes == {newcomers.num_classes(number) for number in range(3)}
    assert not math.isnan(result.metrics["newcomers/finetuned/test/loss"].weighted)


def test_capacities_reach_newcomers_too():
    found = built("fedspa", data={"clients": 6, "newcomers": 2})
    capacity = {"density": [0.5, 0.5, 0.5, 0.5, 0.9, 0.2]}
    result = plures.run(
        fedspa(), found.federation, found.networks, rounds=1, newcomers=found.newcomers, capacity=capacity
    )
    clients = Everyone(participants=found.federation, newcomers=found.newcomers)
    evaluator = Evaluator(result.program, clients, result.store, newcomers=clients.newcomer_numbers)

    def ones(client: int) -> int:
        params = evaluator.own_model(result.server, client, "finetuned")
        return sum(int(value.sum()) for value in params.values() if value.dtype == torch.bool)

    assert ones(4) > 2 * ones(5)
    with pytest.raises(InvalidInput, match="4 numbers for 6 clients"):
        plures.run(fedspa(), found.federation, found.networks, newcomers=found.newcomers, capacity=[0.5] * 4)


@pytest.mark.parametrize("newcomers", [3, "two"])
def test_newcomers_that_are_no_federation_are_refused(newcomers):
    found = built("fedavg")
    with pytest.raises(InvalidInput, match="newcomers"):
        plures.run(found.method, found.federation, found.networks, newcomers=newcomers)


def test_newcomers_of_another_kind_are_refused_before_round_1():
    found = built("fedavg")
    other = plures.data.partition((torch.randn(40, 7), torch.arange(40) % 4), plures.data.iid(2), seed=0)
    with pytest.raises(InvalidInput, match=r"newcomers have input_shape \(7,\)"):
        plures.run(found.method, found.federation, found.networks, newcomers=other)


def test_the_federation_file_has_a_row_for_every_client_newcomers_last(tmp_path):
    found = built("fedavg", **NEWCOMERS)
    ran("fedavg", tmp_path / "run", **NEWCOMERS)
    rows = list(records.read_federation(tmp_path / "run"))
    assert [row["role"] for row in rows] == ["participant"] * 2 + ["newcomer"] * 2
    clients = Everyone(participants=found.federation, newcomers=found.newcomers)
    for number, row in enumerate(rows):
        data = clients.client(number)
        assert row["name"] == clients.name(number)
        assert [int(row[split]) for split in data.splits] == [len(batch.targets) for batch in data.splits.values()]
        assert int(row["classes"]) == len(data.train.targets.unique())
        assert json.loads(row["train_labels"]) == {str(label): n for label, n in counts(data.train.targets).items()}


def counts(targets: torch.Tensor) -> dict[int, int]:
    return {label: targets.tolist().count(label) for label in sorted(set(targets.tolist()))}


def test_labels_are_counted_in_the_label_space_that_all_share(tmp_path):
    ran("fedper", tmp_path / "run", data={"label_space": "local"})
    rows = list(records.read_federation(tmp_path / "run"))
    found = {label for row in rows for label in json.loads(row["train_labels"])}
    assert found == {"0", "1", "2", "3"}
