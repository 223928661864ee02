"""Adapters and dropout that cannot be inserted: errors that say what to do."""

import pytest
from torch import nn

from plures.core.errors import InvalidModel
from plures.parts import bottleneck_adapters, conv_adapters, input_dropout, lora
from tests.parts.networks import residual, words


@pytest.mark.parametrize(
    ("wrong", "say"),
    [
        (lambda: conv_adapters(residual(), after="block.0.conv1"), r"no convolution of Residual.*'blocks\.0\.conv1'"),
        (lambda: conv_adapters(residual(), after=["stem", "blocks.?.conv3"]), r"'blocks\.\?\.conv3'.*Near matches"),
        (lambda: conv_adapters(residual(), after="head"), r"no convolution of Residual"),
        (lambda: bottleneck_adapters(words(), after="blocks.*.atention"), r"'blocks\.0\.attention'"),
        (lambda: lora(words(), on="blocks.0.atention.qeury"), r"linear layer of Words.*'blocks\.0\.attention\.query'"),
        (lambda: lora(words(), on="*.norm1"), "no linear layer of Words"),
        (lambda: input_dropout(words(), on="hed", rate=0.1), "no layer of Words.*'head'"),
    ],
)
def test_a_pattern_without_a_match_is_an_error_with_near_matches(wrong, say):
    with pytest.raises(InvalidModel, match=say):
        wrong()


def test_a_pattern_like_nothing_lists_what_there_is():
    with pytest.raises(InvalidModel, match=r"Its convolutions: stem, blocks\.0\.conv1, "):
        conv_adapters(residual(), after="zzzzzzzzzzzz")


@pytest.mark.parametrize(
    ("wrong", "say"),
    [
        (lambda: conv_adapters(nn.Linear(2, 2)), "no convolution but the first"),
        (lambda: conv_adapters(nn.Sequential(nn.Conv2d(1, 1, 1))), "unless you name them"),
        (lambda: conv_adapters(nn.Linear(2, 2), after="*"), "Linear has no convolution"),
        (lambda: bottleneck_adapters(residual()), r"usual names of a transformer's sub-layers \(attention, attn, "),
        (lambda: lora(nn.Conv2d(1, 1, 1), on="*"), "Conv2d has no linear layer"),
        (lambda: lora(words(), on=[]), "No pattern was given"),
        (lambda: conv_adapters(residual(), dropout=1.0), "at least 0 and below 1, not 1.0"),
        (lambda: bottleneck_adapters(words(), dropout=-0.1), "at least 0 and below 1, not -0.1"),
        (lambda: input_dropout(words(), on="head", rate=1.5), "at least 0 and below 1, not 1.5"),
        (lambda: bottleneck_adapters(words(), hidden=0), "hidden is at least 1, not 0"),
        (lambda: lora(words(), on="head", rank=0), "rank is at least 1, not 0"),
        (lambda: conv_adapters(residual(), name="my.adapter"), "'my.adapter' cannot be the name"),
        (lambda: conv_adapters(residual(), name="weight"), "something called 'weight' already"),
    ],
)
def test_what_cannot_work_is_an_error(wrong, say):
    with pytest.raises(InvalidModel, match=say):
        wrong()


def test_adapters_of_the_same_name_twice_are_an_error_that_asks_for_another():
    with pytest.raises(InvalidModel, match=r"'blocks\.0\.conv1' has something called 'adapter' already\. Give these"):
        conv_adapters(conv_adapters(residual()))


@pytest.mark.parametrize("insert", [lambda m, on: lora(m, on=on), lambda m, on: input_dropout(m, on=on, rate=0.1)])
def test_a_layer_that_attention_of_torch_never_calls_is_refused(insert):
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    with pytest.raises(InvalidModel, match=r"'self_attn\.out_proj' is never called"):
        insert(layer, "*out_proj")
    insert(layer, "linear?")


def test_a_list_is_never_called_and_is_refused():
    for insert in (bottleneck_adapters, lambda module, after, **options: input_dropout(module, on=after, rate=0.1)):
        with pytest.raises(InvalidModel, match="'blocks' is never called"):
            insert(words(), after="blocks", width=6)


class Twice(nn.Sequential):
    def forward(self, inputs):
        return super().forward(super().forward(inputs))


def test_a_sequential_whose_last_layer_is_not_its_output_alone_is_refused():
    own = nn.ModuleDict({"body": Twice(nn.Linear(2, 2))})
    with pytest.raises(InvalidModel, match="'body' is a Sequential with a forward of its own"):
        bottleneck_adapters(own, after="body")
    relu = nn.ReLU()
    with pytest.raises(InvalidModel, match="The last layer of '0' is in use elsewhere too"):
        bottleneck_adapters(nn.Sequential(nn.Sequential(nn.Linear(2, 2), relu), nn.Linear(2, 2), relu), after="0")


def test_a_layer_called_with_keywords_only_is_an_error_that_says_so():
    layer = nn.Linear(2, 2)
    for network in (lora(layer, on="*"), input_dropout(nn.Sequential(layer), on="0", rate=0.1)[0]):
        with pytest.raises(InvalidModel, match="Pass its input by position"):
            network(input=layer.weight)
