"""Phases behind a frozen prefix: the same numbers as without it, and refusals that say why."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.client import Work, arrival, own_draws, run_phases
from plures.core.method import Method, Phase
from plures.core.networks import OneNetwork
from plures.core.problem import Problem, plain_steps
from plures.core.program import Program
from plures.core.types import PERSONAL, SHARED, Batch, Params
from plures.engines import prefix
from plures.engines.fused import fused_steps
from plures.engines.prefix import BehindPrefix, behind_prefix
from plures.local import epochs, proximal, sgd, steps, support
from plures.local.heads import HeadProblem
from plures.local.masks import masked, with_masks
from plures.local.views import twin, with_twin
from plures.methods import METHODS
from plures.models import leaf_cnn, mlp
from plures.parts import NamedSplit, patterns, split
from tests.core.helpers import Clients, class_clients, method, network, phase, visit_to
from tests.helpers.methods import assert_near

THREE = epochs(3, batch=4)
"""Of ten examples, with a last batch of two in each epoch."""
SMALL_CNN = {"classes": 5, "filters": (3, 4), "fc": (6,)}


@dataclass(frozen=True)
class Both:
    """The phases of one client, plainly and behind the prefix."""

    plain: Work
    cached: Work
    found: list[Problem | str]
    """Of each phase, the problem behind the prefix or the reason why there is none."""


def pictures(num_examples: int = 10, dtype: torch.dtype = torch.float64) -> Batch:
    draws = torch.Generator().manual_seed(5)
    inputs = torch.randn(num_examples, 1, 28, 28, generator=draws, dtype=torch.float64).to(dtype)
    return Batch(inputs, torch.randint(5, (num_examples,), generator=draws))


def five_numbers(num_examples: int = 10) -> Batch:
    return class_clients((num_examples,)).batches[0]


def seeded(make: Any, **options: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make(**options).double()


def program_of(of: Method, module: nn.Module, **options: Any) -> Program:
    return Program(of, OneNetwork(module=module), **{"loss": F.cross_entropy, "seed": 3} | options)


def both(
    of: Method, module: nn.Module, data: Batch, *, adapt: bool = False, steps: Any = plain_steps, **options
) -> Both:
    """The phases (or those of `adapt`) with the same draws, each from a fresh start."""
    program, clients, found = program_of(of, module, **options), Clients(batches=(data,)), []
    phases = of.adapt if adapt else of.local

    def stepping(problem: Problem, watch: Any) -> Any:
        found.append(behind_prefix(problem))
        return steps(problem if isinstance(found[-1], str) else found[-1], watch)

    def work(how: Any) -> Work:
        visit, binding = visit_to(program, clients), program.binding(0)
        with own_draws(visit):
            return run_phases(phases, binding, visit, arrival(binding, visit), stepping=how)

    return Both(work(None), work(stepping), found)


def assert_same_work(pair: Both, rel: float = 1e-10) -> None:
    assert_near(pair.cached.params, pair.plain.params, rel)
    assert_near(pair.cached.observed, pair.plain.observed, rel)
    assert_near(pair.cached.losses, pair.plain.losses, rel)
    assert pair.cached.passes == pair.plain.passes
    assert pair.cached.whole_passes == pair.plain.whole_passes


def first_problem(of: Method, module: nn.Module, data: Batch, **options: Any) -> Problem:
    program = program_of(of, module, **options)
    visit, binding = visit_to(program, Clients(batches=(data,))), program.binding(0)
    binding.task.train(True)
    return Problem(phase=of.local[0], visit=visit, binding=binding, params=arrival(binding, visit))


def head_method(*, personal: tuple[str, ...] = ("3.*",), **changes: Any) -> Method:
    """Three epochs on the personal part, by default the head of `tests.core.helpers.network`."""
    return method(phase(**{"train": PERSONAL, "budget": THREE} | changes), personal=personal)


def on_layers(*layers: nn.Module, head: str, **changes: Any) -> Both:
    """Three epochs on one layer of a Sequential that takes five numbers."""
    return both(head_method(personal=(f"{head}.*",), **changes), nn.Sequential(*layers).double(), five_numbers())


def cut_of(pair: Both) -> BehindPrefix:
    """The first phase, behind the prefix and with the same numbers as without it."""
    assert_same_work(pair)
    assert isinstance(pair.found[0], BehindPrefix), pair.found[0]
    return pair.found[0]


def refusal(pair: Both) -> str:
    """Why the first phase has nothing run once; then it is done plainly, to the last bit."""
    assert isinstance(pair.found[0], str)
    assert_same_work(pair, 0.0)
    return pair.found[0]


# Methods

HEADS = {
    "fedrep": ({"budget": THREE, "head_budget": THREE}, False),
    "fedalt": ({"budget": THREE, "personal_budget": THREE}, False),
    "fedrecon": ({"budget": THREE, "recon_budget": THREE}, False),
    "pflego": ({"tau": 5, "cache_features": False}, False),
    "finetune": ({"personal": "head", "tune": THREE}, True),
    "fedbabu": ({"finetune_part": "head", "tune": THREE}, True),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", HEADS)
def test_heads_are_trained_on_features_in_closed_form_and_come_out_the_same(name, dtype):
    options, adapt = HEADS[name]
    module = seeded(leaf_cnn, **SMALL_CNN).to(dtype)
    pair = both(METHODS[name].make(**options), module, pictures(dtype=dtype), adapt=adapt)
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair, 1e-10 if dtype == torch.float64 else 1e-5)


def test_fused_steps_behind_the_prefix_come_out_the_same():
    of = METHODS["fedrep"].make(budget=THREE, head_budget=THREE, head_lr=sgd(0.1, momentum=0.9), clip_norm=0.5)
    assert_same_work(both(of, seeded(leaf_cnn, **SMALL_CNN), pictures(), steps=fused_steps))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("fedavg", {}, "all of the network moves"),
        ("fedsim", {}, "all of the network moves"),
        ("ditto", {"personal_budget": THREE}, "all of the network moves"),
        ("fedspa", {}, "all of the network moves"),
        ("lg_fedavg", {}, "all of the network moves"),
        (
            "fedrecon",
            {"personal": "first_layer", "recon_budget": THREE},
            "every batch has to take: 'body.0.bias' moves",
        ),
    ],
)
def test_phases_that_move_the_first_layers_are_refused(name, options, reason):
    pair = both(METHODS[name].make(**{"budget": THREE} | options), seeded(leaf_cnn, **SMALL_CNN), pictures())
    assert isinstance(pair.found[0], str)
    assert reason in pair.found[0]
    assert_same_work(pair, 0.0)


def test_a_phase_that_observes_the_body_is_refused():
    of = method(Phase(train=PERSONAL, observe=SHARED, budget=THREE, optimizer=sgd(0.1)), personal=("3.*",))
    assert behind_prefix(first_problem(of, network(), five_numbers())) == "all of the network moves"


# What a phase may ask for


@pytest.mark.parametrize(
    "changes",
    [
        {"penalty": proximal(0.3)},
        {"optimizer": sgd(0.1, momentum=0.9, weight_decay=0.01), "clip_norm": 0.2},
        {"scale": lambda facts: 0.5},
        {"budget": steps(7)},
        {"budget": steps(9, batch=3)},
        {"budget": support(epochs(4, batch=2))},
    ],
    ids=["penalty", "momentum", "scale", "full", "steps", "half"],
)
def test_whatever_a_phase_asks_for_comes_out_the_same(changes):
    pair = both(head_method(**changes), network(), five_numbers())
    assert isinstance(pair.found[0], HeadProblem if "penalty" not in changes else BehindPrefix)
    assert_same_work(pair)


def test_a_part_of_the_head_may_move_alone():
    pair = both(head_method(personal=("3.bias",)), network(), five_numbers())
    assert isinstance(pair.found[0], BehindPrefix)
    assert_same_work(pair)


def test_targets_that_have_no_class_have_no_loss():
    """-100 is what cross-entropy passes by; the closed form knows nothing of it."""
    inputs, targets = five_numbers()
    pair = both(head_method(), network(), Batch(inputs, targets.index_fill(0, torch.tensor([0, 3]), -100)))
    assert isinstance(pair.found[0], BehindPrefix)
    assert_same_work(pair)


def test_regression_behind_the_prefix():
    data = Batch(five_numbers().inputs, torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None])
    pair = both(head_method(), network(classes=1), data, loss=F.mse_loss)
    assert isinstance(pair.found[0], BehindPrefix)
    assert_same_work(pair)


def test_a_client_of_one_example():
    pair = both(head_method(), network(), five_numbers(1))
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)


@pytest.mark.parametrize("at_once", [1, 3, 10, 1024])
def test_any_number_of_examples_may_pass_the_prefix_together(monkeypatch, at_once):
    monkeypatch.setattr(prefix, "AT_ONCE", at_once)
    assert_same_work(both(head_method(), network(), five_numbers()))
    assert_same_work(both(head_method(budget=support(THREE)), network(), five_numbers()))


# Views


def test_masks_over_a_frozen_body_are_applied_once():
    of = method(phase("shared.head", budget=THREE, view=masked), personal=())
    rules = {"shared.head": patterns("3.*")}

    def half_masks(net: Any) -> Any:
        return {
            part: {name: torch.arange(mask.numel()).reshape(mask.shape) % 2 == 0 for name, mask in masks.items()}
            for part, masks in with_masks(net).items()
        }

    of = replace(of, split=NamedSplit(rules=rules), extend=half_masks)
    pair = both(of, network(), five_numbers())
    assert isinstance(pair.found[0], BehindPrefix)
    assert_same_work(pair)


def test_a_twin_whose_head_alone_moves():
    def head_twin(net: Any) -> Any:
        twins = with_twin(net)[PERSONAL]
        return {PERSONAL: {name: value for name, value in twins.items() if name.startswith("twin.3.")}}

    of = replace(method(phase(PERSONAL, budget=THREE, view=twin), personal=()), extend=head_twin)
    pair = both(of, network(), five_numbers())
    assert isinstance(pair.found[0], BehindPrefix)
    assert_same_work(pair)


def scaled_by_bias_sign(params: Params, inputs: Tensor) -> Params:
    """The body is doubled while the head's first bias is positive: no gradient tells of that."""
    return params | {"0.weight": params["0.weight"] * (1.0 + float(params["3.bias"][0] > 0))}


