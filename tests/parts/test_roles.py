"""Roles for partial personalisation: input and output layers, blocks, adapters."""

import pytest
from torch import nn

from plures.core.errors import InvalidSplit
from plures.models import mlp, resnet8_gn
from plures.models.additive import additive
from plures.models.split_input import split_input
from plures.parts import (
    adapters,
    adapters_and_norms,
    all_personal,
    as_selector,
    conv_adapters,
    first_block,
    first_layer,
    head,
    input_layer,
    last_block,
    lora,
    norms,
    output_layer,
    patterns,
    personal_branch,
    representation,
    split,
)
from tests.parts.networks import adapted, residual, words

# Input and output layers


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (residual(), {"stem.weight", "stem.bias", "norm.weight", "norm.bias"}),
        (
            nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)),
            {"0.weight", "0.bias", "1.weight", "1.bias"},
        ),
        (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), {"0.weight", "0.bias"}),
        (nn.Sequential(nn.RMSNorm(2), nn.Linear(2, 3), nn.Linear(3, 2)), {"0.weight", "1.weight", "1.bias"}),
        (nn.Linear(2, 2), {"weight", "bias"}),
        (nn.LayerNorm(2), {"weight", "bias"}),
        (words(), {"embedding.weight"}),
    ],
)
def test_the_input_layer_is_the_first_layer_with_the_norms_around_it(model, names):
    assert input_layer()(model) == names


def test_the_output_layer_is_the_head():
    for model in (residual(), words(), mlp()):
        assert output_layer()(model) == head()(model)


# Blocks


def names_under(model, *prefixes):
    return {name for name, _ in model.named_parameters() if name.startswith(prefixes)}


def conv_block(inputs, outputs):
    return nn.Sequential(nn.Conv1d(inputs, outputs, 1), nn.GroupNorm(1, outputs), nn.ReLU())


class Stages(nn.Module):
    """Blocks in stages, as in the ResNets of torchvision."""

    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(*(nn.TransformerEncoderLayer(2, 1, 2) for _ in range(2)))
        self.layer2 = nn.Sequential(nn.TransformerEncoderLayer(2, 1, 2))
        self.fc = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("model", "first", "last"),
    [
        (words(), "blocks.0.", "blocks.2."),
        (residual(), "blocks.0.", "blocks.1."),
        (resnet8_gn(), "blocks.0.", "blocks.2."),
        (Stages(), "layer1.0.", "layer2.0."),
        (nn.Sequential(conv_block(1, 2), conv_block(2, 2), nn.Flatten(), nn.Linear(4, 2)), "0.", "1."),
        (nn.Sequential(nn.Linear(2, 2), nn.ModuleList([words(), words()])), "1.0.", "1.1."),
        (lora(nn.Sequential(nn.Linear(2, 2), conv_block(2, 2), conv_block(2, 2), nn.Linear(2, 2)), on="*"), "1.", "2."),
    ],
    ids=["words", "residual", "resnet", "stages", "sequentials", "blocks of blocks", "beside adapters"],
)
def test_the_first_and_the_last_block_are_those_of_what_is_repeated(model, first, last):
    assert first_block()(model) == names_under(model, first)
    assert last_block()(model) == names_under(model, last)


@pytest.mark.parametrize("model", [mlp(), nn.Linear(2, 2), nn.Sequential(conv_block(1, 2), nn.Linear(2, 2))])
def test_a_network_that_repeats_no_block_is_an_error(model):
    for role in (first_block, last_block):
        with pytest.raises(InvalidSplit, match=rf"repeats no block, so {role.__name__}\(\) selects nothing"):
            role()(model)


def test_a_block_goes_with_its_adapters():
    model = adapted("bottleneck")
    assert adapters()(model) & last_block()(model) == names_under(model, "blocks.2.") & adapters()(model)
    assert len(adapters()(model) & last_block()(model)) == 8


# Adapters and the other roles


@pytest.mark.parametrize("kind", ["conv", "bottleneck", "lora"])
def test_other_roles_mean_the_network_itself(kind):
    model = adapted(kind)
    plain = model.__class__()
    for role in (head, first_layer, input_layer, output_layer, norms):
        assert role()(model) == role()(plain)
    assert representation()(model) - adapters()(model) == representation()(plain)


def test_the_representation_has_the_adapters_of_its_layers():
    model = adapted("lora")
    inside = adapters()(model) - patterns("head.*")(model)
    assert representation()(model) & adapters()(model) == inside
    assert representation()(adapted("conv")) == (all_personal() - head())(adapted("conv"))


def test_adapters_of_another_name_are_selected_by_it():
    model = conv_adapters(adapted("conv", name="shared_adapter"))
    assert adapters("shared_adapter")(model) == patterns("*.shared_adapter.*")(model)
    assert adapters_and_norms()(model) == adapters()(model) | patterns("norm.*", "*.norm?.*")(model)
    assert str(adapters("shared_adapter")) == "adapters('shared_adapter')"


def test_norms_in_shortcuts_stay_where_they_are():
    model = adapted("conv")
    chosen = adapters_and_norms()(model)
    assert "blocks.1.shortcut.1.weight" in norms()(model) - chosen
    assert norms()(model) - chosen == patterns("*.shortcut.1.*")(model)


def test_adapters_of_a_network_without_norms_are_adapters_alone():
    model = lora(mlp(), on="head")
    assert adapters_and_norms()(model) == adapters()(model) == {"head.adapter.a", "head.adapter.b"}


def test_adapters_where_there_are_none_are_an_error_that_tells_how_to_insert_some():
    for role in (adapters, adapters_and_norms):
        with pytest.raises(InvalidSplit, match=r"under a child called 'adapter'\. conv_adapters, .* insert"):
            role()(mlp())


def test_a_wrong_name_of_adapters_is_an_error_that_names_the_right_one():
    with pytest.raises(InvalidSplit, match="Did you mean 'shared_adapter'"):
        adapters("shared_adaptor")(adapted("conv", name="shared_adapter"))


# Words and combinations


def test_the_roles_are_words_that_files_may_use():
    model, blocks = adapted("conv"), words()
    assert as_selector("adapters")(model) == adapters()(model)
    assert as_selector("adapters_and_norms()")(model) == adapters_and_norms()(model)
    assert as_selector(["input_layer", "output_layer"])(model) == (input_layer() | output_layer())(model)
    assert as_selector("first_block")(blocks) == first_block()(blocks)
    assert as_selector("last_block")(blocks) == last_block()(blocks)


def test_roles_combine_with_each_other_and_with_patterns():
    model = adapted("conv")
    assert (adapters_and_norms() - norms())(model) == adapters()(model)
    assert (adapters() & patterns("blocks.0.*"))(model) == names_under(model, "blocks.0.") & adapters()(model)
    everything = (input_layer() | first_block() | last_block() | output_layer())(model)
    assert everything == all_personal()(model)
    assert str(adapters() | head()) == "adapters() | head()"


def test_the_personal_branch_is_the_personal_network_and_the_mixing_weight():
    model = additive(nn.Linear(2, 3), nn.Linear(2, 3))
    assert personal_branch()(model) == {"personal.weight", "personal.bias", "mixing"}
    assert set(split("personal_branch").resolve(model).values()) == {"shared", "personal"}
    cut = split_input(nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(6, 2), chunk=2)
    assert personal_branch()(cut) == {"personal.weight", "personal.bias"}
    with pytest.raises(InvalidSplit, match="no parameters under a child called 'personal'"):
        personal_branch()(mlp())
