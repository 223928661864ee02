"""Networks with frozen prefixes of every kind: where they are cut, and where chance or statistics end a prefix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.goals import next_token
from plures.core.types import Batch
from plures.engines.prefix import BehindPrefix
from plures.local import epochs, steps
from plures.local.heads import HeadProblem
from plures.methods import METHODS
from plures.models import additive, char_lstm, char_transformer, resnet8_gn, split_input
from plures.parts import bottleneck_adapters, conv_adapters, head, input_dropout, lora, personal_branch
from tests.engines.test_prefix import (
    THREE,
    assert_same_work,
    both,
    cut_of,
    five_numbers,
    head_method,
    on_layers,
    pictures,
    refusal,
    seeded,
)
from tests.helpers.methods import assert_near

SMALL_RESNET = {"widths": (4, 8, 8), "classes": 5}
SMALL_TRANSFORMER = {"shape": (7,), "classes": 11, "width": 8, "depth": 2, "heads": 2, "hidden": 12}


@pytest.fixture(autouse=True)
def same_first_values():
    """Networks are made with the same values in every run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def personal_phase(personal: Any, **options: Any) -> Any:
    return METHODS["fedalt"].make(personal=personal, personal_budget=THREE, budget=epochs(1, batch=4), **options)


def tokens(num_examples: int = 10, classes: int = 11) -> Batch:
    """Sequences of seven; the targets of some places are padding."""
    draws = torch.Generator().manual_seed(5)
    return Batch(*(torch.randint(classes, (num_examples, 7), generator=draws) for _ in range(2)))


# Networks of plures.models


def test_the_last_block_of_a_residual_network_takes_one_value():
    pair = both(personal_phase(("blocks.2.*", "head.*")), seeded(resnet8_gn, **SMALL_RESNET), pictures())
    assert [tuple(value.shape) for value in cut_of(pair).values] == [(10, 8, 14, 14)]


def test_the_second_half_of_a_residual_block_takes_two_values():
    """What came through the first convolution, and what came around it."""
    of = personal_phase(("blocks.2.conv2.*", "blocks.2.norm2.*", "head.*"))
    pair = both(of, seeded(resnet8_gn, **SMALL_RESNET), pictures())
    assert [tuple(value.shape) for value in cut_of(pair).values] == [(10, 8, 7, 7), (10, 8, 7, 7)]


@pytest.mark.parametrize("make", [conv_adapters, None], ids=["parallel", "low rank"])
def test_adapters_in_the_last_block_leave_the_layer_before_them_in_the_prefix(make):
    """The last convolution itself is frozen: of the rest only what comes after it is left."""
    module = seeded(resnet8_gn, **SMALL_RESNET)
    if make is None:
        pair = both(personal_phase("head.adapter.*"), lora(module, on="head").double(), pictures())
        assert [value.dim() for value in cut_of(pair).values] == [2, 2]
        return
    module = make(module, after="blocks.2.conv2").double()
    pair = both(personal_phase("blocks.2.conv2.adapter.*"), module, pictures())
    names = set(cut_of(pair).cut.rest_names.values())
    assert "blocks.2.conv2.weight" not in names
    assert any(name.startswith("blocks.2.conv2.adapter.") for name in names)


@pytest.mark.parametrize("outputs", ["every", "last"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_last_block_of_a_transformer(tied, outputs):
    data = tokens() if outputs == "every" else Batch(tokens().inputs, tokens().targets[:, 0])
    module = seeded(char_transformer, **SMALL_TRANSFORMER, tied=tied, outputs=outputs)
    loss = next_token().loss if outputs == "every" else F.cross_entropy
    pair = both(personal_phase("blocks.1.*"), module, data, loss=loss)
    assert [tuple(value.shape) for value in cut_of(pair).values] == [(10, 7, 8)]


def test_adapters_of_a_transformers_last_block():
    module = bottleneck_adapters(seeded(char_transformer, **SMALL_TRANSFORMER), after="blocks.1.feed_forward", hidden=3)
    cut_of(both(personal_phase("blocks.1.*adapter*"), module.double(), tokens(), loss=next_token().loss))


def test_a_transformer_that_drops_its_embeddings_has_no_prefix():
    module = seeded(char_transformer, **SMALL_TRANSFORMER, dropout=0.1)
    assert "random numbers are drawn" in refusal(both(personal_phase("blocks.1.*"), module, tokens()))


def test_an_embedding_that_is_the_head_as_well_moves_with_it():
    module = seeded(char_transformer, **SMALL_TRANSFORMER, tied=True)
    assert "'embedding.weight' moves" in refusal(both(personal_phase("embedding.*"), module, tokens()))


@pytest.mark.parametrize("outputs", ["every", "last"])
def test_the_head_of_a_recurrent_network(outputs):
    data = tokens() if outputs == "every" else Batch(tokens().inputs, tokens().targets[:, 0])
    module = seeded(char_lstm, shape=(7,), classes=11, embedding=3, hidden=4, outputs=outputs)
    pair = both(personal_phase(head()), module, data)
    assert isinstance(pair.found[0], BehindPrefix if outputs == "every" else HeadProblem)
    assert_same_work(pair)


def test_a_personal_branch_keeps_what_the_shared_one_says_and_the_inputs():
    shared, own = (nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)) for _ in range(2))
    pair = both(personal_phase(personal_branch()), additive(shared, own).double(), five_numbers())
    assert sorted(tuple(value.shape) for value in cut_of(pair).values) == [(10, 3), (10, 5)]


