"""Networks for the next token: counts by layer, causality, tied weights, shapes that cross-entropy takes."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.task import Task
from plures.models import char_lstm, char_transformer, transformer
from plures.models.transformer import Attention
from plures.parts import adapters_and_norms, bottleneck_adapters, first_block, head, last_block
from tests.models.helpers import count, made, pictures, tokens

SMALL = {"shape": (7,), "classes": 11, "width": 8, "depth": 2, "heads": 2, "hidden": 16}
MAKERS = {
    "transformer": lambda: made(transformer, **SMALL),
    "transformer, untied": lambda: made(transformer, **SMALL, tied=False),
    "char_transformer": lambda: made(char_transformer, **SMALL),
    "char_transformer, tied": lambda: made(char_transformer, **SMALL, tied=True),
    "char_lstm": lambda: made(char_lstm, shape=(7,), classes=11, hidden=6),
}
every_network = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


# Counts


def test_the_transformer_of_the_fedalt_paper_has_5731092_parameters():
    # A block: 4 * 256^2 without bias, 257 * 1,024 + 1,025 * 256, two norms of 2 * 256: 788,736.
    # Tokens 10,004 * 256 (used for input and output), positions 20 * 256, output biases 10,004.
    model = transformer()
    assert [count(block) for block in model.blocks] == [262_144 + 263_168 + 262_400 + 1_024] * 4 == [788_736] * 4
    assert (count(model.embedding), count(model.positions), count(model.head)) == (2_561_024, 5_120, 10_004)
    assert count(model) == 5_731_092


def test_its_parts_have_the_counts_of_the_paper():
    # Adapters: 8 of 256 * 16 + 16 + 16 * 256 + 256 = 8,464; norms 8 * 512.
    model = transformer()
    assert count(model, first_block()(model)) == count(model, last_block()(model)) == 788_736
    assert first_block()(model) != last_block()(model)
    adapted = bottleneck_adapters(model, hidden=16)
    assert count(adapted, adapters_and_norms()(adapted)) == 67_712 + 4_096 == 71_808


def test_a_small_transformer_is_a_matter_of_keywords():
    # A block: 4 * 8^2, 9 * 16 + 17 * 8, 2 * 16; tokens 11 * 8, positions 7 * 8, head 11 biases or 9 * 11.
    block = 256 + 280 + 32
    assert count(transformer(**SMALL)) == 2 * block + 88 + 56 + 11
    assert count(transformer(**SMALL, tied=False)) == 2 * block + 88 + 56 + 99


def test_the_char_transformer_has_114896_parameters():
    # A block: 4 * 64^2, 65 * 256 + 257 * 64, 2 * 128: 49,728; tokens and positions 80 * 64 each; head 65 * 80.
    assert [count(block) for block in char_transformer().blocks] == [49_728] * 2
    assert count(char_transformer()) == 2 * 49_728 + 2 * 5_120 + 5_200 == 114_896


def test_the_lstm_of_leaf_has_819920_parameters_with_the_two_biases_of_torch():
    # Embedding 80 * 8; layers 4 * 256 * (8 + 256 + 2) and 4 * 256 * (256 + 256 + 2); head 257 * 80.
    # TensorFlow has one bias in place of two: 2 * 1,024 fewer, 817,872.
    model = char_lstm()
    assert (count(model.embedding), count(model.lstm), count(model.head)) == (640, 272_384 + 526_336, 20_560)
    assert count(model) == 819_920 == 817_872 + 2_048


# Shapes


@every_network
def test_scores_of_every_place_go_straight_into_cross_entropy(make):
    model, inputs = make(), tokens(3, 7, classes=11)
    output = model(inputs)
    assert output.shape == (3, 11, 7)
    loss = F.cross_entropy(output, tokens(3, 7, classes=11, seed=1))
    by_hand = -output.log_softmax(1).gather(1, tokens(3, 7, classes=11, seed=1)[:, None]).mean()
    torch.testing.assert_close(loss, by_hand)


@pytest.mark.parametrize(
    ("make", "options"),
    [(char_lstm, {"hidden": 6}), (char_transformer, {"width": 8, "tied": True}), (transformer, {"width": 8})],
)
def test_the_last_place_alone_gives_rows_of_classes(make, options):
    inputs = tokens(3, 7, classes=11)
    every = made(make, shape=(7,), classes=11, **options)(inputs)
    last = made(make, shape=(7,), classes=11, **options, outputs="last")(inputs)
    assert last.shape == (3, 11)
    torch.testing.assert_close(last, every[:, :, -1])


def test_sequences_may_be_shorter_than_the_transformer_was_made_for_but_not_longer():
    model, inputs = MAKERS["transformer"](), tokens(2, 7, classes=11)
    torch.testing.assert_close(model(inputs[:, :4]), model(inputs)[:, :, :4])
    with pytest.raises(InvalidModel, match="at most 7 tokens, not 8"):
        model(tokens(2, 8, classes=11))


# Causality


@every_network
@pytest.mark.parametrize("place", range(7))
def test_a_token_never_changes_what_is_said_before_it(make, place):
    model, inputs = make(), tokens(3, 7, classes=11)
    other = inputs.clone()
    other[:, place] = (other[:, place] + 1) % 11
    before, after = model(inputs), model(other)
    assert torch.equal(before[:, :, :place], after[:, :, :place])
    assert not torch.isclose(before[:, :, place], after[:, :, place]).all(dim=1).any()


@every_network
def test_the_last_place_sees_the_first_token(make):
    model, inputs = make().double(), tokens(3, 7, classes=11)
    other = inputs.clone()
    other[:, 0] = (other[:, 0] + 1) % 11
    assert not torch.isclose(model(inputs)[:, :, -1], model(other)[:, :, -1], rtol=1e-9).all(dim=1).any()


def test_attention_is_that_of_torch():
    layer, inputs = made(Attention, width=8, heads=2), pictures(3, 5, 8)
    query, key, value = (own(inputs).view(3, 5, 2, 4).transpose(1, 2) for own in (layer.query, layer.key, layer.value))
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(layer(inputs), layer.output(mixed.transpose(1, 2).reshape(3, 5, 8)))


def torch_layer(block):
    """The same block as a layer of torch, whose attention has biases, here zero."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    inner = block.attention
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([inner.query.weight, inner.key.weight, inner.value.weight]))
        layer.self_attn.out_proj.weight.copy_(inner.output.weight)
        layer.self_attn.in_proj_bias.zero_()
        layer.self_attn.out_proj.bias.zero_()
    for mine, other in (
        (block.feed_forward[0], layer.linear1),
        (block.feed_forward[2], layer.linear2),
        (block.norm1, layer.norm1),
        (block.norm2, layer.norm2),
    ):
        other.load_state_dict(mine.state_dict())
    return layer


