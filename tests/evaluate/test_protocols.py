"""Protocols E1 to E4: the right model on the right examples, and nothing changed by looking."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plures import EvaluationPlan, run
from plures.core.types import Batch, Params
from plures.data import federate
from plures.evaluate import scoring
from plures.local import epochs, sgd, steps
from plures.methods import fedavg, fedper, finetune, local, pflego
from plures.models import with_own_heads
from plures.participation.cohorts import Cohort
from tests.evaluate.helpers import (
    HIDDEN,
    Network,
    NormedNetwork,
    by_hand,
    copied,
    drawn,
    evaluator_of,
    federation,
    made,
    same_bits,
)

ALL = ("train", "validation", "test")
HEAD = ("head.weight", "head.bias")


class Dropping(Network):
    """Drops nearly all of its inputs while it is trained."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(F.dropout(inputs, 0.9, self.training))


@dataclass(frozen=True)
class Given:
    """The same cohort in every round."""

    clients: tuple[int, ...]

    def check(self, num_clients: int) -> None: ...

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        return Cohort(self.clients, len(self.clients) / num_clients)


def descended(params: Params, moving: tuple[str, ...], batch: Batch, *, lr: float, count: int) -> Params:
    """Plain full-batch gradient descent on some of the parameters."""
    for _ in range(count):
        leaves = {name: params[name].clone().requires_grad_() for name in moving}
        loss = F.cross_entropy(functional_call(made(), params | leaves, (batch.inputs,)), batch.targets)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        params = params | {name: params[name] - lr * grad for name, grad in zip(moving, grads, strict=True)}
    return params


def assert_scores(found, expected):
    assert [score.client for score in found] == [score.client for score in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.examples == theirs.examples
        assert mine.accuracy == theirs.accuracy
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-12)


@pytest.mark.parametrize("examples_at_once", [4096, 6, 1], ids=["together", "in groups", "each alone"])
@pytest.mark.parametrize("split", ALL)
def test_e1_of_pooled_clients_equals_a_forward_pass_client_by_client(split, examples_at_once, monkeypatch):
    monkeypatch.setattr(scoring, "TARGETS_AT_ONCE", examples_at_once)
    clients = federation()
    evaluator, server, _ = evaluator_of(fedavg(), clients)

    (found,) = evaluator.evaluate(server, ["global"], [split])

    batches = {client: clients.client(client).splits[split] for client in range(clients.num_clients)}
    expected = [by_hand(client, server.shared, batch) for client, batch in batches.items() if batch.num_examples]
    assert_scores(found.scores, expected)
    assert (found.model, found.split, found.sampled) == ("global", split, False)


def test_personal_model_of_a_method_without_personal_part_is_the_global_one():
    evaluator, server, _ = evaluator_of(fedavg(), federation())

    shared, personal = evaluator.evaluate(server, ["global", "personal"], ["test"])

    assert shared.scores == personal.scores
    assert (shared.model, personal.model) == ("global", "personal")


@pytest.mark.parametrize("examples_at_once", [4096, 2], ids=["at once", "in chunks"])
def test_e2_is_a_forward_pass_with_the_shared_body_and_each_clients_own_head(examples_at_once, monkeypatch):
    monkeypatch.setattr(scoring, "TARGETS_AT_ONCE", examples_at_once)
    clients = federation()
    evaluator, server, store = evaluator_of(fedper(start="uniform"), clients)
    shapes = {name: evaluator.program.initial_state(0)[name].shape for name in HEAD}
    draws = torch.Generator().manual_seed(0)
    kept = {
        client: {name: torch.randn(shape, generator=draws, dtype=torch.float64) for name, shape in shapes.items()}
        for client in (0, 2)
    }
    store.commit(1, kept)

    (found,) = evaluator.evaluate(server, ["personal"], ["test"])

    # clients 1 and 3 were never visited: their heads are as they start
    heads = {client: kept.get(client) or evaluator.program.initial_state(client) for client in range(4)}
    expected = [by_hand(client, server.shared | head, clients.client(client).test) for client, head in heads.items()]
    assert_scores(found.scores, expected)
    assert len({score.loss for score in found.scores}) == 4


