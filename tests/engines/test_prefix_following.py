"""Networks that are hard to follow: forks, stages, shapes, functions, hooks and state of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plures.engines.prefix import behind_prefix
from plures.local.heads import HeadProblem
from tests.engines.test_prefix import (
    assert_same_work,
    both,
    cut_of,
    first_problem,
    five_numbers,
    head_method,
    on_layers,
    pictures,
    refusal,
)


@pytest.fixture(autouse=True)
def same_first_values():
    """Networks are made with the same values in every run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


# Networks that cannot be followed


class Forked(nn.Module):
    """Which way it goes depends on its inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(inputs) if inputs.mean() > 0 else torch.sigmoid(inputs)


class Branching(nn.Module):
    """Body and head with a fork in its own forward, which does what its stages do."""

    def __init__(self, *, between: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.between, self.head = nn.Linear(5, 4), between or nn.Tanh(), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        if bool(torch.isnan(inputs).any()):
            raise ValueError("inputs must be numbers")
        return self.head(self.between(self.body(inputs)))


class Staged(Branching):
    @property
    def stages(self) -> list[nn.Module]:
        return [self.body, self.between, self.head]


class WronglyStaged(Branching):
    @property
    def stages(self) -> list[nn.Module]:
        return [self.body, self.head]


class StrangelyStaged(Branching):
    @property
    def stages(self) -> list[nn.Module]:
        return [self.body, nn.Tanh(), self.head]


OWN_HEAD = {"personal": ("head.*",)}


def test_a_network_whose_way_depends_on_its_inputs_is_refused():
    why = refusal(both(head_method(**OWN_HEAD), Branching().double(), five_numbers()))
    assert "cannot be known before it runs (TraceError: what it does depends on its inputs)" in why


def test_declared_stages_are_cut_all_the_same():
    pair = both(head_method(**OWN_HEAD), Staged().double(), five_numbers())
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)


def test_stages_that_do_not_do_what_the_network_does_are_refused():
    why = refusal(both(head_method(**OWN_HEAD), WronglyStaged().double(), five_numbers()))
    assert "does not do what the whole one does" in why


def test_stages_must_be_modules_of_the_network():
    why = refusal(both(head_method(**OWN_HEAD), StrangelyStaged().double(), five_numbers()))
    assert "no modules of its own" in why


def test_a_fork_inside_one_layer_ends_the_prefix_there():
    pair = on_layers(nn.Linear(5, 4), Forked(), nn.Linear(4, 4), nn.Linear(4, 3), head="3")
    assert set(cut_of(pair).cut.prefix_names.values()) == {"0.weight", "0.bias"}
    assert "what '0' does cannot be known" in refusal(on_layers(Forked(), nn.Linear(5, 4), nn.Linear(4, 3), head="2"))


class Centred(nn.Module):
    """Takes the mean of the batch away."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(dim=0)


class Picking(nn.Module):
    """How many numbers it adds up depends on them."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + inputs[inputs > 0].sum() / 100


@pytest.mark.parametrize("layer", [Centred(), Picking()], ids=["centred", "picking"])
def test_what_looks_at_several_examples_ends_the_prefix(layer):
    pair = on_layers(nn.Linear(5, 4), layer, nn.Linear(4, 3), head="2")
    assert set(cut_of(pair).cut.prefix_names.values()) == {"0.weight", "0.bias"}


class CentredWhenLarge(nn.Module):
    """Takes the mean away of more than three examples."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(dim=0) if len(inputs) > 3 else inputs


def test_stages_that_look_at_several_examples_are_refused_even_where_a_few_do_not_show_it():
    why = refusal(both(head_method(**OWN_HEAD), Staged(between=CentredWhenLarge()).double(), five_numbers()))
    assert "depends on the other examples of its batch" in why


class Shaped(nn.Module):
    """Asks for its shape in every way that does not look at numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 6), nn.Linear(6, 3)
        self.register_buffer("offset", torch.arange(6.0))

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dim() != 2 or inputs.size(-1) != 5 or not inputs.is_floating_point():
            raise ValueError("inputs are rows of five numbers")
        features = self.body(inputs) + self.offset[: inputs.shape[1] + 1]
        parts = [part * (number + 1) for number, part in enumerate(features.view(inputs.size(0), 2, 3).unbind(1))]
        weights = torch.ones(len(parts), dtype=features.dtype, device=features.device)
        joined = torch.stack([part * weight for part, weight in zip(parts, weights, strict=True)], dim=1)
        return self.head(joined.reshape(-1, joined.shape[1:].numel()))


def test_a_network_may_ask_for_shapes():
    pair = both(head_method(**OWN_HEAD), Shaped().double(), five_numbers())
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)


class TimesFirst(nn.Module):
    """A head that works on (time, example) after a body that works on (example, time)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(1, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs[..., None]).transpose(0, 1)).mean(dim=0)


