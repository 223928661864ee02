"""The table [data]: sources with options, every partition, splits, test rules, newcomers and changes of images."""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plures import make_experiment, run_experiment
from plures.core.errors import InvalidConfig, InvalidInput
from plures.core.types import Batch
from plures.data import PARTITIONERS, SOURCES, DataSet, Source, augment, partition
from plures.recipes.build import build
from plures.recipes.federations import AUGMENTS
from tests.recipes.helpers import ran, table
from tests.recipes.test_example import sections

HALVES = [{"share": 0.5, "partition": "iid"}, {"share": 0.5, "partition": "dirichlet", "alpha": 0.5}]
RULES: dict[str, dict[str, Any]] = {
    "by_class": {"classes_per_client": 3},
    "by_quantity": {"sigma": 0.5},
    "dirichlet": {"alpha": 1.0},
    "dirichlet_by_client": {"gamma": 1.0},
    "feature_shift": {"base": "dirichlet", "alpha": 2.0, "rotation": 20.0, "dilation": 0},
    "iid": {},
    "mixture": {"parts": HALVES},
    "natural": {"min_train": 4, "max_train": 9},
    "shards": {"shards_per_client": 3},
}
OTHERS: dict[str, dict[str, Any]] = {
    "source with options": {"source": {"name": "owned", "owners": 3}},
    "group": {"partition": "natural", "split_by": "group"},
    "time": {"partition": "natural", "split_by": "time"},
    "own tests": {"partition": "natural", "test_rule": "own"},
    "joined tests": {"partition": "natural", "test_rule": "joined"},
    "proportions": {"test_rule": "proportions", "test_size": 7},
    "newcomers": {"newcomers": 2},
    "a share of newcomers": {"newcomers": 0.5},
    "augmented": {"augment": ["crop", "flip"]},
    "augmented with options": {"augment": {"turn": {}, "crop": {"padding": 1}}},
    "not augmented": {"augment": []},
    "shifted natural": {"partition": "feature_shift", "base": "natural", "min_test": 1},
    "mixture of shifted": {
        "partition": "mixture",
        "parts": [
            {"share": 0.25, "partition": "iid", "clients": 2},
            {"share": 0.75, "partition": "feature_shift", "base": "iid", "noise": 0.1},
        ],
    },
}


def owned(owners: int = 4) -> DataSet:
    """96 images of 6x6 pixels, and 48 to test on, of four classes; owners drew three copies of everything."""
    draws = torch.Generator().manual_seed(0)

    def batch(size: int) -> Batch:
        return Batch(torch.rand(size, 1, 6, 6, generator=draws), torch.arange(size) // 3 % 4)

    return DataSet(
        name="owned",
        examples=batch(96),
        test=batch(48),
        owners=np.arange(96) // 3 % owners,
        test_owners=np.arange(48) // 3 % owners,
        owner_names=tuple(f"w{owner}" for owner in range(owners)),
        groups=np.arange(96) // 3,
        times=np.arange(96)[::-1].copy(),
    )


@pytest.fixture(autouse=True)
def _owned_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "owned", Source(name="owned", about="for tests", files=(), load=owned))


def experiment(**data: Any) -> dict[str, Any]:
    given = {"source": "owned", **data}
    if "natural" not in (given.get("partition"), given.get("base")):
        given.setdefault("clients", 4)
    return {"method": "fedavg", "rounds": 1, "model": {"hidden": [4]}, "data": given}


def build_data(**data: Any):
    return build(make_experiment(experiment(**data)))


