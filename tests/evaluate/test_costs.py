"""Costs of a visit against counts by hand: operations, dense and sparse, the search for masks, and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from plures.core.client import Result
from plures.core.method import Method, whole_shared_part
from plures.core.types import Batch
from plures.core.visit import Visit
from plures.evaluate import costs
from plures.evaluate.costs import CostMeter, VisitCost, largest_batch, states_kept
from plures.local import adam, epochs, sgd, steps
from plures.local.mask_search import grow_by_gradient, prune_and_grow
from plures.methods import ditto, fedavg, fedem, fedmask, fedper, fedspa, local, pflego
from tests.helpers.methods import Population, play

# The network: 4 inputs, 3 hidden units, 3 classes; 12 + 3 and 9 + 3 values of 8 bytes. Autograd keeps inputs and hidden
# units of each example, 7 values. Client 1 has 5 examples.
FORWARD = 2 * 12 + 3 + 2 * 9 + 3
VALUES, BYTES, EXAMPLE_BYTES = 27, 27 * 8, 7 * 8
FOUR = epochs(1, batch=4)
THIRD = {"density": 1 / 3, "densities": "uniform"}
"""Of 12, 3, 9 and 3 entries, 4, 1, 3 and 1 are kept."""
SPARSE_FORWARD = 2 * 4 + 1 + 2 * 3 + 1


def cost_of(method: Method, client: int = 1, round: int = 1) -> VisitCost:
    played = play(method, 2)
    visit, result = visit_of(played.results, client, round)
    return CostMeter(played.program).of_visit(visit, result)


def visit_of(results: list[tuple[Visit, Result]], client: int = 1, round: int = 1) -> tuple[Visit, Result]:
    (found,) = [(visit, result) for visit, result in results if (visit.client, visit.round) == (client, round)]
    return found


# Operations


@pytest.mark.parametrize(("budget", "seen"), [(FOUR, 5), (epochs(3, batch=2), 15), (steps(7, batch=2), 12)])
def test_a_step_costs_three_forward_passes_of_its_batch(budget, seen):
    """Seven batches of 5 examples have 2, 2, 1, 2, 2, 1 and 2."""
    found = cost_of(fedavg(budget=budget))

    assert found.flops == found.dense_flops == 3 * FORWARD * seen
    assert found.search_flops == 0
    assert found.density == 1.0


def test_operations_of_a_convolution_count_every_output_position():
    """2 filters of 9 weights at 2 x 2 places, with a bias each; then 8 inputs to 3 classes: 152 + 51."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    clients = Population([Batch(torch.randn(6, 1, 4, 4), torch.arange(6) % 3)])

    played = play(fedavg(budget=FOUR), 1, population=clients, module=network)

    found = CostMeter(played.program).of_visit(*visit_of(played.results, client=0))
    assert found.flops == 3 * ((2 * 18 + 2) * 4 + 2 * 24 + 3) * 6


def test_phases_of_two_models_are_both_counted():
    """Two epochs of the shared model and three of the twin."""
    assert cost_of(ditto(budget=epochs(2), personal_budget=epochs(3))).flops == 3 * FORWARD * 25


def test_a_sparse_model_costs_what_its_weights_do_and_a_search_a_dense_gradient_of_one_batch():
    found = cost_of(fedspa(budget=FOUR, **THIRD))

    assert found.search_flops == 3 * FORWARD * 4
    assert found.flops == 3 * SPARSE_FORWARD * 5 + found.search_flops
    assert found.dense_flops == 3 * FORWARD * 5
    assert found.density == pytest.approx(9 / VALUES)


@pytest.mark.parametrize("options", [{"search": "rsm"}, {"regrow": "random"}])
def test_without_a_gradient_there_is_no_search_to_count(options):
    found = cost_of(fedspa(budget=FOUR, **THIRD, **options))

    assert found.search_flops == 0
    assert found.flops == 3 * SPARSE_FORWARD * 5


@pytest.mark.parametrize(("client", "examples"), [(0, 3), (1, 4), (3, 4)])
def test_a_search_takes_a_batch_or_all_examples_if_they_are_fewer(client, examples):
    played = play(fedspa(budget=FOUR), 1)
    _, result = visit_of(played.results, client=client)

    assert result.searched == (examples,)


def test_a_rate_of_zero_searches_nothing_and_a_search_of_ones_own_is_counted_as_it_is():
    """In the last round of two the annealed rate is 0; a search that takes two gradients of a batch counts both."""
    annealed, never = fedspa(budget=FOUR, **THIRD), fedspa(budget=FOUR, prune_rate=0.0, **THIRD)

    def twice(problem, weights, masks, rate):
        grow_by_gradient(problem, weights)
        return prune_and_grow(grow_by_gradient)(problem, weights, masks, rate)

    assert [cost_of(annealed, round=round).search_flops for round in (1, 2)] == [3 * FORWARD * 4, 0]
    assert cost_of(never).search_flops == 0
    own = cost_of(fedspa(budget=FOUR, search=twice, **THIRD))
    assert own.search_flops == 2 * 3 * FORWARD * 4
    assert own.peak_bytes == cost_of(annealed).peak_bytes


def test_a_first_visit_that_trains_the_whole_model_costs_what_the_whole_model_does():
    """FedMask: two epochs on all 12 + 9 weights, then one on its own third; 3 + 3 biases have no masks."""
    options = {"masked": "*", "structured": False, "first_budget": epochs(2, batch=4), "budget": FOUR}
    played = play(fedmask(density=1 / 3, **options), 2)
    meter = CostMeter(played.program)
    first, later = (visit_of(played.results, round=round) for round in (1, 2))
    found, sparse = meter.of_visit(*first), meter.of_visit(*later)

    used = first[1].used
    assert used["body.weight"] <= 4
    assert used["head.weight"] <= 3
    forward = 2 * (used["body.weight"] + used["head.weight"]) + 6
    assert found.flops == 3 * FORWARD * 10 + 3 * forward * 5
    assert sparse.flops <= 3 * (2 * 7 + 6) * 5
    assert found.peak_bytes > sparse.peak_bytes