def test_e2_with_heads_of_different_sizes_uses_each_clients_own_architecture():
    draws = torch.Generator().manual_seed(1)
    batches = [
        [Batch(drawn(size, draws).inputs, torch.arange(size) % classes) for size in (6, 4)] for classes in (2, 3)
    ]
    clients = federate([tuple(pair) for pair in batches], label_space="local")

    def make(classes: int) -> nn.Module:
        module = made()
        module.head = nn.Linear(HIDDEN, classes).double()
        return module

    result = run(fedper(), clients, with_own_heads(make, clients.num_classes), rounds=1)

    for client, score in enumerate(result.scores("personal")):
        head = result.store.get(client)
        assert head is not None
        test = clients.client(client).test
        features = torch.tanh(
            F.linear(test.inputs, result.server.shared["body.weight"], result.server.shared["body.bias"])
        )
        logits = F.linear(features, head["head.weight"], head["head.bias"])
        assert logits.shape[1] == (2, 3)[client]
        assert score.loss == pytest.approx(float(F.cross_entropy(logits, test.targets)), rel=1e-12)


def test_e3_scores_the_cohort_alone_with_the_models_it_trained_before_the_server_step():
    clients, plan = federation(), EvaluationPlan(models=("global",), splits=("test",), post_local=True)
    start = {name: value.detach() for name, value in made().named_parameters()}
    method = fedavg(lr=0.5, budget=steps(2), server=3.0)  # a server step that nobody could mistake for no step

    result = run(method, clients, made(), rounds=1, cohort=Given((1, 3)), evaluation=plan)

    sampled = [evaluation for evaluation in result.evaluations if evaluation.sampled]
    trained = {c: descended(start, tuple(start), clients.client(c).train, lr=0.5, count=2) for c in (1, 3)}
    expected = [by_hand(client, params, clients.client(client).test) for client, params in trained.items()]
    assert [evaluation.name for evaluation in sampled] == ["sampled/post_local/test"]
    assert_scores(sampled[0].scores, expected)
    assert {score.loss for score in sampled[0].scores}.isdisjoint(score.loss for score in result.scores("global"))


def test_e3_of_a_round_holds_no_client_of_an_earlier_round():
    @dataclass(frozen=True)
    class InTurn:
        def check(self, num_clients: int) -> None: ...

        def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
            return Cohort((round - 1,), 0.25)

    plan = EvaluationPlan(every=2, splits=("test",), post_local=True)

    result = run(fedper(budget=steps(1)), federation(), made(), rounds=4, cohort=InTurn(), evaluation=plan)

    (sampled,) = [evaluation for evaluation in result.evaluations if evaluation.sampled]
    assert [score.client for score in sampled.scores] == [3]
    assert ["metrics" in line for line in result.history] == [False, True, False, True]


def test_e3_is_left_out_unless_asked_for():
    result = run(fedavg(), federation(), made(), rounds=1)

    assert not [name for name in result.metrics if "post_local" in name]


def test_e4_is_training_by_hand_on_a_copy():
    clients, count, lr = federation(), 3, 0.4
    evaluator, server, _ = evaluator_of(finetune(tune=steps(count), tune_lr=lr), clients)

    (found,) = evaluator.evaluate(server, ["finetuned"], ["test"])

    names = tuple(server.shared)
    tuned = {c: descended(server.shared, names, clients.client(c).train, lr=lr, count=count) for c in range(4)}
    assert_scores(found.scores, [by_hand(c, params, clients.client(c).test) for c, params in tuned.items()])


def test_e4_of_a_part_moves_that_part_only():
    clients = federation()
    evaluator, server, _ = evaluator_of(finetune(personal="head", tune=steps(2), tune_lr=0.4), clients)

    (found,) = evaluator.evaluate(server, ["finetuned"], ["test"])

    tuned = {c: descended(server.shared, HEAD, clients.client(c).train, lr=0.4, count=2) for c in range(4)}
    assert_scores(found.scores, [by_hand(c, params, clients.client(c).test) for c, params in tuned.items()])