def test_the_transformer_is_made_of_embeddings_layers_of_torch_and_the_embedding_again():
    model, inputs = MAKERS["transformer"](), tokens(3, 7, classes=11)
    later = nn.Transformer.generate_square_subsequent_mask(7)
    # Embeddings are scaled by sqrt(8) against the positions (Vaswani et al. 2017, Section 3.4).
    features = 8**0.5 * model.embedding.weight[inputs] + model.positions.weight
    for block in model.blocks:
        features = torch_layer(block)(features, src_mask=later)
    scores = features @ model.embedding.weight.T + model.head.bias
    torch.testing.assert_close(model(inputs), scores.transpose(1, 2))


def test_equal_tokens_at_different_places_are_told_apart():
    output = MAKERS["transformer"]()(torch.full((1, 7), 3))
    assert not torch.isclose(output[0, :, 0], output[0, :, 1]).all()


# Tied weights


def test_input_and_output_of_the_transformer_are_one_parameter():
    model, inputs, unseen = MAKERS["transformer"](), tokens(2, 7, classes=10), 10
    names = dict(model.named_parameters())
    assert [name for name, value in names.items() if value.shape == (11, 8)] == ["embedding.weight"]
    assert model.state_dict().keys() == names.keys()
    # The score of a token that is not among the inputs depends on its embedding through the output alone.
    before = model(inputs)
    with torch.no_grad():
        model.embedding.weight[unseen] *= 3
    after = model(inputs)
    assert not torch.isclose(before[:, unseen], after[:, unseen]).any()
    assert torch.equal(before[:, :unseen], after[:, :unseen])


def test_a_tied_network_follows_the_parameters_that_are_passed_in():
    model, other, inputs = MAKERS["transformer"](), made(transformer, seed=1, **SMALL), tokens(2, 7, classes=11)
    params = {name: value.detach() for name, value in other.named_parameters()}
    assert torch.equal(functional_call(model, params, (inputs,)), other(inputs))
    task = Task(model, F.cross_entropy, torch.device("cpu"))
    assert not task.tied
    assert torch.equal(task.output(params, inputs), other(inputs))


def test_the_head_is_the_classifier_and_of_a_tied_network_its_biases():
    for name in ("transformer, untied", "char_transformer", "char_lstm"):
        assert head()(MAKERS[name]()) == {"head.weight", "head.bias"}
    for name in ("transformer", "char_transformer, tied"):
        assert head()(MAKERS[name]()) == {"head.bias"}


# The rest


def test_the_lstm_follows_the_parameters_that_are_passed_in():
    model, other, inputs = MAKERS["char_lstm"](), made(char_lstm, 1, classes=11, hidden=6), tokens(2, 7, classes=11)
    params = {name: value.detach() for name, value in other.named_parameters()}
    torch.testing.assert_close(functional_call(model, params, (inputs,)), other(inputs))


def test_dropout_draws_in_training_only():
    model, inputs = made(transformer, **SMALL, dropout=0.5), tokens(2, 7, classes=11)
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), MAKERS["transformer"]()(inputs))


def test_without_dropout_nothing_is_drawn():
    before = torch.get_rng_state()
    MAKERS["char_transformer"]()(tokens(2, 7, classes=11))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (transformer, {"shape": (1, 28, 28)}, r"transformer takes examples of shape \(time\)"),
        (transformer, {"shape": (0,)}, "each at least 1"),
        (transformer, {"heads": 3}, "width that its heads divide, not 256 for 3 heads"),
        (transformer, {"dropout": 1.0}, "below 1, not 1.0"),
        (transformer, {"depth": 0}, "depth of at least 1"),
        (char_transformer, {"hidden": 0}, "char_transformer needs hidden of at least 1"),
        (char_transformer, {"outputs": "lats"}, "no outputs 'lats'. Did you mean 'last'"),
        (char_lstm, {"shape": (80, 2)}, r"char_lstm takes examples of shape \(time\)"),
        (char_lstm, {"embedding": 0}, "embedding of at least 1"),
        (char_lstm, {"outputs": "all"}, "no outputs 'all'"),
    ],
)
def test_what_does_not_fit_is_refused(make, options, message):
    with pytest.raises(InvalidModel, match=message):
        make(**options)
