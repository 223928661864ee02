"""Runs from Python: reproducible, silent on disk unless asked, and chosen on validation alone."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch

import plures
from plures import EvaluationPlan, run, run_experiment
from plures.core.errors import RunFolderError
from plures.core.types import Batch
from plures.data import ClientData, digits_federation, federate
from plures.methods import METHODS, fedavg
from plures.models import mlp
from plures.recipes.experiment import make_experiment
from tests.recipes.helpers import built, ran, table


@pytest.mark.parametrize("method", METHODS)
def test_the_same_run_twice_ends_in_the_same_state_and_another_seed_in_another(method):
    torch.manual_seed(1)
    one = ran(method)
    torch.manual_seed(2)
    same = ran(method)
    other = ran(method, seed=1)

    assert same.fingerprint == one.fingerprint
    assert same.metrics == one.metrics
    assert other.fingerprint["final_state"] != one.fingerprint["final_state"]
    assert other.fingerprint["data"] == one.fingerprint["data"]


def test_python_and_a_file_give_the_same_run():
    in_python = run("fedavg", digits_federation(num_clients=10), mlp, rounds=1, cohort=3, seed=5)
    in_a_file = run_experiment(
        make_experiment({"method": "fedavg", "rounds": 1, "cohort": 3, "seed": 5, "data": {"clients": 10}})
    )

    assert in_python.fingerprint == in_a_file.fingerprint
    assert in_python.metrics == in_a_file.metrics


def test_a_method_may_be_given_by_name_or_made():
    federation = built().federation
    named = run("fedavg", federation, mlp(shape=(4,), classes=4), rounds=1)
    model = named.program.binding(0).task.module

    made = run(fedavg(), federation, model, rounds=1)

    assert made.fingerprint == named.fingerprint
    assert (made.title, made.headline) == (named.title, named.headline) == ("fedavg", "global")


def test_a_run_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    result = ran()
    run(fedavg(), built().federation, mlp(shape=(4,), classes=4), rounds=1)

    assert list(tmp_path.iterdir()) == []
    assert result.folder is None


def test_the_folder_of_the_call_comes_before_that_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = make_experiment(table(out="of_the_file"))

    assert run_experiment(experiment, out=tmp_path / "of_the_call").folder == tmp_path / "of_the_call"
    assert [path.name for path in tmp_path.iterdir()] == ["of_the_call"]
    run_experiment(experiment)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of_the_call", "of_the_file"]


def test_a_folder_that_is_not_empty_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "precious.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(RunFolderError, match=r"is not empty\. Choose another"):
        ran(out=tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert (tmp_path / "precious.txt").read_text(encoding="utf-8") == "mine"


def test_a_second_run_does_not_write_into_the_first_ones_folder(tmp_path):
    ran(out=tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    with pytest.raises(RunFolderError, match="is not empty"):
        ran(seed=1, out=tmp_path / "run")

    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()

    assert ran(out=tmp_path / "empty").status == "finished"


def test_missing_parents_of_the_folder_are_made(tmp_path):
    ran(out=tmp_path / "a" / "b" / "c")

    assert (tmp_path / "a" / "b" / "c" / "result.json").is_file()


@pytest.mark.parametrize(("every", "rounds", "evaluated"), [(1, 3, [1, 2, 3]), (2, 5, [2, 4, 5]), (9, 2, [2])])
def test_rounds_are_evaluated_as_often_as_asked_and_the_last_one_always(every, rounds, evaluated):
    result = ran(rounds=rounds, evaluation={"every": every})

    assert [line["round"] for line in result.history if "metrics" in line] == evaluated


@pytest.mark.parametrize(
    ("method", "models"),
    [
        ("fedavg", {"global", "personal"}),
        ("local", {"personal"}),
        ("fedper", {"personal"}),
        ("pflego", {"personal"}),
        ("finetune", {"global", "personal", "finetuned"}),
    ],
)
def test_models_that_fit_the_method_are_evaluated_unless_told_otherwise(method, models):
    assert {name.split("/")[0] for name in ran(method).metrics} == models


def test_models_and_splits_are_those_that_were_asked_for():
    result = ran("finetune", evaluation={"models": ["finetuned"], "splits": ["train"]})

    assert list(result.metrics) == ["finetuned/train/accuracy", "finetuned/train/loss"]


SEED = 7
"""By it, validation is best in rounds 3, 5 and 7 of 8, and neither test set in any of those."""


def wavering(poisoned: bool):
    """A run whose high rate makes accuracy go up and down; poisoned: every test label is wrong."""
    federation = built(data={"split": (0.5, 0.25, 0.25)}).federation
    clients = []
    for number in range(federation.num_clients):
        data = federation.client(number)
        test = Batch(data.test.inputs, (data.test.targets + 1) % 4) if poisoned else data.test
        clients.append(ClientData(train=data.train, validation=data.validation, test=test, classes=data.classes))
    return run(
        fedavg(lr=6.0),
        federate(clients, num_classes=4),
        lambda: mlp(shape=(4,), hidden=(5,), classes=4),
        rounds=8,
        seed=SEED,
        evaluation=EvaluationPlan(every=1),
    )


def best_rounds(result, split: str) -> set[int]:
    curve = {line["round"]: line["metrics"][f"global/{split}/accuracy"]["weighted"] for line in result.history}
    return {number for number, accuracy in curve.items() if accuracy == max(curve.values())}


def test_the_round_is_selected_on_validation_whatever_the_test_labels_say():
    honest, poisoned = wavering(poisoned=False), wavering(poisoned=True)

    assert best_rounds(honest, "test").isdisjoint(best_rounds(poisoned, "test"))
    assert poisoned.selected_round == honest.selected_round
    assert poisoned.fingerprint["final_state"] == honest.fingerprint["final_state"]
    assert poisoned.metrics["global/test/accuracy"] != honest.metrics["global/test/accuracy"]


def test_the_selected_round_is_the_first_with_the_best_weighted_validation_accuracy():
    result = wavering(poisoned=False)

    assert best_rounds(result, "validation") == {3, 5, 7}
    assert 3 not in best_rounds(result, "test")
    assert result.selected_round == 3
    recorded = result.history[2]["metrics"]
    assert {name: asdict(summary) for name, summary in result.selected_metrics.items()} == recorded


def test_a_run_leaves_the_global_generator_and_the_number_of_threads_as_they_were():
    torch.manual_seed(7)
    before, threads = torch.get_rng_state(), torch.get_num_threads()

    ran("pflego")

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_client_by_client_scores_are_those_of_the_model_the_method_is_judged_by():
    result = ran("finetune")

    assert result.scores() == result.scores("finetuned")
    assert result.scores() != result.scores("global")
    assert [score.client for score in result.scores("global", "validation")] == [0, 1, 2, 3]
    assert result.scores("post_local") == ()


def test_a_result_is_plain_json():
    text = json.dumps(ran(cohort=2).as_json())

    assert json.loads(text)["cohort"] == 2


@pytest.mark.parametrize("model", ["module", "function", "function of the client"])
def test_a_model_is_a_module_a_function_or_a_function_of_the_client(model):
    makers = {
        "module": mlp(shape=(4,), classes=4),
        "function": lambda: mlp(shape=(4,), classes=4),
        "function of the client": lambda client: mlp(shape=(4,), classes=4),
    }

    result = run("fedper", built().federation, makers[model], rounds=1)

    assert result.status == "finished"
    assert result.server.shared["body.1.weight"].shape == (64, 4)


def test_the_public_names_of_the_package_are_there():
    assert all(hasattr(plures, name) for name in plures.__all__)


def test_a_watcher_is_told_of_the_start_of_every_round_and_of_the_end():
    seen = []

    class Noting:
        def started(self, title, rounds, clients, shown):
            seen.append((title, rounds, clients, shown))

        def round_done(self, report, metrics):
            seen.append((report.round, bool(metrics)))

        def ended(self):
            seen.append("end")

    run_experiment(make_experiment(table(rounds=3, evaluation={"every": 2})), title="Mine", watcher=Noting())

    assert seen == [("Mine", 3, 4, "global/test/accuracy"), (1, False), (2, True), (3, True), "end"]


def test_the_title_of_a_run_does_not_change_the_name_of_its_method(tmp_path):
    result = run_experiment(make_experiment(table("finetune")), title="FedAvg-FT", out=tmp_path / "run")

    assert (result.title, result.as_json()["method"]) == ("FedAvg-FT", "finetune")
