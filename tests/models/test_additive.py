"""The generalised additive model: what it computes, whose its parameters are, and how FedAlt fits residuals."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.types import Batch
from plures.local import steps
from plures.methods import fedalt, fedsim
from plures.models import mlp
from plures.models.additive import additive
from plures.parts import personal_branch, split
from plures.stores.memory import MemoryStore
from tests.core.helpers import Clients, class_clients, rounds_of
from tests.parts.networks import seeded


def pair(outputs=3):
    return tuple(seeded(nn.Linear, 5, outputs, seed=seed).double() for seed in (0, 1))


def inputs(num_examples=4):
    return torch.randn(num_examples, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_sum_is_that_of_both_outputs_and_has_no_mixing_weight():
    shared, personal = pair()
    model = additive(shared, personal, fusion="sum")
    assert torch.equal(model(inputs()), shared(inputs()) + personal(inputs()))
    assert {name for name, _ in model.named_parameters()} == {
        "shared.weight",
        "shared.bias",
        "personal.weight",
        "personal.bias",
    }


@pytest.mark.parametrize("weight", [0.5, 0.2, 0.9])
def test_logits_are_mixed_by_the_sigmoid_of_the_mixing_weight(weight):
    shared, personal = pair()
    model = additive(shared, personal, shared_weight=weight)
    assert torch.sigmoid(model.mixing).item() == pytest.approx(weight, rel=1e-12)
    expected = weight * shared(inputs()) + (1 - weight) * personal(inputs())
    torch.testing.assert_close(model(inputs()), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight", [0.5, 0.2, 0.9])
def test_probabilities_are_mixed_as_in_the_paper_and_cross_entropy_takes_their_logarithms(weight):
    shared, personal = pair()
    model = additive(shared, personal, fusion="probabilities", shared_weight=weight)
    mixture = weight * shared(inputs()).softmax(dim=1) + (1 - weight) * personal(inputs()).softmax(dim=1)
    torch.testing.assert_close(model(inputs()).exp(), mixture, rtol=1e-12, atol=1e-12)
    targets = torch.tensor([0, 2, 1, 1])
    loss = F.cross_entropy(model(inputs()), targets)
    torch.testing.assert_close(loss, F.nll_loss(mixture.log(), targets), rtol=1e-12, atol=1e-12)


def test_probabilities_near_zero_do_not_become_infinite():
    shared, personal = pair()
    model = additive(shared, personal, fusion="probabilities")
    with torch.no_grad():
        for layer in (shared, personal):
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor([2000.0, 0.0, -2000.0]))
    assert model(inputs())[0].tolist() == pytest.approx([0.0, -2000.0, -4000.0])


def test_both_models_may_be_behind_a_shared_input_layer():
    shared, personal = pair()
    layer = nn.Linear(7, 5).double()
    model = additive(shared, personal, input_layer=layer, fusion="sum")
    given = torch.randn(2, 7, dtype=torch.float64)
    assert torch.equal(model(given), shared(layer(given)) + personal(layer(given)))
    parts = split(personal_branch()).resolve(model)
    assert {name for name, part in parts.items() if part == "personal"} == {"personal.weight", "personal.bias"}


def test_the_mixing_weight_is_personal_by_role_and_shared_by_pattern():
    model = additive(*pair())
    assert split("personal_branch").resolve(model)["mixing"] == "personal"
    assert split("personal.*").resolve(model)["mixing"] == "shared"
    assert model.mixing.dtype == torch.float64


# Training


def regression_clients():
    """Targets are a common line and one of the client's own."""
    draws = torch.Generator().manual_seed(3)
    batches = []
    for client in range(2):
        x = torch.randn(8, 5, generator=draws, dtype=torch.float64)
        own = torch.full((5, 1), float(client), dtype=torch.float64)
        batches.append(Batch(x, x @ (torch.ones(5, 1, dtype=torch.float64) + own)))
    return Clients(batches=tuple(batches))


def test_the_personal_phase_of_fedalt_fits_the_residual_of_the_shared_model():
    shared, personal = pair(outputs=1)
    method = fedalt(personal=personal_branch(), lr=0.1, budget=steps(1), server=1.0)
    model = additive(copy.deepcopy(shared), copy.deepcopy(personal), fusion="sum")
    program = Program(method, OneNetwork(module=model), loss=F.mse_loss, seed=1)
    population, store = regression_clients(), MemoryStore()
    rounds_of(program, population, 1, store=store)
    for client, batch in enumerate(population.batches):
        residual = (batch.targets - shared(batch.inputs)).detach()
        alone = copy.deepcopy(personal)
        F.mse_loss(alone(batch.inputs), residual).backward()
        expected = alone.weight - 0.1 * alone.weight.grad
        torch.testing.assert_close(store.get(client)["personal.weight"], expected.detach(), rtol=1e-12, atol=1e-12)


def test_fedalt_learns_the_common_line_and_each_clients_own():
    model = additive(*pair(outputs=1), fusion="sum")
    method = fedalt(personal=personal_branch(), lr=0.05, budget=steps(5))
    program = Program(method, OneNetwork(module=model), loss=F.mse_loss, seed=1)
    done = rounds_of(program, regression_clients(), 40)
    assert all(loss < 0.05 for loss in done[-1].report.losses.values()), done[-1].report.losses


@pytest.mark.parametrize("fusion", ["logits", "probabilities"])
def test_a_classifier_moves_its_mixing_weight_on_each_client(fusion):
    model = additive(*pair(), fusion=fusion)
    program = Program(
        fedsim(personal=personal_branch(), lr=0.5, budget=steps(3)),
        OneNetwork(module=model),
        loss=F.cross_entropy,
        seed=1,
    )
    store = MemoryStore()
    done = rounds_of(program, class_clients((6, 6)), 2, store=store)
    assert done[-1].server.shared.keys() == {"shared.weight", "shared.bias"}
    values = {store.get(client)["mixing"].item() for client in range(2)}
    assert len(values | {0.0}) == 3


@pytest.mark.parametrize(
    ("wrong", "say"),
    [
        (lambda: additive(*pair(), fusion="logit"), "no fusion 'logit'. Did you mean 'logits'"),
        (lambda: additive(*pair(), shared_weight=1.0), "between 0 and 1, not 1.0"),
    ],
)
def test_what_cannot_work_is_an_error(wrong, say):
    with pytest.raises(InvalidModel, match=say):
        wrong()


def test_one_model_in_both_places_is_an_error():
    model = mlp(shape=(5,))
    with pytest.raises(InvalidModel, match="parameters in common"):
        additive(model, model)


def test_outputs_of_two_shapes_are_an_error_that_tells_both():
    model = additive(nn.Linear(5, 3), nn.Linear(5, 1))
    with pytest.raises(InvalidModel, match=r"\(4, 3\), the personal one of \(4, 1\)"):
        model(inputs().float())
