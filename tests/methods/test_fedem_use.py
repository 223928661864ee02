"""FedEM in use: hidden groups of clients, newcomers, regression and text, and what is refused before round 1."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plures
from plures.core.client import run_phases
from plures.core.errors import Diverged, InvalidConfig, InvalidInput, InvalidModel
from plures.core.types import Batch
from plures.data import digits_federation, federate
from plures.local import epochs
from plures.local.mixture import belonging, mixture_loss
from plures.methods import fedavg, fedem
from plures.models import char_lstm, mlp
from plures.recipes import make_experiment, run_experiment
from tests.helpers.methods import assert_same_bits, federation, play
from tests.methods.test_fedem import tiny

PLAN = plures.EvaluationPlan(every=100)


def losses_of(run, params, batch):
    """Of each example under each component, one by one."""
    task = run.program.binding(0).task
    outputs = task.ask("apart", params, batch.inputs)["apart"]
    return torch.stack([F.cross_entropy(one, batch.targets, reduction="none") for one in outputs], dim=1)


# Hidden groups


@cache
def two_groups():
    """Digits on eight clients; where the number is odd, every label is the next one."""
    plain = digits_federation(num_clients=8, classes_per_client=10, seed=0)

    def turned(batch, client):
        return Batch(batch.inputs, (batch.targets + client % 2) % 10)

    clients = [plain.client(client).splits for client in range(8)]
    names = ("train", "validation", "test")
    return federate([tuple(turned(splits[name], i) for name in names) for i, splits in enumerate(clients)])


def on_groups(method):
    return plures.run(method, two_groups(), lambda: mlp(hidden=(16,)), rounds=10, evaluation=PLAN)


def test_two_networks_find_two_groups_of_clients_where_one_network_cannot_serve_both():
    """The same digit has one label in one group and the next in the other: one network is right in half of them."""
    options = {"lr": 0.5, "budget": epochs(3, batch=16)}
    mixed, single = on_groups(fedem(components=2, **options)), on_groups(fedavg(**options))
    assert mixed.metrics["personal/test/accuracy"].weighted > 0.8
    assert single.metrics["global/test/accuracy"].weighted < 0.6
    shares = [mixed.store.get(client)["mixing"].tolist() for client in range(8)]
    own = [max(range(2), key=share.__getitem__) for share in shares]
    assert own in ([0, 1] * 4, [1, 0] * 4)
    assert min(max(share) for share in shares) > 0.9


# Newcomers


def test_a_newcomer_learns_its_shares_and_nothing_else():
    run = tiny(3, adapt_steps=7)
    newcomer = play(run.program.method, 0, population=federation([6, 30]))
    visit = newcomer.visit(1)
    before = newcomer.model(1) | run.shared
    assert before["mixing"].tolist() == [1 / 3] * 3
    after = run_phases(run.program.method.adapt, run.program.binding(0), visit, before).params
    same = {name for name in before if name != "mixing"}
    assert_same_bits({name: after[name] for name in same}, {name: before[name] for name in same})
    shares, losses = before["mixing"], losses_of(run, before, visit.data)
    for _ in range(7):
        shares = belonging(losses, shares).mean(dim=0)
    assert torch.allclose(after["mixing"], shares, rtol=1e-12)
    assert mixture_loss(losses, shares) < mixture_loss(losses, before["mixing"]) - 1e-4


def test_a_client_that_took_part_begins_with_its_own_shares():
    """The loss told is that of the mixture as it was; an E step from equal shares would lead elsewhere."""
    run = tiny(3, adapt_steps=2)
    visit, before = run.visit(3), run.model(3)
    own, losses = run.final[3]["mixing"], losses_of(run, before, visit.data)
    equal = torch.full_like(own, 1 / 3)
    work = run_phases(run.program.method.adapt, run.program.binding(3), visit, before)
    assert torch.allclose(work.params["mixing"], stepped(losses, own, 2), rtol=1e-12)
    assert not torch.allclose(work.params["mixing"], stepped(losses, equal, 2), rtol=1e-2)
    assert [loss.item() for loss in work.losses.values()] == pytest.approx([mixture_loss(losses, own).item()])


def stepped(losses, shares, count):
    for _ in range(count):
        shares = belonging(losses, shares).mean(dim=0)
    return shares


def test_more_steps_fit_a_client_no_worse_and_its_own_shares_are_where_they_begin():
    found = []
    for count in (1, 2, 5, 40):
        run = tiny(2, adapt_steps=count)
        batch, params = run.population.batches[3], run.adapted(3)
        found.append(F.cross_entropy(run.output(params, batch.inputs), batch.targets).item())
        assert not torch.equal(params["mixing"], run.final[3]["mixing"])
    assert found == sorted(found, reverse=True)
    assert found[0] - found[-1] > 1e-4


def test_the_model_of_a_client_is_judged_and_its_loss_is_that_of_its_mixture():
    run = tiny(2)
    batch, params = run.population.batches[3], run.model(3)
    loss = F.cross_entropy(run.output(params, batch.inputs), batch.targets)
    assert loss.item() == pytest.approx(mixture_loss(losses_of(run, params, batch), params["mixing"]).item(), rel=1e-12)
    assert run.program.method.judged_by == "personal"
    assert not run.program.has_global_model()


# Other goals


def lines():
    """Half of the clients have y = x, half y = -x, with a little noise."""
    draws = torch.Generator().manual_seed(0)

    def examples(size, slope):
        inputs = 2 * torch.randn(size, 1, generator=draws)
        return Batch(inputs, slope * inputs[:, 0] + 0.1 * torch.randn(size, generator=draws))

    return federate([(examples(40, slope), examples(20, slope)) for slope in (1, -1) * 4], goal="regression")


def test_values_are_mixed_where_clients_follow_one_of_two_lines():
    options = {"lr": 0.05, "budget": epochs(2, batch=10)}
    mixed, single = (
        plures.run(method, lines(), lambda: nn.Linear(1, 1), rounds=10, evaluation=PLAN)
        for method in (fedem(components=2, outputs="values", **options), fedavg(**options))
    )
    assert mixed.metrics["personal/test/rmse"].weighted < 0.2  # the noise is 0.1
    assert single.metrics["global/test/rmse"].weighted > 1.5  # the lines are 2 |x| apart, |x| is 2 in the mean square


def test_sequences_of_tokens_are_mixed():
    draws = torch.Generator().manual_seed(0)
    tokens = [torch.randint(4, 9, (30, 7), generator=draws) for _ in range(4)]
    clients = [(Batch(rows[:20, :6], rows[:20, 1:]), Batch(rows[20:, :6], rows[20:, 1:])) for rows in tokens]
    result = plures.run(
        fedem(components=2, lr=1.0),
        federate(clients, goal="next_token"),
        lambda: char_lstm(shape=(6,), classes=9, hidden=8),
        rounds=3,
        evaluation=PLAN,
    )
    losses = [row["losses"]["shared"] for row in result.history]
    assert losses[-1] < losses[0]


# What is refused


@pytest.mark.parametrize(
    "options",
    [
        {"components": 0},
        {"components": -1},
        {"components": 2.5},
        {"components": True},
        {"components": float("nan")},
        {"outputs": "logits"},
        {"adapt_steps": 0},
        {"adapt_steps": 1.5},
        {"lr": -0.1},
        {"lr": float("nan")},
        {"clip_norm": 0.0},
        {"clip_norm": float("nan")},
        {"server": -1.0},
        {"budget": 3},
        {"weight": "samples"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        fedem(**options)


def test_a_policy_for_buffers_that_there_is_not_is_refused():
    with pytest.raises(InvalidInput, match="buffers"):
        fedem(buffers="kept")


@pytest.mark.parametrize(
    ("data", "make", "outputs", "words"),
    [
        (lines, lambda: nn.Linear(1, 1), "classes", "The targets are real numbers: .* needs outputs = 'values'"),
        (two_groups, mlp, "values", "The targets are classes: .* needs outputs = 'classes'"),
    ],
    ids=["values as classes", "classes as values"],
)
def test_outputs_of_another_kind_than_the_targets_are_refused_before_round_1(data, make, outputs, words):
    with pytest.raises(InvalidConfig, match=words):
        plures.run(fedem(outputs=outputs), data(), make, rounds=1)


def test_a_loss_that_cannot_be_had_of_each_example_is_refused_before_round_1():
    def loss(output, targets):
        return F.cross_entropy(output, targets) * (2.0 if output.sum().item() > 0 else 1.0)

    with pytest.raises(InvalidModel, match="needs the loss of each example by itself"):
        plures.run(fedem(), two_groups(), mlp, rounds=1, loss=loss)


def test_running_statistics_that_nobody_is_given_are_refused():
    with pytest.raises(InvalidInput, match="keeps running statistics"):
        plures.run(fedem(), two_groups(), lambda: mlp(batch_norm=True), rounds=1)


def test_a_network_of_one_value_per_example_is_told_to_be_one_of_values():
    flat = lambda: nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))  # noqa: E731
    with pytest.raises(
        InvalidModel, match=r"but its networks give shape \(2,\)\. If such networks give values: outputs = 'values'"
    ):
        plures.run(fedem(), lines(), flat, rounds=1)


def test_weights_that_fix_every_network_are_refused_and_those_of_a_part_are_not(tmp_path):
    trained = mlp(shape=(1, 8, 8), classes=10)
    whole, part = tmp_path / "whole.pt", tmp_path / "part.pt"
    torch.save(trained.state_dict(), whole)
    torch.save({name: value for name, value in trained.state_dict().items() if name.startswith("body")}, part)

    def experiment(path):
        model = {"name": "mlp", "weights": str(path), "match": "loose"}
        return make_experiment({"method": "fedem", "rounds": 1, "data": {"source": "digits"}, "model": model})

    with pytest.raises(InvalidModel, match="Components 0 and 1 of the mixture start with the same values"):
        run_experiment(experiment(whole))
    assert run_experiment(experiment(part)).status == "finished"


def test_networks_that_diverge_are_told_although_losses_that_are_no_numbers_are_passed_by():
    """Padding has such losses too, and is no divergence."""
    with pytest.raises(Diverged, match="not finite numbers"):
        tiny(9, lr=1e200)