def scaled_by_inputs(params: Params, inputs: Tensor) -> Params:
    return params | {"0.weight": params["0.weight"] * inputs.mean()}


def with_noise(params: Params, inputs: Tensor) -> Params:
    return params | {"0.weight": params["0.weight"] + 0.0 * torch.rand(())}


@pytest.mark.parametrize(
    ("view", "reason"),
    [(scaled_by_bias_sign, "'0.weight' moves"), (scaled_by_inputs, "'0.weight' moves"), (with_noise, "the view draws")],
)
def test_a_view_that_makes_the_body_depend_on_the_head_the_inputs_or_chance_is_refused(view, reason):
    found = behind_prefix(first_problem(head_method(view=view), network(), five_numbers()))
    assert isinstance(found, str)
    assert reason in found


# What is of no use, or too much


@pytest.mark.parametrize("budget", [epochs(1, batch=4), steps(1), steps(2, batch=4), support(epochs(1, batch=2))])
def test_a_phase_that_sees_every_example_once_gains_nothing(budget):
    found = behind_prefix(first_problem(head_method(budget=budget), network(), five_numbers()))
    assert found == "no example is looked at twice, so there is nothing to gain"


@dataclass  # and so without a hash
class Drawn:
    """Eight batches of two, drawn with replacement."""

    stream: str = ""

    def batches(self, num_examples: int, generator: torch.Generator) -> Any:
        return (torch.randint(num_examples, (2,), generator=generator) for _ in range(8))


