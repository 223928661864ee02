"""Every workload, and its bare loop, does the number of steps it claims."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.arithmetic import Product, products_of, stretch_flops
from benchmarks.bare import Loop, Stretch, stretches_of, trained
from benchmarks.workloads import ALL, Simulation, Workload, chosen, small_mlp
from plures.local import epochs

TRAINED = [workload.smaller(clients=5, cohort=2, examples=20) for workload in ALL if not workload.evaluated]
EVALUATED = [workload.smaller(clients=5, cohort=2, examples=20) for workload in ALL if workload.evaluated]
SEARCHING = {"f"}
"""Workloads that take one more gradient per client, to search for masks."""


def named(workload: Workload) -> str:
    return workload.key


def claimed(key: str) -> tuple[Workload, list[int]]:
    """A small workload, and the sizes of the clients in its first round."""
    workload = next(one for one in TRAINED if one.key == key)
    return workload, [workload.federation().num_examples(client) for client in workload.cohort_of(1)]


@pytest.mark.parametrize("workload", TRAINED, ids=named)
def test_a_round_takes_as_many_gradients_as_its_workload_claims(workload: Workload) -> None:
    """The loss is computed once for each gradient; one that is not torch's own allows no short cut."""
    calls: list[int] = []

    def counting(output: Tensor, targets: Tensor) -> Tensor:
        calls.append(len(targets))
        return F.cross_entropy(output, targets)

    simulation = Simulation(workload, "sequential")
    simulation.program.loss = counting
    turn = simulation.turn()
    simulation.close()
    assert turn.steps == workload.steps_of(1) > 0
    assert len(calls) == turn.steps + (len(workload.cohort_of(1)) if workload.key in SEARCHING else 0)


@pytest.mark.parametrize("workload", TRAINED + EVALUATED, ids=named)
def test_the_bare_loop_makes_the_same_number_of_steps(workload: Workload) -> None:
    loop = Loop(workload)
    assert loop.work(loop.examples(workload.cohort_of(1))) == workload.steps_of(1) > 0


@pytest.mark.parametrize(
    ("key", "steps"),
    [
        ("a", lambda size: ceil(size / 10)),
        ("b", lambda size: ceil(size / 32)),
        ("c", lambda size: ceil(size / 32)),
        ("d-fedper", lambda size: 50),
        ("d-pflego-50", lambda size: 50),
        ("d-pflego-5", lambda size: 5),
        ("e", lambda size: 2 * ceil(size / 32)),
        ("f", lambda size: ceil(size / 32)),
    ],
)
def test_steps_follow_from_batches_epochs_and_phases(key: str, steps: Callable[[int], int]) -> None:
    """One epoch in batches, or so many full batches; FedAlt makes one epoch for each of its two parts."""
    workload, sizes = claimed(key)
    assert workload.steps_of(1) == sum(steps(size) for size in sizes)


def test_an_evaluation_counts_all_clients() -> None:
    simulation = Simulation(EVALUATED[0], "sequential")
    assert simulation.turn().steps == 5
    simulation.close()


def test_workloads_have_the_sizes_that_were_agreed() -> None:
    found = {workload.key: (workload.clients, workload.cohort) for workload in ALL if not workload.evaluated}
    tens, twenties = dict.fromkeys("ef", (100, 10)), ["a", "b", "c", "d-fedper", "d-pflego-50", "d-pflego-5"]
    assert found == tens | dict.fromkeys(twenties, (100, 20))


def test_every_client_has_examples_of_two_classes() -> None:
    population = TRAINED[0].federation()
    labels = [population.client(client).train.targets.unique() for client in range(population.num_clients)]
    assert [len(found) for found in labels] == [2] * 5


def test_the_bare_loop_moves_what_the_phase_moves_and_nothing_else() -> None:
    workload, _ = claimed("e")
    loop, stretch = Loop(workload), stretches_of(workload)[0]
    before = {name: value.detach().clone() for name, value in loop.module.named_parameters()}
    trained(loop.module, stretch, loop.examples([0])[0])
    moved = {name for name, value in loop.module.named_parameters() if not torch.equal(value, before[name])}
    assert moved == stretch.moving
    assert all(".adapter." in name for name in moved)


def test_a_letter_chooses_all_its_workloads() -> None:
    assert [workload.key for workload in chosen("d,a")] == ["a", "d-fedper", "d-pflego-50", "d-pflego-5"]


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="no workload 'z': choose from a, b"):
        chosen("a,z")


def test_layers_are_products_of_the_sizes_they_have() -> None:
    """A convolution 5 x 5 of one channel on 28 x 28 gives 24 x 24 places; behind it, pooled, 8 x 8."""
    cnn = next(workload for workload in ALL if workload.key == "c").network()
    sizes = [(product.rows, product.inner, product.columns) for product in products_of(cnn)]
    assert sizes == [(24 * 24, 25, 32), (8 * 8, 32 * 25, 64), (1, 1024, 2048), (1, 2048, 10)]


def test_operations_of_a_step_are_counted_forward_and_back() -> None:
    """784-100-10: forward and weights 2 * (78,400 + 1,000) each; the input's gradient is needed for the head only."""
    every = frozenset(name for name, _ in small_mlp().named_parameters())
    stretch = Stretch(moving=every, watched=frozenset(), budget=epochs(1, batch=10))
    per_example = 2 * 2 * (78_400 + 1_000) + 2 * 1_000
    assert stretch_flops(products_of(small_mlp()), stretch, 25) == 25 * per_example


def test_a_frozen_body_is_counted_once_however_many_epochs_there_are() -> None:
    """Three epochs of the head: forward and weights, 2 * 6 operations each; the body before it, 2 * 8, once."""
    products = [Product(layer="body", rows=1, inner=4, columns=2), Product(layer="head", rows=1, inner=2, columns=3)]
    stretch = Stretch(moving=frozenset({"head.weight"}), watched=frozenset(), budget=epochs(3, batch=5))
    assert stretch_flops(products, stretch, 7) == 7 * 16 + 3 * 7 * 2 * 12