def test_a_personal_chunk_of_the_input():
    module = split_input(nn.Linear(3, 4), nn.Linear(2, 4), nn.Linear(8, 3), chunk=2).double()
    pair = both(personal_phase(personal_branch()), module, five_numbers())
    assert sorted(tuple(value.shape) for value in cut_of(pair).values) == [(10, 2), (10, 4)]


# Chance and running statistics


def test_dropout_behind_the_prefix_draws_what_it_would_draw_without_it():
    """The draws after the phase are the same too: the phases of `fedalt` that follow come out the same."""
    layers = nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 3)
    module = nn.Sequential(*layers).double()
    pair = both(personal_phase(("2.*", "6.*"), lr=0.1), module, five_numbers())
    assert tuple(cut_of(pair).values[0].shape) == (10, 4)
    assert set(cut_of(pair).cut.rest_names.values()) == {"2.weight", "2.bias", "6.weight", "6.bias"}


def test_a_prefix_ends_where_dropout_begins():
    pair = on_layers(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3), head="4")
    assert set(cut_of(pair).cut.prefix_names.values()) == {"0.weight", "0.bias"}


def test_dropout_before_everything_is_refused():
    pair = on_layers(nn.Dropout(0.5), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), head="3")
    assert "random numbers are drawn" in refusal(pair)


def test_dropout_that_drops_nothing_is_no_dropout():
    pair = on_layers(nn.Dropout(0.0), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), head="3")
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)


def test_inserted_dropout_counts_as_dropout():
    plain = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3)).double()
    pair = both(head_method(), input_dropout(plain, on="2", rate=0.5), five_numbers())
    assert set(cut_of(pair).cut.prefix_names.values()) == {"0.weight", "0.bias"}


class Noisy(nn.Module):
    """Adds noise of its own making."""

    def __init__(self, *, like: bool) -> None:
        super().__init__()
        self.like, self.body, self.head = like, nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        noise = torch.rand_like(inputs) if self.like else torch.rand(5, dtype=inputs.dtype)
        return self.head(self.body(inputs + noise))


@pytest.mark.parametrize("like", [True, False])
def test_noise_is_refused(like):
    pair = both(head_method(personal=("head.*",)), Noisy(like=like).double(), five_numbers())
    assert "random numbers" in refusal(pair)


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).double()


@pytest.mark.parametrize("buffers", ["shared", "personal", "reset"])
def test_batch_norm_in_training_mode_ends_the_prefix_and_keeps_its_statistics(buffers):
    of = METHODS["fedalt"].make(personal=("3.*",), personal_budget=epochs(3, batch=5), buffers=buffers, adapt=THREE)
    pair = both(of, normed(), five_numbers())
    assert set(cut_of(pair).cut.prefix_names.values()) == {"0.weight", "0.bias"}
    assert_near({"mean": pair.cached.params["1.running_mean"]}, {"mean": pair.plain.params["1.running_mean"]}, 1e-10)
    assert pair.cached.params["1.num_batches_tracked"] == pair.plain.params["1.num_batches_tracked"] > 0


def test_batch_norm_before_everything_is_refused():
    of = METHODS["fedalt"].make(personal=("3.*",), personal_budget=steps(4), buffers="personal")
    module = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    assert "running statistics" in refusal(both(of, module, five_numbers()))


def test_batch_norm_without_running_statistics_looks_at_several_examples():
    layers = nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)
    assert "the other examples of its batch" in refusal(on_layers(*layers, head="3", budget=epochs(2, batch=5)))


def test_batch_norm_that_its_owner_holds_in_evaluation_mode_is_part_of_the_prefix():
    module = normed()
    module[1].eval()
    of = METHODS["fedalt"].make(personal=("3.*",), personal_budget=THREE, buffers="personal")
    pair = both(of, module, five_numbers())
    assert isinstance(pair.found[0], HeadProblem)
    assert_same_work(pair)