def test_e4_starts_from_the_clients_own_state():
    clients = federation()
    evaluator, server, store = evaluator_of(fedper(lr=0.4, adapt=steps(2)), clients)
    store.commit(1, {0: {name: torch.full_like(made().state_dict()[name], 0.25) for name in HEAD}})

    (found,) = evaluator.evaluate(server, ["finetuned"], ["test"])

    kept = store.get(0)
    assert kept is not None
    expected = descended(server.shared | kept, HEAD, clients.client(0).train, lr=0.4, count=2)
    assert_scores(found.scores[:1], [by_hand(0, expected, clients.client(0).test)])


@pytest.mark.parametrize("method", [fedavg(adapt=steps(3)), fedper(adapt=steps(3)), local(adapt=steps(3))])
def test_e4_leaves_server_and_store_bitwise_untouched(method):
    clients = federation()
    evaluator, server, store = evaluator_of(method, clients)
    store.commit(1, {client: evaluator.program.initial_state(client) for client in range(3)})
    shared = copied(server.shared)
    kept = {client: copied(store.get(client) or {}) for client in store.clients()}

    evaluator.evaluate(server, ["finetuned"], ALL)

    assert same_bits(server.shared, shared)
    assert list(store.clients()) == list(kept)
    assert all(same_bits(store.get(client) or {}, state) for client, state in kept.items())
    assert store.round == 1


def test_fine_tuning_of_no_epochs_is_the_global_model():
    evaluator, server, _ = evaluator_of(finetune(tune=epochs(0)), federation())

    shared, tuned = evaluator.evaluate(server, ["global", "finetuned"], ["test"])

    assert [score.accuracy for score in tuned.scores] == [score.accuracy for score in shared.scores]
    assert [score.loss for score in tuned.scores] == pytest.approx([score.loss for score in shared.scores], rel=1e-12)


@pytest.mark.parametrize("model", ["global", "personal", "finetuned"])
def test_a_client_without_validation_examples_is_left_out_of_validation_only(model):
    evaluator, server, _ = evaluator_of(finetune(), federation())

    validation, test = evaluator.evaluate(server, [model], ["validation", "test"])

    assert [score.client for score in validation.scores] == [0, 2, 3]
    assert [score.client for score in test.scores] == [0, 1, 2, 3]


def test_clients_without_any_validation_examples_give_no_validation_metrics_and_select_no_round():
    clients = federation([(4, 0, 2), (5, 0, 3)])

    result = run(fedavg(), clients, made(), rounds=2)

    assert [name for name in result.metrics if "validation" in name] == []
    assert result.selected_round is None
    assert result.selected_metrics == {}


@pytest.mark.parametrize("model", ["global", "personal", "finetuned"])
def test_evaluation_changes_no_parameter(model):
    clients, module = federation(), made(NormedNetwork)
    evaluator, server, _ = evaluator_of(finetune(buffers="shared", budget=steps(1), tune=steps(1)), clients, module)
    shared, values = copied(server.shared), copied(evaluator.program.binding(0).values)
    own = copied(module.state_dict())

    evaluator.evaluate(server, [model], ALL)

    assert same_bits(server.shared, shared)
    assert same_bits(evaluator.program.binding(0).values, values)
    assert same_bits(module.state_dict(), own)


@pytest.mark.parametrize("mode", [True, False])
def test_a_run_leaves_mode_and_parameters_of_the_users_module_as_they_were(mode):
    module = made(NormedNetwork).train(mode)
    before = copied(module.state_dict())

    run(fedavg(buffers="shared", budget=steps(2)), federation(), module, rounds=2)

    assert module.training is mode
    assert module.norm.training is mode
    assert same_bits(module.state_dict(), before)


