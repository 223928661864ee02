"""Naming parameters by pattern, by role, and by combining those."""

import pytest
from torch import nn

from plures.core.errors import InvalidSplit
from plures.models import mlp
from plures.parts import all_personal, all_shared, as_selector, first_layer, head, norms, patterns, representation


def nested():
    """Blocks of blocks, as users write them."""
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 3)))
    return nn.ModuleDict({"stem": nn.Linear(2, 3), "trunk": block, "out": nn.Linear(3, 2)})


def conv_net():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    )


class Rooted(nn.Module):
    """Has parameters of its own beside those of its layers, as vision transformers do."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(nn.Linear(2, 1).weight.detach().clone())
        self.body = nn.Linear(2, 2)


class Tied(nn.Module):
    """Input and output embedding are one parameter."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 3)
        self.mix = nn.Linear(3, 3)
        self.out = nn.Linear(3, 7, bias=False)
        self.out.weight = self.embed.weight


ROLES = {
    # module: (first layer, head), in order of registration
    "sequential": (
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)),
        {"0.weight", "0.bias"},
        {"2.weight", "2.bias"},
    ),
    "one layer": (nn.Linear(2, 3), {"weight", "bias"}, {"weight", "bias"}),
    "no bias": (nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)), {"0.weight"}, {"1.weight"}),
    "nested": (nested(), {"stem.weight", "stem.bias"}, {"out.weight", "out.bias"}),
    "conv net": (conv_net(), {"0.weight", "0.bias"}, {"6.weight", "6.bias"}),
    "mlp": (mlp(shape=(4,), hidden=(3, 2), classes=2), {"body.1.weight", "body.1.bias"}, {"head.weight", "head.bias"}),
    "transformer": (
        nn.Sequential(
            nn.Embedding(9, 4), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 9, bias=False)
        ),
        {"0.weight"},
        {"2.weight"},
    ),
    "transformer layer": (
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        {"self_attn.in_proj_weight", "self_attn.in_proj_bias"},
        {"norm2.weight", "norm2.bias"},
    ),
    "rooted": (Rooted(), {"token"}, {"body.weight", "body.bias"}),
    "tied": (Tied(), {"embed.weight"}, {"mix.weight", "mix.bias"}),
}
roles = pytest.mark.parametrize("name", sorted(ROLES))


@roles
def test_first_layer_and_head_are_the_first_and_last_layers_with_parameters(name):
    module, first, last = ROLES[name]
    assert first_layer()(module) == first
    assert head()(module) == last


@roles
def test_all_personal_is_every_parameter_and_all_shared_is_none(name):
    module = ROLES[name][0]
    assert all_personal()(module) == {parameter for parameter, _ in module.named_parameters()}
    assert all_shared()(module) == frozenset()


def test_norms_are_the_scales_and_shifts_of_every_kind_of_normalisation():
    layers = [nn.BatchNorm1d(2), nn.Linear(2, 2), nn.LayerNorm(2), nn.GroupNorm(1, 2), nn.RMSNorm(2)]
    layers += [nn.InstanceNorm1d(2, affine=True), nn.InstanceNorm1d(2)]
    chosen = norms()(nn.Sequential(*layers))
    assert chosen == {f"{place}.{name}" for place in (0, 2, 3, 5) for name in ("weight", "bias")} | {"4.weight"}
    assert norms()(nested()) == {"trunk.2.0.weight", "trunk.2.0.bias"}


def test_norms_of_a_network_without_any_are_an_error():
    with pytest.raises(InvalidSplit, match="no normalisation layer"):
        norms()(mlp())


def test_the_representation_goes_up_to_the_last_convolution_and_its_norm():
    assert representation()(conv_net()) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    plain = nn.Sequential(nn.Conv1d(1, 2, 2), nn.Conv1d(2, 2, 2), nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2))
    assert representation()(plain) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_the_representation_of_a_network_without_convolutions_is_all_but_the_head():
    for module in (nested(), mlp(shape=(4,), hidden=(3, 2))):
        assert representation()(module) == (all_personal() - head())(module)


def test_a_pattern_is_a_glob_over_whole_names():
    assert patterns("trunk.*")(nested()) == {
        "trunk.0.weight",
        "trunk.0.bias",
        "trunk.2.0.weight",
        "trunk.2.0.bias",
        "trunk.2.1.weight",
        "trunk.2.1.bias",
    }
    assert patterns("*.bias")(conv_net()) == {"0.bias", "1.bias", "4.bias", "6.bias"}
    assert patterns("trunk.?.weight")(nested()) == {"trunk.0.weight"}
    assert patterns("[04].weight")(conv_net()) == {"0.weight", "4.weight"}


def test_several_patterns_are_their_union():
    assert patterns("stem.*", "out.bias")(nested()) == {"stem.weight", "stem.bias", "out.bias"}


def test_selectors_combine_by_either_both_and_without():
    model = nested()
    biases, outside = patterns("*.bias"), patterns("stem.*", "out.*")
    assert (biases | outside)(model) == biases(model) | outside(model)
    assert (biases & outside)(model) == {"stem.bias", "out.bias"}
    assert (outside - biases)(model) == {"stem.weight", "out.weight"}
    assert (all_personal() - head() - first_layer())(model) == patterns("trunk.*")(model)
    assert (head() & first_layer())(model) == frozenset()


def test_a_selector_says_what_it_is():
    assert str(patterns("a.*", "b") | head()) == "a.*, b | head()"
    assert str(all_personal() - head()) == "all_personal() - (head())"


def test_a_word_is_a_role_or_else_a_pattern_and_a_list_is_a_union():
    model = nested()
    assert as_selector("head")(model) == as_selector("head()")(model) == head()(model)
    assert as_selector("norms")(model) == norms()(model)
    assert as_selector("representation()")(model) == representation()(model)
    assert as_selector("out.*")(model) == {"out.weight", "out.bias"}
    assert as_selector(["first_layer", "out.bias"])(model) == {"stem.weight", "stem.bias", "out.bias"}
    assert as_selector([])(model) == frozenset()
    chosen = head()
    assert as_selector(chosen) is chosen


@pytest.mark.parametrize("wrong", ["heads.*", "head", "Head.*", "hed.weight"])
def test_a_pattern_without_a_match_is_an_error_with_near_matches(wrong):
    with pytest.raises(InvalidSplit, match=r"matches no parameter of Mlp\. Near matches: .*'head\.") as error:
        patterns(wrong)(mlp())
    assert f"'{wrong}'" in str(error.value)


def test_a_pattern_like_nothing_lists_what_there_is_but_not_all_of_it():
    deep = nn.Sequential(*(nn.Linear(1, 1) for _ in range(6)))
    with pytest.raises(InvalidSplit, match=r"Its parameters: 0\.weight, 0\.bias, .*3\.bias, \.\.\.\."):
        patterns("zzzzzzzz")(deep)


def test_one_pattern_of_several_without_a_match_is_an_error_too():
    with pytest.raises(InvalidSplit, match=r"'nose\.\*'"):
        patterns("head.*", "nose.*")(mlp())


def test_buffers_are_not_selected_as_parameters():
    with pytest.raises(InvalidSplit, match="running_mean"):
        patterns("*.running_mean")(nn.Sequential(nn.BatchNorm1d(2)))


@pytest.mark.parametrize("role", [head, first_layer])
def test_a_role_in_a_module_without_parameters_is_an_error(role):
    with pytest.raises(InvalidSplit, match="nothing to train"):
        role()(nn.ReLU())
