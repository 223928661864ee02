"""Chains of linear layers: which networks are some, and steps by hand that are those of autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.client import run_client
from plures.core.problem import plain_steps
from plures.engines import fused, repeated
from plures.engines.chain_phases import chain_steps
from plures.engines.chains import chain_of
from plures.engines.fused import fused_steps
from plures.local import adam, epochs, sgd, steps
from plures.methods import ditto, fedavg, fedper, fedrep, finetune, pflego
from plures.models import leaf_cnn, mlp
from tests.helpers.methods import assert_near, play


class Written(nn.Module):
    """A chain as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(torch.flatten(inputs, 1))))


class Deeper(Written):
    def __init__(self) -> None:
        super().__init__()
        self.between = nn.Linear(5, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(F.relu(self.between(F.relu(self.first(inputs)))))


class Skipping(Written):
    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.first(inputs))
        return self.second(hidden) + self.second(hidden)


class Scaled(Written):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(F.relu(2 * self.first(inputs)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(F.relu(self.first(F.relu(self.first(inputs)))))


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3))
    module[0].register_forward_hook(lambda layer, given, output: 2 * output)
    return module


CHAINS = {
    "written": (Written, ["tanh", "none"]),
    "mlp": (lambda: mlp(shape=(1, 2, 2), classes=3, hidden=(5, 6)), ["relu", "relu", "none"]),
    "sequential": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), ["relu", "none"]),
    "two layers without a bend": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), ["none", "none"]),
}
OTHERS = {
    "skipping": Skipping,
    "scaled": Scaled,
    "hooked": hooked,
    "dropout": lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(), nn.Linear(6, 3)),
    "norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)),
    "convolutions": lambda: leaf_cnn(shape=(1, 28, 28), classes=10),
    "another bend": lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3)),
    "bent at the end": lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()),
    "a layer used twice": Twice,
    "bent at the start": lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 3)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_found_in_networks_of_any_style(name):
    make, bends = CHAINS[name]
    assert [link.bend for link in chain_of(make())] == bends


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_none(name):
    assert chain_of(OTHERS[name]()) is None


class Steps:
    """Runs clients with one way of stepping, and counts how often it was by hand."""

    name = "steps"

    def __init__(self, stepping) -> None:
        self.stepping = stepping

    def run(self, program, visits):
        for visit in visits:
            yield run_client(program.method, program.binding(visit.client), visit, stepping=self.stepping)


MINI = epochs(3, batch=2)
FULL = steps(12)
METHODS = {
    "full batches": fedavg(budget=FULL),
    "full batches, two rates": fedper(budget=FULL, lr=0.2, personal="*second*"),
    "full batches, weight decay": fedavg(budget=FULL, lr=sgd(0.3, weight_decay=0.2)),
    "full batches, momentum": fedavg(budget=FULL, lr=sgd(0.1, momentum=0.9)),
    "full batches, only the head moves": finetune(personal="head", budget=FULL),
    "full batches, an observed gradient": pflego(tau=9, cache_features=False, personal="*second*"),
    "sgd": fedavg(budget=MINI),
    "weight decay": fedavg(budget=MINI, lr=sgd(0.3, weight_decay=0.2)),
    "only the head moves": finetune(personal="head", budget=MINI),
    "head and body in turn": fedrep(budget=MINI, head_budget=MINI, personal="*second*"),
    "momentum": fedavg(budget=MINI, lr=sgd(0.1, momentum=0.9)),
    "momentum and weight decay": fedavg(budget=MINI, lr=sgd(0.1, momentum=0.8, weight_decay=0.2)),
    "a gradient that is observed": pflego(tau=3, batch=2, cache_features=False, personal="*second*"),
    "two rates": fedper(budget=MINI, lr=0.2, personal="*second*"),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("make", [Written, Deeper])
def test_steps_by_hand_are_those_of_autograd(name, make):
    torch.manual_seed(3)
    module, method, by_hand = make().double(), METHODS[name], []

    def noted(problem, watch=None):
        done = chain_steps(problem)
        by_hand.append(done is not None)
        return plain_steps(problem) if done is None else done

    fast = play(method, 2, module=module, engine=Steps(noted))
    slow = play(method, 2, module=module, engine=Steps(plain_steps))
    assert by_hand
    assert all(by_hand)
    assert_near(fast.shared, slow.shared, 1e-12)
    for client, state in slow.final.items():
        assert_near(fast.final[client], state, 1e-12)
    for mine, theirs in zip(fast.reports, slow.reports, strict=True):
        assert mine.losses == pytest.approx(theirs.losses, rel=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        fedavg(lr=sgd(0.1, momentum=0.9), budget=MINI),
        fedavg(lr=sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.1), budget=MINI),
        fedavg(lr=adam(0.1), budget=MINI),
        fedavg(clip_norm=0.1, budget=MINI),
        ditto(budget=MINI),
    ],
    ids=["momentum", "nesterov", "adam", "clipped", "twin with a pull"],
)
def test_what_is_not_plain_is_stepped_in_place_to_the_same_numbers(method, monkeypatch):
    monkeypatch.setattr(fused, "chain_steps", lambda problem: None)
    fast, slow = (play(method, 2, engine=Steps(stepping)) for stepping in (fused_steps, plain_steps))
    assert_near(fast.shared, slow.shared, 1e-12)
    for client, state in slow.final.items():
        assert_near(fast.final[client], state, 1e-12)