def test_networks_are_scored_in_evaluation_mode():
    clients = federation()
    evaluator, server, _ = evaluator_of(fedavg(), clients, made(Dropping))
    evaluator.program.binding(0).task.train(True)

    (found,) = evaluator.evaluate(server, ["global"], ["test"])

    assert_scores(found.scores, [by_hand(client, server.shared, clients.client(client).test) for client in range(4)])


@pytest.mark.parametrize(
    "method", [finetune(buffers="shared", budget=steps(2)), fedper(buffers="personal", budget=steps(2))]
)
def test_training_is_the_same_however_often_one_looks(method):
    module = made(NormedNetwork, dropout=0.3)
    states = set()
    for plan in (
        EvaluationPlan(every=1, splits=ALL, post_local=True, models=("personal", "finetuned")),
        EvaluationPlan(every=100, splits=("test",)),
    ):
        states.add(run(method, federation(), module, rounds=3, evaluation=plan).fingerprint["final_state"])

    assert len(states) == 1


def test_fine_tuning_draws_the_same_batches_and_dropout_every_time():
    evaluator, server, _ = evaluator_of(finetune(tune=epochs(2, batch=2)), federation(), made(Dropping))

    once, again = (evaluator.evaluate(server, ["finetuned"], ["test"]) for _ in range(2))

    assert once == again


def test_loss_is_the_one_the_run_trains_with():
    clients = federation()
    result = run(fedavg(lr=sgd(0.0)), clients, made(), rounds=1, loss=lambda out, target: out.sum() * 0 + 7.0)

    assert {score.loss for score in result.scores("global")} == {7.0}


@pytest.mark.parametrize("method", [fedavg, fedper, pflego], ids=["fedavg", "fedper", "pflego"])
def test_e3_of_everybody_is_what_the_next_round_finds_if_all_take_part(method):
    """The models right after local work in round 3, once looked ahead to after round 2 and once in that round."""
    ahead = run(method(), federation(), made(), rounds=2, evaluation=EvaluationPlan(models=("post_local",)))
    then = run(method(), federation(), made(), rounds=3, evaluation=EvaluationPlan(post_local=True))
    sampled = {evaluation.split: evaluation for evaluation in then.evaluations if evaluation.sampled}
    for evaluation in ahead.evaluations:
        assert evaluation.name == f"post_local/{evaluation.split}"
        assert_scores(evaluation.scores, sampled[evaluation.split].scores)
    assert ahead.fingerprint == run(method(), federation(), made(), rounds=2).fingerprint


@pytest.mark.parametrize(("method", "has_global"), [(fedavg, True), (fedper, False)])
def test_all_models_of_a_method_can_be_asked_for_by_one_word(method, has_global):
    result = run(method(), federation(), made(), rounds=1, evaluation=EvaluationPlan(models="all", post_local=True))
    found = list(dict.fromkeys(evaluation.kind for evaluation in result.evaluations))
    usual = ["personal", "post_local", "finetuned", "sampled/post_local"]
    assert found == (["global", *usual] if has_global else usual)


class Overflowing(Network):
    """Gives no number for an input above 50."""

    def forward(self, inputs: Tensor) -> Tensor:
        output = super().forward(inputs)
        return torch.where(inputs.abs().amax(dim=1, keepdim=True) > 50, torch.full_like(output, torch.nan), output)


def test_a_model_that_overflows_on_a_client_does_not_make_the_loss_better():
    """Its loss counts as infinite: left out, the mean would be that of the others."""
    draws = torch.Generator().manual_seed(0)
    clients = [tuple(drawn(4, draws) for _ in range(3)) for _ in range(2)]
    far = Batch(100 * torch.ones_like(clients[1][2].inputs), clients[1][2].targets)
    evaluator, server, _ = evaluator_of(fedavg(), federate([clients[0], (*clients[1][:2], far)]), made(Overflowing))
    (found,) = evaluator.evaluate(server, ("global",), ("test",))
    summary = found.summaries()["global/test/loss"]
    assert found.scores[1].loss == summary.worst == summary.weighted == summary.mean == torch.inf
    assert found.scores[0].loss < 10
