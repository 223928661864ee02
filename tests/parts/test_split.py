"""Whose each parameter and buffer is: totality, round trip, buffer policies, frozen parameters, the table."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from plures.core.errors import InvalidSplit
from plures.core.types import FROZEN, PERSONAL, PERSONAL_BUFFERS, RESET_BUFFERS, SHARED, SHARED_BUFFERS
from plures.models import mlp
from plures.parts import NamedSplit, all_personal, all_shared, combine, first_layer, head, partition, patterns, split
from tests.core.helpers import same_bits

LAYERS = {
    "linear": lambda: nn.Linear(2, 3),
    "no bias": lambda: nn.Linear(3, 1, bias=False),
    "norm": lambda: nn.LayerNorm(2),
    "batch norm": lambda: nn.BatchNorm1d(2),
    "conv": lambda: nn.Conv1d(1, 2, 2),
    "nothing": nn.ReLU,
}
leaves = st.sampled_from(sorted(LAYERS)).map(lambda name: LAYERS[name]())
modules = st.recursive(
    leaves,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda layers: nn.Sequential(*layers)),
    max_leaves=8,
)


@st.composite
def splits(draw):
    """A random nested module and a random split of it into up to three parts."""
    module = draw(modules)
    names = [name for name, _ in module.named_parameters()]
    owners = draw(st.lists(st.sampled_from(["rest", PERSONAL, "gate"]), min_size=len(names), max_size=len(names)))
    for parameter in module.parameters():
        parameter.requires_grad_(draw(st.integers(0, 4)) > 0)
    rules = {
        part: [name for name, owner in zip(names, owners, strict=True) if owner == part] for part in (PERSONAL, "gate")
    }
    named = {part: patterns(*chosen) for part, chosen in rules.items() if chosen}
    return module, NamedSplit(rules=named, buffers=draw(st.sampled_from(["shared", "personal", "reset"])))


@given(splits())
@settings(deadline=None, max_examples=60)
def test_every_parameter_and_moving_buffer_is_in_exactly_one_part(drawn):
    module, chosen = drawn
    values = dict(module.named_parameters()) | dict(module.named_buffers())
    parts = chosen.resolve(module)
    assert parts.keys() == values.keys()
    groups = partition(values, parts)
    assert sorted(name for group in groups.values() for name in group) == sorted(values)
    assert all(groups.values()), "no part is empty"
    for name, parameter in module.named_parameters():
        assert (parts[name] == FROZEN) == (not parameter.requires_grad)


@given(splits())
@settings(deadline=None, max_examples=60)
def test_combine_undoes_partition(drawn):
    module, chosen = drawn
    values = {name: value.detach() for name, value in module.state_dict().items()}
    back = combine(partition(values, chosen.resolve(module)))
    assert same_bits(back, values)
    assert all(back[name] is value for name, value in values.items()), "nothing is copied"


@given(splits())
@settings(deadline=None, max_examples=30)
def test_partition_undoes_combine(drawn):
    module, chosen = drawn
    values, parts = dict(module.state_dict()), chosen.resolve(module)
    assume(values)
    groups = partition(values, parts)
    again = partition(combine(groups), parts)
    assert again.keys() == groups.keys()
    assert all(same_bits(again[part], groups[part]) for part in groups)


def test_combine_refuses_a_name_given_twice():
    with pytest.raises(InvalidSplit, match=r"'a' is in part 'personal' and in another"):
        combine({"shared": {"a": torch.ones(1)}, "personal": {"a": torch.ones(1)}})


def test_what_no_selector_takes_is_shared():
    assert split("head.*").resolve(mlp(shape=(2,), hidden=(3,))) == {
        "body.1.weight": SHARED,
        "body.1.bias": SHARED,
        "head.weight": PERSONAL,
        "head.bias": PERSONAL,
    }


def test_without_a_selector_everything_is_shared():
    assert set(split().resolve(mlp()).values()) == {SHARED}
    assert set(split(all_shared()).resolve(mlp()).values()) == {SHARED}
    assert set(split(all_personal()).resolve(mlp()).values()) == {PERSONAL}


def test_further_parts_may_have_names_of_their_own():
    parts = split(head(), gate=first_layer()).resolve(mlp(shape=(2,), hidden=(3, 3)))
    assert {name for name, part in parts.items() if part == "gate"} == {"body.1.weight", "body.1.bias"}
    assert {name for name, part in parts.items() if part == SHARED} == {"body.3.weight", "body.3.bias"}


def test_the_rest_need_not_be_the_shared_part():
    chosen = NamedSplit(rules={SHARED: head()}, rest=PERSONAL)
    assert chosen.resolve(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))) == {
        "0.weight": PERSONAL,
        "0.bias": PERSONAL,
        "1.weight": SHARED,
        "1.bias": SHARED,
    }


def test_a_parameter_in_two_parts_is_an_error_that_names_both():
    with pytest.raises(InvalidSplit, match=r"'head\.bias' is in two parts, 'personal' and 'gate'"):
        split("head.*", gate=patterns("*.bias")).resolve(mlp())


def test_a_batch_norm_without_a_policy_is_an_error_that_explains_the_three_choices():
    with pytest.raises(InvalidSplit) as error:
        split(head()).resolve(mlp(batch_norm=True))
    message = str(error.value)
    for word in ("Mlp", "running statistics", "body.2.running_mean", "'shared'", "'personal'", "'reset'", "[split]"):
        assert word in message


@pytest.mark.parametrize(
    ("policy", "part"), [("shared", SHARED_BUFFERS), ("personal", PERSONAL_BUFFERS), ("reset", RESET_BUFFERS)]
)
def test_the_policy_decides_where_running_statistics_go(policy, part):
    parts = split(head(), buffers=policy).resolve(mlp(batch_norm=True))
    moving = {name for name, owner in parts.items() if owner == part}
    assert moving == {"body.2.running_mean", "body.2.running_var", "body.2.num_batches_tracked"}


def test_an_unknown_policy_is_an_error_that_names_the_three():
    with pytest.raises(InvalidSplit, match="'shared', 'personal' or 'reset'"):
        split(head(), buffers="mean")


class Scaled(nn.Module):
    """A constant as a buffer, as positional encodings and normalisations are."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))
        self.register_buffer("steps", torch.tensor(4))


