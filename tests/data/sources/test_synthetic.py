"""Clients drawn from a known law agree with its formula, and none depends on the others."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.data import SOURCES, Synthetic, check_federation, natural, partition, synthetic_population


def test_labels_are_the_likeliest_class_of_the_clients_own_model() -> None:
    law = Synthetic(classes=4, features=6, seed=5)
    for client in (0, 9):
        truth, batch = law.truth(client), law.examples(client, 40)
        scores = batch.inputs.numpy().astype(np.float64) @ truth.weights + truth.biases
        assert batch.targets.tolist() == scores.argmax(axis=1).tolist()
        assert (batch.inputs.dtype, batch.targets.dtype) == (torch.float32, torch.int64)


def test_drawn_labels_have_the_shares_of_the_softmax() -> None:
    law = Synthetic(classes=3, features=2, labels="drawn", alpha=0, iid=True)
    batch, truth = law.examples(0, 20_000), law.truth(0)
    scores = torch.from_numpy(batch.inputs.numpy().astype(np.float64) @ truth.weights + truth.biases)
    shares = torch.nn.functional.one_hot(batch.targets, 3).double().mean(dim=0)
    # The standard error of a share of 20,000 draws is at most sqrt(0.25 / 20,000) = 0.0035.
    assert shares.tolist() == pytest.approx(scores.softmax(dim=1).mean(dim=0).tolist(), abs=0.015)


def test_inputs_have_the_clients_centre_and_variances_that_fall_with_the_feature() -> None:
    law = Synthetic(features=8)
    inputs = law.examples(3, 20_000).inputs.double()
    # The standard error of a mean is at most 1 / sqrt(20,000) = 0.007, that of a variance sqrt(2) as much.
    assert inputs.mean(dim=0).numpy() == pytest.approx(law.truth(3).centre, abs=0.03)
    assert inputs.var(dim=0).numpy() == pytest.approx(np.arange(1, 9) ** -1.2, rel=0.05)


def test_alpha_and_beta_are_the_variances_of_what_clients_differ_in() -> None:
    law = Synthetic(alpha=4.0, beta=9.0, features=100, classes=5)
    truths = [law.truth(client) for client in range(1000)]
    # Of 100 and 500 numbers a client's mean is u_k or B_k but for a variance of 1/100 and 1/500;
    # the relative standard error of a variance from 1,000 draws is sqrt(2 / 1,000) = 0.045.
    assert np.var([truth.weights.mean() for truth in truths]) == pytest.approx(4.0, rel=0.2)
    assert np.var([truth.centre.mean() for truth in truths]) == pytest.approx(9.0, rel=0.2)
    within = np.mean([truth.weights.var() for truth in truths])
    assert within == pytest.approx(1.0, rel=0.05)


def test_regression_targets_are_the_shared_and_the_personal_part_and_noise() -> None:
    law = Synthetic(goal="regression", alpha=0.5, noise=0.1, features=5)
    first, second = law.truth(0), law.truth(1)
    assert np.array_equal(first.shared, second.shared)
    assert not np.array_equal(first.personal, second.personal)
    batch = law.examples(0, 5000)
    inputs = batch.inputs.double().numpy()
    errors = batch.targets.double().numpy() - (inputs @ (first.shared + first.personal))[:, 0] - first.biases[0]
    assert batch.targets.dtype == torch.float32
    # Standard errors: 0.1 / sqrt(5,000) = 0.0014 of the mean, and of the deviation 0.1 / sqrt(10,000) = 0.001.
    assert (errors.mean(), errors.std()) == pytest.approx((0.0, 0.1), abs=0.006)


def test_least_squares_find_the_truth_of_each_client() -> None:
    law = Synthetic(goal="regression", noise=0.01, features=4)
    for client in range(3):
        batch, truth = law.examples(client, 2000), law.truth(client)
        inputs = np.column_stack([batch.inputs.double().numpy(), np.ones(2000)])
        found, *_ = np.linalg.lstsq(inputs, batch.targets.double().numpy(), rcond=None)
        assert found == pytest.approx([*truth.weights[:, 0], truth.biases[0]], abs=0.01)


@pytest.mark.parametrize("goal", ["classification", "regression"])
def test_iid_clients_have_one_law(goal: Any) -> None:
    law = Synthetic(iid=True, goal=goal)
    first, second = law.truth(0), law.truth(1)
    for part in ("weights", "biases", "centre"):
        assert np.array_equal(getattr(first, part), getattr(second, part))
    assert not np.any(first.personal)
    assert not torch.equal(law.examples(0, 3).inputs, law.examples(1, 3).inputs)


def test_with_alpha_0_regression_has_no_personal_part() -> None:
    truth = Synthetic(goal="regression", alpha=0).truth(7)
    assert not np.any(truth.personal)
    assert not np.any(truth.biases)


def test_a_client_is_the_same_however_many_there_are_and_another_seed_is_another() -> None:
    load = SOURCES["synthetic"].load
    few, many, other = load(clients=3), load(clients=6), load(clients=3, seed=1)
    size = few.examples.num_examples
    assert torch.equal(few.examples.inputs, many.examples.inputs[:size])
    assert not torch.equal(few.examples.inputs[:5], other.examples.inputs[:5])
    assert torch.equal(Synthetic().examples(2, 10).inputs, Synthetic().examples(2, 30).inputs[:10])


def test_sizes_are_log_normal_with_a_least_and_a_most() -> None:
    dataset = SOURCES["synthetic"].load(clients=400, features=1, classes=2, min_examples=20, max_examples=500)
    assert dataset.owners is not None
    sizes = np.bincount(dataset.owners, minlength=400)
    assert (sizes.min(), sizes.max()) == (20, 500)
    # Beyond the least, the median is exp(4) = 54.6; the log of a median of 400 has a standard error of 2 * 1.25 / 20.
    assert np.log(np.median(sizes) - 20) == pytest.approx(4.0, abs=0.45)


@pytest.mark.parametrize("goal", ["classification", "regression"])
def test_the_source_makes_a_federation_of_its_clients(goal: Any) -> None:
    dataset = SOURCES["synthetic"].load(clients=5, classes=7, features=3, goal=goal)
    federation = partition(dataset, natural(), seed=0)
    check_federation(federation)
    assert federation.num_clients == 5
    assert (federation.classes, federation.goal.name) == ((7, goal) if goal == "classification" else (1, goal))
    assert federation.input_shape == (3,)


@pytest.mark.parametrize("goal", ["classification", "regression"])
def test_a_population_draws_each_client_on_demand_and_holds_none(goal: Any) -> None:
    law = Synthetic(goal=goal, features=20, seed=2)
    federation = synthetic_population(100_000, examples=50, law=law, cache_bytes=0)
    check_federation(federation, sample=5)
    assert (federation.num_clients, federation.total_examples) == (100_000, 3_000_000)
    client = federation.client(99_999)
    assert [batch.num_examples for batch in client.splits.values()] == [30, 10, 10]
    whole = law.examples(99_999, 50)
    assert torch.equal(torch.cat([batch.inputs for batch in client.splits.values()]), whole.inputs)
    assert torch.equal(torch.cat([batch.targets for batch in client.splits.values()]), whole.targets)
    copy = pickle.loads(pickle.dumps(federation.population))
    assert torch.equal(copy.load(7).train.inputs, federation.client(7).train.inputs)


def test_memory_does_not_grow_with_the_population() -> None:
    def peak(num_clients: int) -> int:
        tracemalloc.start()
        federation = synthetic_population(num_clients, cache_bytes=0)
        for client in range(0, num_clients, num_clients // 20):
            federation.client(client)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100)
    assert peak(1_000_000) < 2 * peak(100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1}, "alpha is -1: it must be a number of at least 0"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"classes": 1}, "classes is 1: it must be a whole number of at least 2"),
        ({"features": 0}, "features is 0"),
        ({"goal": "ranking"}, "goal is 'ranking'"),
        ({"labels": "drawm"}, "labels is 'drawm'. Did you mean 'drawn'"),
        ({"clients": 0}, "clients is 0"),
        ({"min_examples": 0}, "min_examples is 0"),
        ({"log_spread": -1.0}, "log_spread -1.0"),
    ],
)
def test_a_law_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        SOURCES["synthetic"].load(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clients": 0}, "num_clients is 0"),
        ({"num_clients": 5, "examples": 2}, "examples is 2, too few for the split"),
        ({"num_clients": 5, "split": (0.5, 0.0, 0.6)}, "sums to 1.1"),
    ],
)
def test_a_population_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        synthetic_population(**options)
