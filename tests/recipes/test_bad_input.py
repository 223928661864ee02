"""Bad input: one clear error that says what, where and what to do, before round 1, and no run folder left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from plures import EvaluationPlan, PluresError, run, run_experiment
from plures.core.errors import InvalidConfig, InvalidData, InvalidInput, InvalidModel, InvalidSplit, RunFolderError
from plures.core.types import Batch
from plures.data import ClientData, Federation, federate
from plures.local import epochs, steps
from plures.methods import fedavg, fedper, pflego
from plures.models import mlp
from plures.participation import round_robin, uniform
from plures.recipes.experiment import make_experiment
from tests.recipes.helpers import built, table


def clients(change: Callable[[int, ClientData], ClientData | tuple] = lambda _, data: data) -> Federation:
    """Four good clients, one of which may be changed."""
    good = built().federation
    data = [change(number, good.client(number)) for number in range(good.num_clients)]
    return federate(data, num_classes=4)


def of_client(number: int, change: Callable[[Batch], Batch], *splits: str) -> Federation:
    def changed(client: int, data: ClientData) -> ClientData:
        if client != number:
            return data
        new = {name: change(batch) if name in splits else batch for name, batch in data.splits.items()}
        return ClientData(**new, classes=data.classes)

    return clients(changed)


def first(count: int) -> Callable[[Batch], Batch]:
    return lambda batch: Batch(batch.inputs[:count], batch.targets[:count])


def with_value(value: float) -> Callable[[Batch], Batch]:
    def change(batch: Batch) -> Batch:
        inputs = batch.inputs.clone()
        inputs[1, 2] = value
        return Batch(inputs, batch.targets)

    return change


def with_label(label: int) -> Callable[[Batch], Batch]:
    def change(batch: Batch) -> Batch:
        targets = batch.targets.clone()
        targets[-1] = label
        return Batch(batch.inputs, targets)

    return change


def one_example(client: int, data: ClientData) -> ClientData:
    none = first(0)
    if client != 2:
        return data
    train, validation, test = first(1)(data.train), none(data.validation), none(data.test)
    return ClientData(train=train, validation=validation, test=test, classes=data.classes)


def network(**options: Any) -> nn.Module:
    return mlp(**({"shape": (4,), "hidden": (5,), "classes": 4} | options))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing wrong with a call of `plures.run`, and what the error must say."""

    says: tuple[str, ...]
    kind: type[PluresError] = InvalidInput
    method: Callable[[], Any] = fedavg
    federation: Callable[[], Federation] = clients
    model: Callable[[], Any] = network
    settings: dict[str, Any] = field(default_factory=dict)