def problem_with(**data: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        build_data(**data)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_the_table_of_rules_above_has_them_all():
    assert RULES.keys() == PARTITIONERS.keys()


@pytest.mark.parametrize("name", RULES)
def test_every_partition_can_stand_in_a_file_with_its_options(name):
    federation = build_data(partition=name, **RULES[name]).federation

    assert federation.num_clients == 4
    if name not in ("feature_shift", "mixture", "natural"):
        rule = PARTITIONERS[name](4, **RULES[name])
        assert partition(owned(), rule, seed=0).fingerprint() == federation.fingerprint()


@pytest.mark.parametrize(
    "data",
    [*({"partition": name} | options for name, options in RULES.items()), *OTHERS.values()],
    ids=[*RULES, *OTHERS],
)
def test_the_resolved_table_gives_the_same_result_and_the_same_text(data):
    first = run_experiment(make_experiment(experiment(**data)))
    text = build_data(**data).configuration

    again = run_experiment(make_experiment(tomllib.loads(text)))

    assert again.fingerprint == first.fingerprint
    assert again.metrics == first.metrics
    assert build(make_experiment(tomllib.loads(text))).configuration == text


@pytest.mark.parametrize("name", RULES)
def test_every_option_of_every_partition_stands_in_the_example(name):
    elsewhere = {"num_clients", "partitioner"}  # clients and base, in a file
    options = set(inspect.signature(PARTITIONERS[name]).parameters) - elsewhere

    assert options | {"clients", "base"} <= sections()["data"]


def test_defaults_are_written_out_also_those_of_a_rule_inside_another():
    text = build_data(partition="feature_shift", base="dirichlet", source={"name": "owned"}).configuration
    found = tomllib.loads(text)["data"]

    expected = {"rotation": 30.0, "contrast": 0.5, "noise": 0.0, "dilation": 1, "base": "dirichlet", "alpha": 0.4}
    assert expected.items() <= found.items()
    assert found["source"] == {"name": "owned", "owners": 4}


def test_the_parts_of_a_mixture_share_the_clients_unless_they_say_how_many():
    parts = [{"share": 0.25, "partition": "iid"}, {"share": 0.75, "partition": "by_class", "classes_per_client": 1}]
    federation = build_data(partition="mixture", parts=parts, clients=8).federation

    few = [len(federation.client(client).classes) == 1 for client in range(8)]
    assert few == [False] * 2 + [True] * 6
    stated = [parts[0] | {"clients": 5}, parts[1] | {"clients": 4}]
    assert build_data(partition="mixture", parts=stated).federation.num_clients == 9


def test_natural_clients_have_their_names_and_need_no_number():
    assert list(build_data(partition="natural").federation.names) == ["w0", "w1", "w2", "w3"]
    assert "clients" not in tomllib.loads(build_data(partition="natural").configuration)["data"]


def test_options_of_a_source_reach_it():
    found = build_data(source={"name": "owned", "owners": 2}, partition="natural").federation

    assert list(found.names) == ["w0", "w1"]


def test_newcomers_are_kept_apart_and_the_run_goes_on_without_them():
    found = build_data(newcomers=1, partition="natural")

    assert found.newcomers is not None
    assert sorted([*found.federation.names, *found.newcomers.names]) == ["w0", "w1", "w2", "w3"]
    assert found.newcomers.num_clients == 1
    assert build_data().newcomers is None
    result = ran(data={"newcomers": 0.5})
    assert result.federation.num_clients == 2
    assert {len(line["cohort"]) for line in result.history} == {2}


def test_newcomers_do_not_change_who_has_what():
    whole, some = build_data(partition="natural").federation, build_data(partition="natural", newcomers=2).federation

    for client, name in enumerate(some.names):
        same = whole.client(list(whole.names).index(name))
        assert torch.equal(same.train.inputs, some.client(client).train.inputs)


@pytest.mark.parametrize("changes", [["crop", "flip", "turn"], {"crop": {"padding": 1}}, {"flip": {}}], ids=str)
def test_training_images_are_changed_and_the_data_are_not(changes):
    plain, changed = build_data().federation, build_data(augment=changes).federation

    assert plain.augment is None
    assert changed.augment is not None
    inputs = changed.client(0).train.inputs
    assert torch.equal(inputs, plain.client(0).train.inputs)
    after = changed.augment(inputs, torch.Generator().manual_seed(0))
    assert after.shape == inputs.shape
    assert not torch.equal(after, inputs)


def test_an_empty_list_takes_the_data_sets_own_changes_away(monkeypatch):
    def with_augment() -> DataSet:
        return replace(owned(), augment=lambda inputs, generator: inputs)

    monkeypatch.setitem(SOURCES, "owned", Source(name="owned", about="for tests", files=(), load=with_augment))

    assert build_data().federation.augment is not None
    assert build_data(augment=[]).federation.augment is None


def test_all_changes_of_images_that_there_are_can_stand_in_a_file():
    assert set(AUGMENTS) <= set(vars(augment))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": {"form": "letters"}}, 'source is a table without a name: write source = {name = "digits"}'),
        (
            {"source": {"name": "owned", "owner": 3}},
            "data source 'owned' has no option 'owner'. Did you mean 'owners'?",
        ),
        ({"source": {"name": "ownd"}}, "There is no data source 'ownd'. Did you mean 'owned'"),
        ({"partition": "natural", "clients": 3}, "takes the clients of the data set, not 'clients': leave it out"),
        ({"partition": "natural", "min_trian": 3}, "no option 'min_trian'. Did you mean 'min_train'"),
        ({"partition": "natural", "source": "tiny"}, "'tiny' does not say whose each example is"),
        ({"partition": "feature_shift"}, "partition 'feature_shift' needs 'base', the rule it is put around"),
        ({"partition": "feature_shift", "base": "idd"}, "There is no partition 'idd'. Did you mean 'iid'"),
        ({"partition": "feature_shift", "base": "iid", "rotatoin": 3}, "no option 'rotatoin'. Did you mean 'rotation'"),
        ({"partition": "feature_shift", "base": "iid", "source": "tiny"}, "feature_shift is for images"),
        ({"partition": "feature_shift", "base": "feature_shift"}, "needs 'base'"),
        ({"partition": "mixture"}, "partition 'mixture' needs parts"),
        ({"partition": "mixture", "parts": "iid"}, "give a list of tables"),
        ({"partition": "mixture", "parts": [{"share": 1.0}]}, "each has a share and a partition"),
        ({"partition": "mixture", "parts": [{"share": 0.0, "partition": "iid"}]}, "each has a share and a partition"),
        ({"partition": "mixture", "parts": [{"share": 0.5, "partition": "iid"}]}, "sum to 0.5"),
        ({"partition": "mixture", "parts": [{"share": 1, "partition": "iid", "clint": 3}]}, "Did you mean 'clients'"),
        ({"partition": "mixture", "parts": [{"share": 1, "partition": "natural"}]}, "cannot be a part of a mixture"),
        ({"partition": "shards", "shards": 3}, "Did you mean 'shape' or 'shards_per_client'"),
        ({"partition": "iid", "newcommers": 1}, "Did you mean 'newcomers'"),
        ({"newcomers": 4}, "newcomers is 4: give a number of clients from 1 to 3"),
        ({"augment": ["flp"]}, "There is no augment 'flp'. Did you mean 'flip'"),
        ({"augment": {"crop": {"pading": 2}}}, "augment 'crop' has no option 'pading'. Did you mean 'padding'"),
        ({"augment": {"crop": 2}}, "give a table of its options"),
        ({"augment": ["flip"], "source": "tiny"}, "Only images"),
        ({"split_by": "time", "source": "tiny"}, "'tiny' does not say when its examples are from"),
        ({"test_rule": "same", "source": "tiny"}, "'same' needs test examples, but the data set 'tiny' has none"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_in_one_message(data, message):
    assert message in problem_with(**data)


@pytest.mark.parametrize(
    "data",
    [
        {"source": 3},
        {"split_by": "grup"},
        {"test_rule": "sam"},
        {"test_size": 0},
        {"newcomers": "two"},
        {"newcomers": True},
        {"augment": 3},
    ],
    ids=str,
)
def test_values_of_the_wrong_kind_are_told_by_key(data):
    with pytest.raises(InvalidConfig, match=f"^data.{next(iter(data))} = "):
        make_experiment(table(data=data))


def own_examples(size: int = 60):
    """A source of the tests' own, found in a file by "package.module:function"."""
    draws = np.random.default_rng(0)
    return draws.normal(size=(size, 3)).astype(np.float32), np.arange(size) % 3


def test_a_function_of_ones_own_may_be_the_source():
    table = {"method": "fedavg", "data": {"partition": "iid", "clients": 3, "source": f"{__name__}:own_examples"}}
    federation = build(make_experiment(table)).federation
    assert (federation.num_clients, federation.classes, federation.total_examples) == (3, 3, 36)
    table["data"]["source"] = {"name": f"{__name__}:own_examples", "size": 30}
    assert build(make_experiment(table)).federation.total_examples == 18


@pytest.mark.parametrize(("asked", "count"), [(300, 300), (0.5, 898)])
def test_some_examples_are_drawn_before_they_are_dealt(asked, count):
    """Half of the 1,797 digits, to the nearest whole number."""
    dealt = [
        build(make_experiment({"method": "fedavg", "data": {"examples": asked, "seed": seed}})).federation
        for seed in (0, 0, 1)
    ]

    sizes = [
        sum(len(part.targets) for part in (client.train, client.validation, client.test))
        for client in clients(dealt[0])
    ]
    assert sum(sizes) == count
    first, again, other = (federation.fingerprint()["data"] for federation in dealt)
    assert first == again != other


def clients(federation):
    return [federation.client(number) for number in range(federation.num_clients)]


@pytest.mark.parametrize("asked", [0, -1, 1798, 0.0, 1.0, 1.5, 1e-9])
def test_examples_that_there_are_not_are_refused(asked):
    with pytest.raises(InvalidConfig, match=r"examples = .*1,797 examples"):
        build(make_experiment({"method": "fedavg", "data": {"examples": asked}}))