def test_any_budget_will_do():
    pair = both(head_method(budget=Drawn()), network(), five_numbers())
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)


def test_a_client_without_examples_gains_nothing():
    found = behind_prefix(first_problem(head_method(), network(), five_numbers(0)))
    assert found == "no example is looked at twice, so there is nothing to gain"


def test_a_phase_that_moves_nothing_is_refused():
    found = behind_prefix(first_problem(head_method(train=()), network(), five_numbers()))
    assert found == "nothing moves that the network sees"


def test_augmented_examples_are_refused():
    given = first_problem(head_method(), network(), five_numbers(), augment=lambda inputs, draws: inputs + 1)
    assert "augmented" in behind_prefix(given)


def test_more_than_the_allowed_memory_is_not_kept(monkeypatch):
    """Four features of 8 bytes for each of ten examples are 320 bytes."""
    monkeypatch.setattr(prefix, "MOST_BYTES", 320)
    assert isinstance(behind_prefix(first_problem(head_method(), network(), five_numbers())), HeadProblem)
    monkeypatch.setattr(prefix, "MOST_BYTES", 319)
    assert "MB" in behind_prefix(first_problem(head_method(), network(), five_numbers()))


def test_what_has_a_network_of_its_own_is_left_alone():
    found = behind_prefix(first_problem(head_method(), network(), five_numbers()))
    assert isinstance(found, HeadProblem)
    assert "already" in behind_prefix(found)


