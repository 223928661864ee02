"""Fingerprints stay while data and dealing stay, and change with either."""

from __future__ import annotations

import torch

from plures.core.types import Batch
from plures.data import ClientData, Federation, digits_federation, federate, iid, partition
from plures.data.client import make_client


def examples() -> Batch:
    return Batch(torch.arange(60, dtype=torch.float32).reshape(30, 2), torch.arange(30) % 3)


def halves(label_space: str = "global", cut: int = 15) -> Federation:
    inputs, targets = examples()
    pairs = [(Batch(inputs[part], targets[part]),) * 2 for part in (slice(0, cut), slice(cut, 30))]
    return federate(pairs, label_space=label_space)


def test_the_same_federation_made_twice_has_the_same_fingerprint() -> None:
    first, second = digits_federation().fingerprint(), digits_federation().fingerprint()
    assert first == second
    assert sorted(first) == ["data", "split"]
    assert all(len(digest) == 64 for digest in first.values())


def test_another_deal_of_the_same_examples_changes_the_split_only() -> None:
    base = partition(examples(), iid(3), seed=0).fingerprint()
    for other in (
        partition(examples(), iid(3), seed=1),
        partition(examples(), iid(2), seed=0),
        partition(examples(), iid(3), seed=0, split=(0.5, 0.2, 0.3)),
        partition(examples(), iid(3), seed=0, label_space="local"),
    ):
        assert other.fingerprint()["data"] == base["data"]
        assert other.fingerprint()["split"] != base["split"]


def test_a_changed_value_label_type_or_shape_changes_the_data_only() -> None:
    base = partition(examples(), iid(3), seed=0).fingerprint()
    inputs, targets = examples()
    moved, relabelled = inputs.clone(), targets.clone()
    moved[4, 1] += 1e-3
    relabelled[4] = 0
    for changed in (
        Batch(moved, targets),
        Batch(inputs, relabelled),
        Batch(inputs.to(torch.float64), targets),
        Batch(inputs.reshape(30, 1, 2), targets),
    ):
        other = partition(changed, iid(3), seed=0).fingerprint()
        assert other["data"] != base["data"]
        assert other["split"] == base["split"]


def test_a_changed_test_set_changes_the_data() -> None:
    test = Batch(examples().inputs + 1, examples().targets)
    first = partition(examples(), iid(3), seed=0, test=examples()).fingerprint()
    assert partition(examples(), iid(3), seed=0, test=test).fingerprint()["data"] != first["data"]


def test_ready_clients_have_fingerprints_that_follow_their_examples_and_sizes() -> None:
    base = halves().fingerprint()
    assert halves().fingerprint() == base
    assert halves(cut=14).fingerprint() != base
    local = halves("local").fingerprint()
    assert local["data"] == base["data"]
    assert local["split"] != base["split"]


def test_local_numbers_of_other_classes_are_other_data() -> None:
    inputs = torch.ones(2, 2)
    first, second = (
        federate([(Batch(inputs, torch.tensor(labels)),) * 2], label_space="local", num_classes=10)
        for labels in ([3, 5], [4, 5])
    )
    assert torch.equal(first.client(0).train.targets, second.client(0).train.targets)
    assert first.fingerprint()["data"] != second.fingerprint()["data"]


def test_a_function_is_fingerprinted_by_a_few_of_its_clients() -> None:
    loads: list[int] = []

    def load(client: int) -> ClientData:
        loads.append(client)
        batch = Batch(torch.full((2, 2), float(client)), torch.tensor([0, 1]))
        return make_client(batch, None, batch, "global")

    def federation(num_clients: int, shift: int = 0) -> Federation:
        return Federation.from_function(num_clients, lambda client: load(client + shift), lambda client: 2, 2)

    base = federation(100_000).fingerprint()
    assert len(loads) == 16
    assert federation(100_000).fingerprint() == base
    assert federation(100_001).fingerprint()["split"] != base["split"]
    assert federation(100_000, shift=1).fingerprint()["data"] != base["data"]