@pytest.mark.parametrize(
    "module",
    [
        Scaled(),
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)),
        nn.Sequential(nn.Linear(2, 2), nn.InstanceNorm1d(2)),
        nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)),
    ],
    ids=["constant", "batch norm without statistics", "instance norm", "group norm"],
)
def test_constant_buffers_need_no_policy_and_are_in_no_part(module):
    assert split().resolve(module).keys() == {name for name, _ in module.named_parameters()}


def test_every_kind_of_running_statistics_needs_a_policy():
    for layer in (nn.BatchNorm2d(2), nn.SyncBatchNorm(2), nn.InstanceNorm1d(2, track_running_stats=True)):
        with pytest.raises(InvalidSplit, match="running statistics"):
            split().resolve(nn.Sequential(nn.Conv2d(1, 2, 1), layer))


def test_parameters_that_need_no_gradient_are_frozen_whatever_the_rules_say():
    model = mlp(shape=(2,), hidden=(3,))
    model.body.requires_grad_(False)
    model.head.bias.requires_grad_(False)
    assert split(all_personal()).resolve(model) == {
        "body.1.weight": FROZEN,
        "body.1.bias": FROZEN,
        "head.weight": PERSONAL,
        "head.bias": FROZEN,
    }


def test_the_table_lists_every_parameter_with_part_shape_and_size_and_the_totals():
    # 12*200 + 200 = 2,600 shared; 200*5 + 5 = 1,005 personal; of 3,605 these are 72.1 % and 27.9 %.
    lines = split(head()).table(mlp(shape=(3, 4), hidden=(200,), classes=5)).splitlines()
    assert [line.split() for line in lines] == [
        ["parameter", "part", "shape", "values"],
        ["body.1.weight", "shared", "200x12", "2,400"],
        ["body.1.bias", "shared", "200", "200"],
        ["head.weight", "personal", "5x200", "1,000"],
        ["head.bias", "personal", "5", "5"],
        ["total", "shared", "72.1%", "2,600"],
        ["total", "personal", "27.9%", "1,005"],
    ]


def test_the_table_lists_frozen_parameters_and_running_statistics():
    model = mlp(shape=(2,), hidden=(3,), classes=2, batch_norm=True)
    model.head.requires_grad_(False)
    rows = {line.split()[0]: line.split()[1:] for line in split(buffers="reset").table(model).splitlines()}
    assert rows["head.bias"] == ["frozen", "2", "2"]
    assert rows["body.2.running_mean"] == ["reset.buffers", "3", "3"]
    assert rows["body.2.num_batches_tracked"] == ["reset.buffers", "1", "1"]


def deep(name, width=2):
    model = nn.Sequential()
    for _ in range(4):
        model = nn.ModuleDict({name: model})
    model["out"] = nn.Linear(width, width)
    inner = model
    while name in inner:
        inner = inner[name]
    inner.append(nn.Linear(width, width))
    return model


def test_the_table_of_short_names_fits_eighty_columns_and_is_aligned():
    lines = split(head()).table(deep("layer")).splitlines()
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("name", ["a_layer_name", "an_even_longer_name_of_a_layer", "x" * 200])
def test_the_table_of_long_names_fits_eighty_columns_too(name):
    lines = split(head()).table(deep(name)).splitlines()
    assert max(map(len, lines)) <= 80


def test_the_totals_stand_under_the_sizes():
    lines = split(head()).table(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))).splitlines()
    assert len({len(line) for line in lines}) == 1