# Passes, draws and memory


def test_the_prefix_runs_once_for_the_examples_that_a_phase_looks_at():
    """After the first phase has tried the network out: two examples alone, and the support half of ten examples."""
    passed: list[int] = []
    module = network()
    module[0].register_forward_hook(lambda layer, given, output: passed.append(len(given[0])))
    given = first_problem(head_method(budget=support(epochs(4, batch=2))), module, five_numbers())
    found = behind_prefix(given)
    assert isinstance(found, HeadProblem)
    passed.clear()
    found = behind_prefix(given)
    assert sorted(passed) == [2, 5]
    passed.clear()
    plain_steps(found)
    assert passed == []


def test_no_draw_is_made_and_no_parameter_is_changed():
    given = first_problem(head_method(), network(dropout=0.5), five_numbers())
    before, state = {name: value.clone() for name, value in given.params.items()}, torch.get_rng_state()
    own = {name: value.clone() for name, value in given.binding.task.module.state_dict().items()}
    assert isinstance(behind_prefix(given), BehindPrefix)
    assert torch.equal(state, torch.get_rng_state())
    assert_near(given.params, before, 0.0)
    assert_near(dict(given.binding.task.module.state_dict()), own, 0.0)


def test_a_network_is_followed_once_for_all_clients(monkeypatch):
    followed = []
    usual = prefix.trace
    monkeypatch.setattr(prefix, "trace", lambda *given: followed.append(1) or usual(*given))
    given = first_problem(head_method(), network(), five_numbers())
    for _ in range(3):
        assert isinstance(behind_prefix(given), HeadProblem)
    assert len(followed) == 1


def test_a_network_in_another_mode_is_followed_again():
    given = first_problem(head_method(), network(dropout=0.5), five_numbers())
    assert isinstance(behind_prefix(given), BehindPrefix)
    given.binding.task.train(False)
    assert isinstance(behind_prefix(given), HeadProblem)


def test_a_network_that_is_gone_is_forgotten():
    given = first_problem(head_method(), network(), five_numbers())
    found = behind_prefix(given)
    module = weakref.ref(given.binding.task.module)
    assert module() in prefix._KNOWN
    del given, found
    gc.collect()
    assert module() is None


def test_the_mlp_of_the_demo_has_a_linear_head():
    of = replace(METHODS["fedrep"].make(head_budget=THREE), split=split(patterns("head.*")))
    pair = both(of, seeded(mlp, shape=(1, 28, 28), hidden=(8, 6), classes=5), pictures())
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)