def test_what_has_no_row_for_each_example_is_made_anew_for_each_batch():
    pair = both(head_method(**OWN_HEAD), TimesFirst().double(), five_numbers())
    assert [tuple(value.shape) for value in cut_of(pair).values] == [(10, 5, 4)]


# Functions, hooks and state of their own


class Doubled(torch.autograd.Function):
    """x, with a gradient twice as large: a graph of the forward pass alone would lose that."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * grads[0]


class WithFunction(nn.Module):
    def __init__(self, function: Any = None) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        function = self.function or Doubled.apply
        return self.head(function(self.second(function(self.first(inputs)))))


def test_autograd_functions_keep_their_backward_pass():
    pair = both(head_method(personal=("second.*", "head.*")), WithFunction().double(), five_numbers())
    assert set(cut_of(pair).cut.prefix_names.values()) == {"first.weight", "first.bias"}


def lost_gradient(value: Tensor) -> Tensor:
    """Looks like x to whoever follows it without numbers, and has no gradient otherwise."""
    return value.detach() if isinstance(value, Tensor) else value * 1


def test_a_network_that_behaves_otherwise_when_followed_is_refused():
    pair = both(head_method(personal=("second.*", "head.*")), WithFunction(lost_gradient).double(), five_numbers())
    assert "does not do what the whole one does" in refusal(pair)


@pytest.mark.parametrize("place", [0, 3])
def test_hooks_on_layers_run_as_often_as_their_layers(place):
    """In the prefix for two examples alone and for all ten; behind it for each batch."""
    seen: list[int] = []
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3)).double()
    module[place].register_forward_hook(lambda layer, given, output: seen.append(len(output)))
    given = first_problem(head_method(), module, five_numbers())
    behind_prefix(given)
    seen.clear()
    found = behind_prefix(given)
    assert not isinstance(found, str)
    assert sorted(seen) == ([2, 10] if place == 0 else [])
    found.loss(given.params, next(found.batches()))
    assert len(seen) == (2 if place == 0 else 1)


def test_a_hook_that_would_be_lost_is_refused():
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Dropout(0.0), nn.Linear(4, 3)).double()
    module.register_forward_hook(lambda layer, given, output: output * 2)
    assert "hook" in refusal(both(head_method(), module, five_numbers()))


def test_hooks_on_gradients_are_refused():
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Dropout(0.0), nn.Linear(4, 3)).double()
    module[3].register_full_backward_hook(lambda layer, given, output: None)
    assert "hooks look at gradients" in behind_prefix(first_problem(head_method(), module, five_numbers()))


class Counting(nn.Module):
    """Its temperature falls with every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.passes = nn.Linear(5, 4), nn.Linear(4, 3), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        return self.head(self.body(inputs) / self.passes)


def test_a_network_that_counts_its_passes_is_refused():
    given = first_problem(head_method(**OWN_HEAD), Counting().double(), five_numbers())
    assert "changes attributes of its own" in behind_prefix(given)
    assert given.binding.task.module.passes == 0


class Heated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.temperature = nn.Linear(5, 4), nn.Linear(4, 3), 1.0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs) / self.temperature)


def test_an_attribute_that_was_changed_meanwhile_is_seen():
    """Features are divided by the temperature."""
    given = first_problem(head_method(**OWN_HEAD), Heated().double(), five_numbers())
    cold = behind_prefix(given)
    given.binding.task.module.temperature = 2.0
    hot = behind_prefix(given)
    assert torch.allclose(hot.visit.data.inputs * 2, cold.visit.data.inputs)


class InPlace(nn.Module):
    """The head's way writes into what the body gave."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale, self.head = nn.Linear(5, 4), nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.body(inputs)
        return self.head(features.mul_(self.scale))


def test_what_would_be_kept_must_not_be_written_into():
    why = refusal(both(head_method(personal=("head.*", "scale")), InPlace().double(), five_numbers()))
    assert "writes into" in why


def test_inputs_must_not_be_written_into():
    data = five_numbers()
    before = data.inputs.clone()
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    assert "writes into its inputs" in refusal(both(head_method(), module, data))
    assert torch.equal(data.inputs, before)


def test_layers_that_write_in_place_within_the_prefix_are_fine():
    layers = nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)
    pair = on_layers(*layers, head="4")
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)


def test_a_prefix_that_only_flattens_is_not_worth_it():
    module = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(784, 5), nn.Linear(5, 5)).double()
    module[3].weight.requires_grad_(False)
    assert "no layer of the network comes before" in refusal(both(head_method(personal=("2.*",)), module, pictures()))
