"""Natural clients: those that the data set names, filtered as papers filter them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import DataSet, Federation, feature_shift, natural, partition

SIZES = {"ann": 30, "bob": 10, "cy": 4, "dee": 20, "eve": 12}
TESTS = {"ann": 3, "bob": 9, "cy": 9, "dee": 0, "eve": 5}


def numbered(start: int, size: int) -> Batch:
    """Each input is its own number, so that an example can be followed."""
    positions = torch.arange(start, start + size)
    return Batch(positions[:, None].to(torch.float32), positions % 3)


def owners_of(sizes: dict[str, int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), list(sizes.values())))


def people(**changes: Any) -> DataSet:
    return DataSet(
        name="people",
        examples=numbered(0, sum(SIZES.values())),
        owners=owners_of(SIZES, 0),
        owner_names=tuple(SIZES),
        **changes,
    )


def with_tests() -> DataSet:
    tests = owners_of(TESTS, 1)
    return people(test=numbered(1000, sum(TESTS.values())), test_owners=tests)


def sizes_of(federation: Federation) -> dict[str, tuple[int, ...]]:
    return {
        federation.name(client): tuple(batch.num_examples for batch in federation.client(client).splits.values())
        for client in range(federation.num_clients)
    }


def held(federation: Federation, client: int) -> list[int]:
    return sorted(int(x) for batch in federation.client(client).splits.values() for x in batch.inputs[:, 0])


def test_every_owner_is_a_client_with_its_name_and_its_own_examples() -> None:
    dataset = people()

    federation = partition(dataset, natural(), seed=0)

    assert list(federation.names) == ["ann", "bob", "dee", "eve"]  # cy has fewer than five
    assert dataset.owners is not None
    for client, owner in enumerate([0, 1, 3, 4]):
        assert held(federation, client) == np.flatnonzero(dataset.owners == owner).tolist()


def test_owners_without_names_have_their_numbers() -> None:
    federation = partition(replace(people(), owner_names=()), natural(), seed=0)

    assert list(federation.names) == ["0", "1", "3", "4"]


def test_test_examples_go_to_their_own_owners() -> None:
    dataset = with_tests()

    federation = partition(dataset, natural(min_test=1, min_examples=4), seed=0, split=(0.75, 0.25, 0))

    assert {name: sizes[2] for name, sizes in sizes_of(federation).items()} == {"ann": 3, "bob": 9, "cy": 9, "eve": 5}
    assert dataset.test_owners is not None
    tested = federation.client(1).test.inputs[:, 0].long() - 1000
    assert sorted(tested.tolist()) == np.flatnonzero(dataset.test_owners == 1).tolist()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        # 60/20/20 of 30, 10, 4, 20, 12 leave 24, 8, 3, 16, 10 to train and validate on, and 6, 2, 1, 4, 2 to test.
        ({"min_examples": 1}, ["ann", "bob", "cy", "dee", "eve"]),
        ({"min_examples": 12}, ["ann", "dee", "eve"]),
        ({"min_train": 10}, ["ann", "dee", "eve"]),
        ({"min_train": 11}, ["ann", "dee"]),
        ({"min_test": 3}, ["ann", "dee"]),
        ({"min_train": 1, "min_test": 5}, ["ann"]),
    ],
    ids=str,
)
def test_filters_look_at_sizes_before_or_after_the_split(options: dict[str, int], names: list[str]) -> None:
    assert list(partition(people(), natural(**options), seed=0).names) == names


def test_filters_look_at_the_data_sets_own_test_examples() -> None:
    federation = partition(with_tests(), natural(min_train=10, min_test=4), seed=0)

    assert list(federation.names) == ["bob", "eve"]


def test_training_examples_are_truncated_by_a_draw_and_nothing_else_is() -> None:
    whole = partition(people(), natural(), seed=0)
    cut = partition(people(), natural(max_train=7), seed=0)

    assert {name: sizes[0] for name, sizes in sizes_of(cut).items()} == {"ann": 7, "bob": 6, "dee": 7, "eve": 7}
    for client in range(4):
        before, after = whole.client(client), cut.client(client)
        assert set(after.train.inputs[:, 0].tolist()) <= set(before.train.inputs[:, 0].tolist())
        assert torch.equal(after.test.inputs, before.test.inputs)
    assert cut.fingerprint() == partition(people(), natural(max_train=7), seed=0).fingerprint()
    assert cut.fingerprint() != partition(people(), natural(max_train=7), seed=1).fingerprint()


def test_some_clients_are_drawn_by_the_seed_and_keep_their_splits() -> None:
    whole = sizes_of(partition(people(), natural(), seed=0))
    drawn = {seed: partition(people(), natural(sample_clients=2), seed=seed) for seed in range(6)}

    assert all(federation.num_clients == 2 for federation in drawn.values())
    assert len({tuple(federation.names) for federation in drawn.values()}) > 1
    assert list(drawn[3].names) == list(partition(people(), natural(sample_clients=2), seed=3).names)
    assert all(sizes == whole[name] for name, sizes in sizes_of(drawn[0]).items())


def test_styles_stay_with_their_clients_when_some_are_filtered_out() -> None:
    images = replace(people(), examples=Batch(torch.rand(76, 1, 6, 6), torch.arange(76) % 3))
    all_of_them = partition(images, feature_shift(natural()), seed=0)
    some = partition(images, feature_shift(natural(min_train=10)), seed=0)

    assert list(some.names) == ["ann", "dee", "eve"]
    for name in some.names:
        one, other = (federation.client(list(federation.names).index(name)) for federation in (all_of_them, some))
        assert torch.equal(one.train.inputs, other.train.inputs)


@pytest.mark.parametrize(
    ("dataset", "rule", "options", "message"),
    [
        (
            replace(people(), owners=None),
            natural(),
            {},
            "'people' does not say whose each example is.*such as dirichlet",
        ),
        (people(), natural(min_examples=31), {}, "No client of 'people' has 31 examples, the most are 30"),
        (people(), natural(min_train=99), {}, "No client of 'people' has 99 examples to train on and 0 to test on"),
        (replace(with_tests(), test_owners=None), natural(), {}, "does not say whose its test examples are: .*'own'"),
        (with_tests(), natural(), {}, "Client dee has no test examples: drop it .min_test."),
        (people(), natural(min_examples=1), {"split": (0.2, 0.4, 0.4)}, None),
    ],
    ids=["no owners", "too few", "filtered", "no test owners", "untested", "fine"],
)
def test_what_natural_clients_cannot_be_made_of_is_told_in_one_message(
    dataset: DataSet, rule: Any, options: dict[str, Any], message: str | None
) -> None:
    if message is None:
        assert partition(dataset, rule, seed=0, **options).num_clients == 5
        return
    with pytest.raises(InvalidData, match=message) as caught:
        partition(dataset, rule, seed=0, **options)
    assert len(caught.value.problems) == 1


def test_more_clients_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(InvalidConfig, match=r"sample_clients is 9, but only 4 clients of 'people' pass: .* at most 4"):
        partition(people(), natural(sample_clients=9), seed=0)


def test_clients_too_small_to_be_split_are_refused_by_name_or_dropped_by_a_filter() -> None:
    tiny = replace(people(), owners=np.repeat([0, 1, 2], [70, 5, 1]), owner_names=("a", "b", "c"))

    with pytest.raises(InvalidData, match="Client c has one example, too few for train, validation, test"):
        partition(tiny, natural(min_examples=1), seed=0)
    assert list(partition(tiny, natural(min_examples=1, min_test=1), seed=0).names) == ["a", "b"]


def test_all_bad_options_are_listed_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        natural(min_train=-1, min_test=0.5, max_train=0, sample_clients=0, min_examples=0)  # type: ignore[arg-type]

    found = [problem.split()[0] for problem in caught.value.problems]
    assert found == ["min_examples", "max_train", "sample_clients", "min_train", "min_test"]