class Unused(Written):
    """Has a parameter that the output does not depend on: weight decay moves it all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Parameter(torch.ones(3))


def test_what_is_outside_of_the_chain_decays_too():
    torch.manual_seed(3)
    method, module = fedavg(budget=MINI, lr=sgd(0.3, weight_decay=0.2)), Unused().double()
    fast, slow = (play(method, 1, module=module, engine=Steps(stepping)) for stepping in (fused_steps, plain_steps))
    assert float(slow.shared["spare"][0]) < 1
    assert_near(fast.shared, slow.shared, 1e-12)


def test_in_single_precision_a_round_agrees_to_one_in_a_hundred_thousand():
    torch.manual_seed(0)
    module = mlp(shape=(4,), classes=3, hidden=(50,)).float()
    fast, slow = (play(fedavg(budget=MINI), 1, module=module, engine=Steps(s)) for s in (fused_steps, plain_steps))
    assert_near(fast.shared, slow.shared, 1e-5)


@pytest.mark.parametrize("make", [Written, Deeper])
@pytest.mark.parametrize("worth", [0.0, 1e9], ids=["never", "always"])
def test_one_batch_again_and_again_gives_the_same_with_and_without_the_detour(monkeypatch, make, worth):
    torch.manual_seed(3)
    module, method, taken = make().double(), fedper(budget=FULL, lr=0.2, personal="*second*"), []
    monkeypatch.setattr(repeated, "WORTH", worth)
    finish = repeated.RepeatedSteps.finish
    monkeypatch.setattr(repeated.RepeatedSteps, "finish", lambda steps: (taken.append(1), finish(steps)))

    fast = play(method, 3, module=module, engine=Steps(fused_steps))
    slow = play(method, 3, module=module, engine=Steps(plain_steps))

    assert bool(taken) == bool(worth)
    assert_near(fast.shared, slow.shared, 1e-12)
    for client, state in slow.final.items():
        assert_near(fast.final[client], state, 1e-12)


@pytest.mark.parametrize(
    ("steps", "examples", "width", "expected"),
    [(50, 600, 784, True), (50, 6000, 784, False), (1, 60, 784, False), (0, 60, 784, False)],
)
def test_the_detour_is_taken_where_it_is_less_work(steps, examples, width, expected):
    # 2 S N d h products plainly; N N (S h + d) + 2 N d h by inputs.
    assert repeated.pays(steps, torch.empty(examples, 1), torch.empty(200, width)) is expected
