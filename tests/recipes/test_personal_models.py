"""The model one gets is the model that was judged; and what would be judged wrongly is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import plures
from plures.core.errors import InvalidConfig, InvalidModel, InvalidSplit
from plures.data import digits_federation
from plures.local import epochs, steps
from plures.methods import METHODS, fedalt, fedavg, fedbabu, fedper, pflego
from plures.models import mlp, with_own_heads
from plures.parts import head

FEDERATION = digits_federation(num_clients=6, classes_per_client=3)


def normed() -> nn.Module:
    return mlp(hidden=(8,), batch_norm=True)


def accuracy(module: nn.Module, client: int) -> float:
    inputs, targets = FEDERATION.client(client).test
    with torch.no_grad():
        return float((module(inputs).argmax(dim=1) == targets).double().mean())


@pytest.mark.parametrize("name", METHODS)
def test_the_model_of_a_client_has_the_accuracy_that_is_reported_for_it(name):
    model = normed if name == "fedbn" else mlp
    result = plures.run(name, FEDERATION, model, rounds=2, cohort=3)
    for score in result.scores():
        assert accuracy(result.personal_model(score.client), score.client) == pytest.approx(score.accuracy, abs=1e-12)


@pytest.mark.parametrize("policy", ["shared", "personal", "reset"])
@pytest.mark.parametrize("make", [fedavg, fedalt])
def test_so_it_has_whatever_the_policy_for_running_statistics_is(make, policy):
    result = plures.run(make(buffers=policy), FEDERATION, normed, rounds=2, cohort=3)
    for score in result.scores():
        assert accuracy(result.personal_model(score.client), score.client) == pytest.approx(score.accuracy, abs=1e-12)


def test_another_kind_of_model_can_be_asked_for_and_a_client_by_its_name():
    result = plures.run("finetune", FEDERATION, mlp, rounds=2)
    tuned, plain = result.personal_model("1"), result.personal_model(1, model="personal")
    assert not torch.equal(tuned.head.weight, plain.head.weight)
    assert torch.equal(plain.head.weight, result.server.shared["head.weight"])
    with pytest.raises(InvalidConfig, match="There is no client 'eleven'"):
        result.personal_model("eleven")


def test_clients_that_forget_are_judged_after_adaptation():
    result = plures.run(fedper(stateful=False), FEDERATION, mlp, rounds=1)
    assert result.headline == "finetuned"


def test_a_result_shows_itself_in_a_few_lines():
    result = plures.run("fedavg", FEDERATION, mlp, rounds=1)
    assert len(repr(result)) < 500


# What would train or score something else than one thinks


def test_batches_of_one_example_with_batch_norm_are_refused():
    method = fedavg(buffers="shared", budget=epochs(1, batch=1))
    with pytest.raises(InvalidConfig, match="Batch norm needs batches of two examples"):
        plures.run(method, FEDERATION, normed, rounds=1)


class Following(nn.Module):
    """A network that keeps a mean of its own."""

    def __init__(self, known: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.register_buffer("seen", torch.zeros(()))
        if known:
            self.track_running_stats = True

    def forward(self, inputs):
        if self.training:
            self.seen.copy_(0.9 * self.seen + 0.1 * inputs.mean())
        return self.head(inputs.flatten(1))


def test_a_buffer_that_training_changes_must_be_known_as_a_statistic():
    with pytest.raises(InvalidModel, match=r"buffer 'seen' changes while .* track_running_stats = True"):
        plures.run(fedavg(), FEDERATION, Following(), rounds=1)
    result = plures.run(fedavg(buffers="shared", budget=steps(1)), FEDERATION, Following(known=True), rounds=2)
    assert float(result.server.shared["seen"]) > 0


def test_a_personal_part_that_is_frozen_is_refused():
    module = mlp()
    module.head.requires_grad_(False)
    with pytest.raises(InvalidSplit, match="is frozen"):
        plures.run(fedper(), FEDERATION, module, rounds=1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.head = nn.Linear(64, 64)
        self.head.weight = self.first.weight

    def forward(self, inputs):
        return self.head(torch.relu(self.first(inputs.flatten(1))))


def test_a_pattern_that_matches_one_of_two_tied_names_is_refused():
    with pytest.raises(InvalidSplit, match=r"'head\.weight'.* is tied to 'first\.weight'"):
        plures.run(fedper(personal="head.*"), FEDERATION, Tied(), rounds=1)


@pytest.mark.parametrize("solver", ["newton", "gradient"])
def test_newton_takes_a_network_with_a_frozen_body_and_constant_buffers(solver):
    module = mlp()
    module.body.requires_grad_(False)
    module.register_buffer("scale", torch.ones(()))
    result = plures.run(pflego(solver=solver, tau=3), FEDERATION, module, rounds=1)
    assert result.status == "finished"


def test_fixed_heads_of_different_sizes_have_no_global_model_and_each_is_scored_with_its_own():
    federation = plures.data.partition(
        plures.data.digits(), plures.data.dirichlet(5, alpha=0.3), seed=1, label_space="local"
    )
    assert len({federation.num_classes(client) for client in range(5)}) > 1
    networks = with_own_heads(lambda classes: mlp(classes=classes), federation.num_classes)
    result = plures.run(fedbabu(), federation, networks, rounds=1)
    assert not any(name.startswith("global/") for name in result.metrics)
    for score in result.scores("personal"):
        inputs, targets = federation.client(score.client).test
        found = result.personal_model(score.client, model="personal")(inputs).argmax(dim=1)
        assert float((found == targets).double().mean()) == pytest.approx(score.accuracy, abs=1e-12)


# Things of another kind than they should be


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fedavg(weight="uniform"), "weight of fedavg is 'uniform': give a weight such as"),
        (lambda: fedalt(budget={"epochs": 1}), "budget of fedalt is .*: give a budget such as"),
        (lambda: fedalt(budget=5), "budget of fedalt is 5: give a budget"),
        (lambda: fedalt(lr={"schedule": "cosine"}), "lr of fedalt is .*: give a rate"),
        (lambda: fedavg(server=torch.optim.Adam), "server of fedavg is .*: give a rate"),
        (lambda: fedper(personal=head), "personal of fedper is .*: give a selector"),
        (lambda: plures.run(fedavg, FEDERATION, mlp), "method is .*with its brackets"),
        (lambda: plures.run("fedavg", [1, 2], mlp), "federation is .*plures.data.partition"),
        (lambda: plures.run("fedavg", FEDERATION, mlp, evaluation={"every": 1}), "evaluation is .*EvaluationPlan"),
        (lambda: plures.run("fedavg", FEDERATION, mlp, seed=1.5), "seed is 1.5"),
    ],
)
def test_a_value_of_another_kind_is_one_error_before_anything_is_trained(call, says):
    with pytest.raises(InvalidConfig, match=says):
        call()


def test_a_class_of_networks_that_needs_arguments_is_refused():
    class Needy(nn.Module):
        def __init__(self, width):
            super().__init__()

    with pytest.raises(InvalidModel, match="Needy is a class that needs width"):
        plures.run("fedavg", FEDERATION, Needy)