CASES = {
    "empty client": Case(
        kind=InvalidData,
        federation=lambda: of_client(1, first(0), "train", "validation", "test"),
        says=("client 1 is empty", "drop it, or give it examples"),
    ),
    "client with one example": Case(
        kind=InvalidData, federation=lambda: clients(one_example), says=("client 2 has one example", "drop it")
    ),
    "client without training examples": Case(
        kind=InvalidData,
        federation=lambda: of_client(3, first(0), "train"),
        says=("client 3 has no train examples", "drop it, or move some there"),
    ),
    "label too large": Case(
        kind=InvalidData,
        federation=lambda: of_client(2, with_label(4), "train"),
        says=("client 2, train examples", "out of range (first: 4)", "labels go from 0 to 3"),
    ),
    "negative label in the test set": Case(
        kind=InvalidData,
        federation=lambda: of_client(0, with_label(-1), "test"),
        says=("client 0, test examples", "out of range (first: -1)", "correct them"),
    ),
    "NaN in the data": Case(
        kind=InvalidData,
        federation=lambda: of_client(1, with_value(float("nan")), "train"),
        says=("client 1, train examples", "NaN or infinite inputs (first: example 1)", "clean or drop them"),
    ),
    "infinity in the data": Case(
        kind=InvalidData,
        federation=lambda: of_client(1, with_value(float("inf")), "validation"),
        says=("client 1, validation examples", "NaN or infinite inputs"),
    ),
    "pattern without match": Case(
        kind=InvalidSplit,
        method=lambda: fedper(personal="haed.*"),
        says=("The pattern 'haed.*' matches no parameter of Mlp", "Near matches: 'head.*'"),
    ),
    "cohort larger than the population": Case(
        kind=InvalidConfig, settings={"cohort": 5}, says=("a cohort of 5 clients cannot be drawn from 4", "smaller")
    ),
    "sampler larger than the population": Case(
        kind=InvalidConfig, settings={"cohort": round_robin(9)}, says=("a cohort of 9 clients", "from 4")
    ),
    "cohort of another form": Case(
        kind=InvalidConfig, settings={"cohort": "most"}, says=("a cohort must be 'all', a number", "'most'")
    ),
    "negative learning rate": Case(
        kind=InvalidConfig, method=lambda: fedavg(lr=-0.1), says=("must be a finite number, 0 or more, not -0.1",)
    ),
    "schedule that turns negative": Case(
        kind=InvalidConfig,
        method=lambda: fedavg(lr=lambda number: 0.2 - 0.1 * number),
        settings={"rounds": 4},
        says=("the learning rate in round 3 must be a finite number, 0 or more",),
    ),
    "too few outputs": Case(
        kind=InvalidModel,
        model=lambda: network(classes=3),
        says=("Mlp has 3 outputs, but client 0 needs 4 (classes)", "Build the network with classes=4"),
    ),
    "one output": Case(
        kind=InvalidModel,
        model=lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)),
        says=("Sequential has 1 outputs, but client 0 needs 4",),
    ),
    "wrong input size": Case(
        kind=InvalidModel,
        model=lambda: network(shape=(7,)),
        says=("Mlp does not take client 0's inputs of shape (4,)",),
    ),
    "nothing to train": Case(
        kind=InvalidSplit, model=lambda: network().requires_grad_(False), says=("nothing would be trained",)
    ),
    "no parameters": Case(kind=InvalidInput, model=nn.Flatten, says=("nothing",)),
    "no model": Case(kind=InvalidModel, model=lambda: None, says=("A model is a torch module or a function",)),
    "unknown method": Case(
        kind=InvalidConfig, method=lambda: "fedvag", says=("There is no method 'fedvag'", "Did you mean 'fedavg'")
    ),
    "unknown engine": Case(
        kind=InvalidConfig,
        settings={"engine": "sequental"},
        says=("There is no engine 'sequental'", "Did you mean 'sequential'?"),
    ),
    "no rounds": Case(
        kind=InvalidConfig, settings={"rounds": 0}, says=("rounds must be a whole number, 1 or more", "not 0")
    ),
    "batch norm without a policy": Case(
        kind=InvalidSplit,
        model=lambda: network(batch_norm=True),
        says=(
            "Mlp keeps running statistics",
            "Choose a policy",
            "buffers='shared'",
            "'personal'",
            "'reset'",
            "[split]",
        ),
    ),
    "newton on a part that is not linear": Case(
        kind=InvalidModel,
        method=lambda: pflego(solver="newton", personal=["body.*", "head.*"]),
        says=("is not one linear layer", "head.weight"),
    ),
    "newton on a layer that is not the last": Case(
        kind=InvalidModel,
        method=lambda: pflego(solver="newton", personal=["body.*"]),
        says=("is not the last step of the network",),
    ),
    "newton on a network with running statistics": Case(
        kind=InvalidModel,
        method=lambda: pflego(solver="newton", buffers="shared"),
        model=lambda: network(batch_norm=True),
        says=("running statistics",),
    ),
    "shared parts that differ": Case(
        kind=InvalidModel,
        method=lambda: fedper(budget=steps(1)),
        model=lambda: lambda client: network(hidden=(5 + client,)),
        says=("The shared part of client 1's network differs", "body.1.bias", "make that parameter personal"),
    ),
}


def call(case: Case, out) -> None:
    settings = {"rounds": 2, "out": out} | case.settings
    run(case.method(), case.federation(), case.model(), **settings)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_is_one_clear_error_and_leaves_no_folder(case, tmp_path):
    with pytest.raises(case.kind) as found:
        call(case, tmp_path / "runs" / "bad")

    for words in case.says:
        assert words in str(found.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.kind is not InvalidInput])
def test_each_of_them_is_told_as_a_single_problem(case):
    with pytest.raises(InvalidInput) as found:
        call(case, None)

    assert len(found.value.problems) == 1


def test_problems_of_data_cohort_and_network_are_told_at_once():
    federation = of_client(1, with_value(float("nan")), "train")

    with pytest.raises(InvalidInput) as found:
        run(fedavg(), federation, network(classes=3), cohort=uniform(9))

    assert len(found.value.problems) == 3
    for words in ("NaN", "a cohort of 9", "has 3 outputs"):
        assert words in str(found.value)


def test_a_client_is_called_by_its_name():
    good = built().federation
    data = [good.client(number) for number in range(4)]
    data[1] = one_example(2, data[1])
    federation = federate(data, num_classes=4, names=["ann", "bob", "cem", "dot"])

    with pytest.raises(InvalidData, match="client bob has one example"):
        run(fedavg(), federation, network())


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, inputs):
        return self.head(inputs), inputs


MORE = {
    "device that torch does not know": {"settings": {"device": "gpu"}},
    "output that is no tensor": {"model": TwoOutputs},
    "splits that do not exist": {"settings": {"evaluation": EvaluationPlan(splits=("tests",))}},
    "models that do not exist": {"settings": {"evaluation": EvaluationPlan(models=("globl",))}},
    "models as a word": {"settings": {"evaluation": EvaluationPlan(models="global")}},
    "a model that is not trained but chosen": {"settings": {"evaluation": EvaluationPlan(models=("guarded",))}},
    "every zero rounds": {"settings": {"evaluation": EvaluationPlan(every=0)}},
    "global model of a method without one": {
        "method": lambda: fedper(budget=steps(1)),
        "settings": {"evaluation": EvaluationPlan(models=("global",))},
    },
    "rounds as text": {"settings": {"rounds": "2"}},
    "rounds as a fraction": {"settings": {"rounds": 2.5}},
}