def test_what_goes_forward_alone_counts_once():
    """PFLEGO: features of 5 examples, then one whole step; FedEM: an E step before each visit's steps."""
    assert cost_of(pflego(tau=4)).flops == (1 + 3) * FORWARD * 5
    assert cost_of(fedem(components=1, budget=FOUR)).flops == (1 + 3) * FORWARD * 5


@pytest.mark.parametrize(("budget", "largest"), [(FOUR, 4), (epochs(1, batch=50), 5), (steps(2), 5)])
def test_the_largest_batch_is_that_of_the_budget_or_all_examples(budget, largest):
    visit, _ = visit_of(play(fedavg(budget=budget), 1).results)

    assert largest_batch(fedavg(budget=budget).local[0], visit) == largest


# Memory


@pytest.mark.parametrize(
    ("rule", "kept"), [(sgd(0.1), 0), (sgd(0.1, weight_decay=0.1), 0), (sgd(0.1, momentum=0.9), 1), (adam(0.1), 2)]
)
def test_peak_memory_is_values_gradients_optimiser_and_activations_of_a_batch(rule, kept):
    found = cost_of(fedavg(lr=rule, budget=FOUR))

    assert states_kept(rule) == kept
    assert found.peak_bytes == 3 * BYTES + kept * BYTES + 4 * EXAMPLE_BYTES


def test_of_two_optimisers_the_larger_one_counts():
    assert states_kept({"shared": sgd(0.1), "personal": adam(0.1)}) == 2


def test_a_full_batch_keeps_activations_of_all_examples():
    assert cost_of(fedavg(budget=steps(1))).peak_bytes == 3 * BYTES + 5 * EXAMPLE_BYTES


def test_a_twin_is_held_beside_the_shared_model_and_has_the_only_gradients_of_its_phase():
    found = cost_of(ditto(budget=FOUR, personal_budget=epochs(1, batch=2)))

    assert found.peak_bytes == 2 * BYTES + 2 * BYTES + 4 * EXAMPLE_BYTES


def test_of_several_phases_the_hungriest_counts():
    found = cost_of(ditto(lr=sgd(0.1), personal_lr=adam(0.1), budget=FOUR, personal_budget=epochs(1, batch=2)))

    assert found.peak_bytes == 2 * BYTES + 4 * BYTES + 2 * EXAMPLE_BYTES


def test_gradients_that_are_only_observed_are_held_too():
    """PFLEGO's last step has the gradients of head and body at once, on all examples."""
    assert cost_of(pflego(tau=2)).peak_bytes == 2 * BYTES + 5 * EXAMPLE_BYTES


def test_parts_that_hold_still_have_no_gradients():
    """Only the head moves: 12 values."""
    method = fedper(budget=FOUR)
    head_alone = replace(method, local=(replace(method.local[0], train="personal"),))

    assert cost_of(head_alone).peak_bytes == BYTES + 12 * 8 + 4 * EXAMPLE_BYTES


def test_a_sparse_model_is_held_sparse_with_a_bit_for_each_entry_of_its_masks():
    """9 of 27 values as received and as trained, 27 bits, gradients of the 9."""
    found = cost_of(fedspa(budget=FOUR, search="rsm", **THIRD))

    assert found.peak_bytes == round(9 * 8 + 27 / 8) + 2 * 9 * 8 + 4 * EXAMPLE_BYTES


def test_the_dense_gradient_of_a_search_is_counted():
    found = cost_of(fedspa(budget=FOUR, **THIRD))

    assert found.peak_bytes == round(9 * 8 + 27 / 8) + 9 * 8 + BYTES + 4 * EXAMPLE_BYTES


def test_a_dense_download_is_counted():
    """One weight of each tensor, one example at a time: 4 received, 4 gradients and 7 activations are less than the 23
    values that arrive for nothing."""
    method = fedspa(budget=epochs(1, batch=1), search="rsm", density=0.15, densities="uniform")

    masked, whole = cost_of(method), cost_of(replace(method, download=whole_shared_part))

    assert masked.peak_bytes == round(4 * 8 + 27 / 8) + 2 * 4 * 8 + EXAMPLE_BYTES
    assert whole.peak_bytes == round(4 * 8 + 27 / 8) + 23 * 8


def test_local_training_downloads_nothing():
    assert cost_of(local(budget=FOUR)).peak_bytes == 2 * BYTES + 4 * EXAMPLE_BYTES


# The meter


def test_each_architecture_is_measured_once(monkeypatch):
    measured = []
    original = costs.profile
    monkeypatch.setattr(costs, "profile", lambda *given: measured.append(given) or original(*given))
    played = play(fedavg(budget=FOUR), 3)
    meter = CostMeter(played.program)

    for visit, result in played.results:
        meter.of_visit(visit, result)

    assert len(played.results) == 15
    assert len(measured) == 1


def test_a_row_of_the_records_has_the_fields_of_a_cost():
    found = cost_of(fedavg(budget=FOUR))

    assert found.as_row() == {
        "flops": found.flops,
        "dense_flops": found.dense_flops,
        "search_flops": 0,
        "peak_bytes": found.peak_bytes,
        "density": 1.0,
    }
