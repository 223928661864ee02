"""What cannot be taken in lockstep is known, with the reason, and done one client after another."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.goals import CLASSIFICATION, next_token
from plures.core.method import Method, Optimizer
from plures.core.networks import OneNetwork
from plures.core.problem import descend
from plures.core.program import Program
from plures.core.seeds import generator
from plures.core.types import PERSONAL, SHARED, Batch
from plures.engines.sequential import Sequential
from plures.engines.vectorisable import why_not
from plures.engines.vectorised import Vectorised
from plures.local import epochs, sgd
from plures.models import MODELS
from plures.parts import patterns, split
from tests.core.helpers import Clients, class_clients, half_square, method, network, phase, visit_to
from tests.engines.test_vectorised import assert_agree

CLIENTS = class_clients((4, 7, 9))
BUDGET = epochs(1, batch=3)


def layers(*between: nn.Module) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), *between, nn.Linear(4, 3)).double()


class Centred(nn.Module):
    """Takes the mean of the batch off, without being a layer that is known to."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(dim=0)


class Counting(nn.Module):
    """Writes into a buffer that is no running statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return inputs


class Noisy(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.randn_like(inputs)


class Branching(nn.Module):
    """Looks at values, which are not there while a network is mapped."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs if inputs.sum() > 0 else -inputs


@dataclass(frozen=True, kw_only=True)
class Mine:
    """An optimiser that is not known to treat every coordinate alike."""

    rule: Optimizer

    @property
    def lr(self):
        return self.rule.lr

    def init(self, params):
        return self.rule.init(params)

    def update(self, grads, state, params, lr):
        return self.rule.update(grads, state, params, lr)


def by_examples(params, visit):
    return params["0.weight"].square().sum() * visit.facts.examples


def by_client(params, visit):
    return params["0.weight"].square().sum() * (2.0 if visit.client == 1 else 1.0)


def program(of: Method, module: nn.Module | None = None, loss=F.cross_entropy) -> Program:
    return Program(of, OneNetwork(module=network() if module is None else module), loss=loss, seed=1)


def plain(**changes) -> Method:
    own = split(patterns("0.bias"), buffers="shared")
    return method(phase((SHARED, PERSONAL), budget=BUDGET, **changes), split=own)


def wrapped() -> Method:
    return method(phase(SHARED, budget=BUDGET), personal=(), wrap=lambda bare: nn.Sequential(bare.module))


CASES = {
    "solver": (program(plain(solver=descend)), "a solver of its own"),
    "wrap": (program(wrapped()), "around the one that is given"),
    "dropout": (program(plain(), network(dropout=0.5)), "dropout"),
    "noise": (program(plain(), layers(Noisy())), "random"),
    "batch norm": (program(plain(), layers(nn.BatchNorm1d(4))), "batch normalisation"),
    "no running statistics": (program(plain(), layers(nn.BatchNorm1d(4, track_running_stats=False))), "batch norm"),
    "centred": (program(plain(), layers(Centred())), "depends on the others of its batch"),
    "counting": (program(plain(), layers(Counting())), "writes into its own buffers"),
    "branching": (program(plain(), layers(Branching())), "a trial failed"),
    "own loss": (
        program(plain(), loss=lambda output, targets: F.cross_entropy(output, targets)),
        "the loss is neither",
    ),
    "own optimiser": (program(plain(optimizer=Mine(rule=sgd(0.1)))), "Mine is not an optimiser of plures.local"),
    "penalty by examples": (program(plain(penalty=by_examples)), "the penalty asks for more of a visit"),
    "penalty by client": (program(plain(penalty=by_client)), "the penalty asks for more of a visit"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_reason_is_told_and_the_work_is_done_all_the_same(name):
    of, reason = CASES[name]
    visits = [visit_to(of, CLIENTS, client) for client in range(3)]
    assert reason in str(why_not(of, of.method.local[0], visits[0]))
    for wanted, found in zip(Sequential().run(of, visits), Vectorised().run(of, visits), strict=True):
        assert_agree(wanted, found, 0.0)


def test_layers_that_are_held_in_evaluation_mode_drop_nothing():
    module = network(dropout=0.5)
    module[2].eval()
    of = program(plain(), module)
    assert why_not(of, of.method.local[0], visit_to(of, CLIENTS)) is None


def test_a_trial_draws_nothing_and_changes_nothing():
    of = program(plain(), layers(Noisy()))
    visit, state = visit_to(of, CLIENTS), torch.get_rng_state()
    before = {name: value.clone() for name, value in visit.received.items()}
    why_not(of, of.method.local[0], visit)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in visit.received.items())


def test_an_own_loss_of_equal_name_is_not_taken_for_a_known_one():
    of = program(plain(), loss=half_square)
    assert "the loss is neither" in str(why_not(of, of.method.local[0], visit_to(of, CLIENTS)))


SMALL = {
    "lenet5": {"shape": (1, 28, 28), "filters": (2, 3), "fc": (8,), "classes": 5},
    "cnn_1d": {"shape": (2, 20), "filters": (3, 4), "kernel": 3, "fc": (8,), "classes": 5},
    "resnet8_gn": {"shape": (1, 8, 8), "widths": (4, 8), "groups": 2, "classes": 5},
    "mlp": {"shape": (1, 3, 3), "hidden": (6, 5), "classes": 5},
    "transformer": {"shape": (6,), "classes": 12, "width": 8, "depth": 1, "heads": 2, "hidden": 8},
    "char_lstm": {"shape": (6,), "classes": 12, "hidden": 8, "depth": 1},
}


def of_model(name: str) -> tuple[Program, Clients]:
    """The network in double precision on clients of 2 to 7 examples."""
    shape, classes = SMALL[name]["shape"], SMALL[name]["classes"]
    draws, is_text = generator(0, "test data"), len(shape) == 1
    batches = []
    for size in (4, 2, 7):
        inputs = torch.randn(size, *shape, generator=draws, dtype=torch.float64)
        tokens = torch.randint(classes, (size, *shape), generator=draws)
        labels = torch.randint(classes, (size,), generator=draws)
        batches.append(Batch(tokens, tokens.roll(1, dims=1)) if is_text else Batch(inputs, labels))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = MODELS[name](**SMALL[name]).double()
    goal = next_token() if is_text else CLASSIFICATION
    of = method(phase(SHARED, budget=BUDGET), personal=())
    return program(of, module, goal.loss), Clients(batches=tuple(batches))


@pytest.mark.parametrize("name", [name for name in SMALL if name != "char_lstm"])
def test_networks_without_statistics_run_in_lockstep(name):
    of, clients = of_model(name)
    visits = [visit_to(of, clients, client) for client in range(3)]
    assert Vectorised().reasons(of, visits[0]) == [None]
    for wanted, found in zip(Sequential().run(of, visits), Vectorised().run(of, visits), strict=True):
        assert_agree(wanted, found, 1e-10)


def test_a_network_that_cannot_be_mapped_is_run_client_by_client():
    """There is no rule for mapping torch's LSTM."""
    of, clients = of_model("char_lstm")
    visits = [visit_to(of, clients, client) for client in range(3)]
    assert "a trial failed with RuntimeError" in str(why_not(of, of.method.local[0], visits[0]))
    for wanted, found in zip(Sequential().run(of, visits), Vectorised().run(of, visits), strict=True):
        assert_agree(wanted, found, 0.0)