@pytest.mark.parametrize("changes", MORE.values(), ids=MORE)
def test_more_bad_input_is_one_clear_error_and_leaves_no_folder(changes, tmp_path):
    with pytest.raises(PluresError):
        call(Case(says=(), **changes), tmp_path / "run")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_a_device_that_is_not_there_is_one_clear_error_and_leaves_no_folder(tmp_path):
    with pytest.raises(PluresError, match="cuda"):
        call(Case(says=(), settings={"device": "cuda"}), tmp_path / "run")

    assert list(tmp_path.iterdir()) == []


def test_an_error_inside_a_clients_work_names_client_and_round():
    class OnlyWhenScored(nn.Module):
        """Passes the trial before round 1, and fails in training."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, inputs):
            if self.training and len(inputs) == 3:
                raise ValueError("three is too many")
            return self.head(inputs)

    method = fedavg(budget=steps(3, batch=3))

    with pytest.raises(PluresError, match=r"three is too many.*client 0, round 1, phase shared"):
        run(method, clients(), OnlyWhenScored(), rounds=1)


def test_a_batch_of_one_example_under_batch_norm_is_passed_by():
    method = fedavg(buffers="shared", budget=epochs(1, batch=3))  # of seven or eight examples, one or two are left

    result = run(method, clients(), network(batch_norm=True), rounds=1)

    assert 1 in {clients().num_examples(client) % 3 for client in range(4)}
    assert result.status == "finished"


def test_fedavg_whose_running_statistics_stay_with_the_client_can_be_run():
    result = run(fedavg(buffers="personal", budget=steps(1)), clients(), network(batch_norm=True), rounds=1)

    assert result.metrics["personal/test/accuracy"].weighted >= 0


def test_pflego_without_a_personal_part_trains_the_one_model_that_is_left():
    result = run(pflego(personal=[], tau=3), clients(), network(), rounds=1)

    assert result.scores("personal") == result.scores("global")
    assert list(result.store.clients()) == []
    assert result.history[0]["network_passes"] == 4.0  # one joint step of each client, and no step on an empty head


EXPERIMENTS = {
    "unknown method": ({"method": "fedvag"}, "There is no method 'fedvag'"),
    "unknown key": ({"round": 3}, "Unknown key 'round'"),
    "unknown option": ({"method_options": {"lrr": 1}}, "fedavg has no option 'lrr'"),
    "negative rate": ({"method_options": {"lr": -1}}, "not -1"),
    "cohort larger than the population": ({"cohort": 5}, "a cohort of 5 clients cannot be drawn from 4"),
    "one example for some client": ({"data": {"clients": 48, "partition": "iid"}}, "Client 0 has one example"),
    "more clients than examples": ({"data": {"clients": 50, "partition": "iid"}}, "2 of 50 clients would get no"),
    "too few outputs": ({"model": {"classes": 2}}, "Mlp has 2 outputs, but client 0 needs 4"),
    "batch norm without a policy": ({"model": {"batch_norm": True}}, 'In a file: [split] buffers = "shared"'),
    "pattern without match": ({"method": "fedper", "split": {"personal": "tail.*"}}, "The pattern 'tail.*' matches no"),
    "newton": (
        {"method": "pflego", "method_options": {"solver": "newton"}, "split": {"personal": "body.*"}},
        "is not the last step of the network",
    ),
    "unknown engine": ({"engine": "fast"}, "There is no engine 'fast'"),
}


@pytest.mark.parametrize(("changes", "says"), EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_bad_experiment_is_one_clear_error_and_leaves_no_folder(changes, says, tmp_path):
    with pytest.raises(InvalidInput) as found:
        run_experiment(make_experiment(table(**{"method": "fedavg", **changes})), out=tmp_path / "runs" / "bad")

    assert says in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_a_problem_that_all_clients_have_is_not_told_for_each_of_them():
    with pytest.raises(InvalidData) as found:
        built(data={"clients": 48, "partition": "iid"})

    assert len(found.value.problems) <= 11


@pytest.mark.parametrize("name", ["file", "under a file"])
def test_a_folder_that_cannot_be_made_is_one_clear_error(name, tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    out = tmp_path / "file" / "run" if name == "under a file" else tmp_path / "file"

    with pytest.raises(RunFolderError, match=r"Cannot write to .*file.*Choose another folder"):
        run(fedavg(), clients(), network(), rounds=1, out=out)

    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_may_not_be_written_is_one_clear_error(tmp_path, monkeypatch):
    def refused(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    federation = clients()
    monkeypatch.setattr("pathlib.Path.mkdir", refused)

    with pytest.raises(RunFolderError, match=r"Cannot write to .*run: Permission denied\. Choose another folder"):
        run(fedavg(), federation, network(), rounds=1, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
