"""FedSpa's masks: how many ones they have, when they move, what is sent under them, and what becomes of the rest."""

from __future__ import annotations

import pytest
import torch

from plures.local import adam, epochs, sgd, steps
from plures.methods import fedspa
from plures.parts.densities import counts, erk
from plures.server import fedyogi
from tests.helpers.methods import Given, Population, assert_same_bits, federation, network, part_of, play
from tests.methods.test_fedspa import ALL, COHORTS, masked, masks_of, ones, sparse

SHAPES = {name: tuple(value.shape) for name, value in network().named_parameters()}
DIFFERENT = {"same_masks": False, "density": 0.4}
"""With masks of their own, two clients leave some coordinates to nobody."""


# Masks


@pytest.mark.parametrize("options", [{}, {"search": "rsm"}, {"regrow": "random"}, DIFFERENT, {"densities": "uniform"}])
def test_every_tensor_has_as_many_ones_as_its_density_says_in_every_mask_of_every_round(options):
    run = sparse(6, COHORTS, **options)
    density = options.get("density", 0.6)
    shares = dict.fromkeys(ALL, density) if "densities" in options else erk(SHAPES, density)
    for states in run.states:
        for state in states.values():
            assert ones(masks_of(state)) == counts(SHAPES, shares)


def test_masks_move_by_the_annealed_share_and_not_at_all_in_the_last_round():
    """Rates of five rounds: 0.5, 0.25 (1 + cos(pi / 4)), 0.25, 0.25 (1 - cos(pi / 4)), 0; ceil(rate * ones) move."""
    run = sparse(5, lr=0.5)
    rates = [0.5, 0.25 * (1 + 0.5**0.5), 0.25, 0.25 * (1 - 0.5**0.5), 0.0]
    moved = [0] * 5
    for visit, result in run.results:
        before, after = masks_of(visit.state), masks_of(result.state)
        for name, count in ones(before).items():
            distance = int((before[name] != after[name]).sum())
            pruned = -int(-rates[visit.round - 1] * count // 1)  # rounded up
            assert distance <= 2 * pruned
            moved[visit.round - 1] += distance
    assert moved[0] > 0
    assert moved[-1] == 0


def test_a_dense_tensor_stays_dense_and_its_mask_is_never_told():
    """At density 0.75 ERK makes biases dense: raw densities 7/12, 1, 6/9, 1, so that eps = 20.25 / 19 > 1."""
    run = sparse(4, density=0.75, lr=1.0)
    for states in run.states:
        for state in states.values():
            masks = masks_of(state)
            assert [bool(masks[name].all()) for name in ALL] == [False, True, False, True]
    told = {name for _, result in run.results for name in result.known}
    assert told == {"mask.body.weight", "mask.head.weight"}


def test_all_clients_start_from_the_same_masks_unless_they_are_to_differ():
    same, other = sparse(0).states[0], sparse(0, same_masks=False).states[0]
    for client in range(1, 5):
        assert_same_bits(same[client], same[0])
        assert any(not torch.equal(other[client][name], other[0][name]) for name in other[0])


def test_who_is_away_inherits_its_mask():
    run = sparse(3, Given([(0, 1), (1, 2), (1, 2)], 0.4), prune_rate=0.5)
    assert_same_bits(run.final[0], run.states[1][0])
    assert any(not torch.equal(run.final[0][name], run.states[0][0][name]) for name in run.final[0])
    for client in (3, 4):
        assert_same_bits(run.final[client], run.states[0][client])


def test_random_regrowth_is_drawn_for_each_round_and_client():
    """Clients with the same examples and masks find the same masks by gradient, and others by chance."""
    (batch,) = federation([6]).batches
    three = Population([batch] * 3)
    options = {"lr": 0.3, "budget": steps(2), "density": 0.5, "prune_rate": 0.5}
    found = play(fedspa(**options), 2, population=three).final
    drawn = play(fedspa(**options, regrow="random"), 2, population=three).final
    again = play(fedspa(**options, regrow="random"), 2, population=three).final
    assert_same_bits(found[1], found[0])
    assert any(not torch.equal(drawn[1][name], drawn[0][name]) for name in drawn[0])
    for client in range(3):
        assert_same_bits(again[client], drawn[client])


@pytest.mark.parametrize("budget", [steps(0), epochs(0)])
def test_who_has_trained_on_nothing_keeps_its_mask(budget):
    run = sparse(2, budget=budget)
    assert_same_bits(run.final[0], run.states[0][0])


# What is sent


def test_a_client_receives_what_its_mask_keeps_of_the_dense_model_new_places_too():
    run = sparse(4, prune_rate=0.5, lr=0.5)
    new = 0
    for visit, _ in run.results:
        shared, masks = run.servers[visit.round - 1].shared, masks_of(visit.state)
        assert_same_bits(visit.received, masked(shared, masks))
        if visit.round > 1:
            before = masks_of(run.states[visit.round - 2][visit.client])
            grown = {name: mask & ~before[name] for name, mask in masks.items()}
            assert all(visit.received[name][grown[name]].all() for name in ALL)
            new += sum(ones(grown).values())
    assert new > 0


@pytest.mark.parametrize("options", [{}, {"search": "rsm"}, DIFFERENT], ids=["dst", "rsm", "different masks"])
def test_uploads_are_zero_off_the_mask_that_the_client_has_trained_with(options):
    run = sparse(4, **options)
    for visit, result in run.results:
        masks = masks_of(visit.state)
        assert_same_bits(result.upload.held, masks)
        assert_same_bits(result.upload.values, masked(result.upload.values, masks))
        assert_same_bits(masks_of(result.trained), masks)  # evaluated right after training with the same mask
        assert all(not result.trained[name][~mask].any() for name, mask in masks.items())


@pytest.mark.parametrize("options", [{}, {"search": "rsm"}, {"density": 0.3}, {"density": 1.0}])
def test_as_many_values_travel_in_each_direction_as_the_masks_have_ones(options):
    run = sparse(3, COHORTS, **options)
    ones_each = sum(counts(SHAPES, erk(SHAPES, options.get("density", 0.6))).values())
    for report in run.reports:
        assert (report.values_down, report.values_up) == (2 * ones_each, 2 * ones_each)


def test_the_server_is_told_of_masks_only_where_they_have_changed():
    run = sparse(4)
    assert any(result.known for _, result in run.results)
    for visit, result in run.results:
        changed = {name for name in visit.state if not torch.equal(visit.state[name], result.state[name])}
        assert_same_bits(result.known, part_of(result.state, sorted(changed, key=list(result.state).index)))
    assert not any(result.known for _, result in sparse(3, search="rsm").results)


def test_gradients_are_clipped_under_the_mask():
    """One step at rate 0.5 with a gradient of norm 0.01 at most is a way of 0.005, all of it where the mask is one."""
    for visit, result in sparse(1, budget=steps(1), lr=0.5, clip_norm=0.01).results:
        sent = [value[visit.state[f"mask.{name}"]] for name, value in result.upload.values.items()]
        assert float(torch.cat(sent).norm()) == pytest.approx(0.005, rel=1e-4)


# The dense model


@pytest.mark.parametrize("server", [1.0, sgd(0.7, momentum=0.9), adam(0.05), fedyogi(0.05)])
@pytest.mark.parametrize("per_coordinate", [False, True])
def test_the_dense_model_moves_on_the_union_of_the_cohorts_masks_and_nowhere_else(server, per_coordinate):
    """Whatever a server's optimiser remembers of places that were held before."""
    run = sparse(4, COHORTS, server=server, per_coordinate=per_coordinate, **DIFFERENT)
    moved = remembered = 0
    held = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in SHAPES.items()}
    for round, cohort in enumerate(run.cohorts):
        for name in ALL:
            union = torch.stack([run.states[round][client][f"mask.{name}"] for client in cohort]).any(dim=0)
            before, after = run.servers[round].shared[name], run.servers[round + 1].shared[name]
            assert_same_bits({name: after[~union]}, {name: before[~union]})
            moved += int((after[union] != before[union]).sum())
            remembered += int((held[name] & ~union).sum())
            held[name] |= union
    assert moved > 40
    assert remembered > 10


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_under_masks_that_stay_what_nobody_holds_keeps_its_first_value_also_with_weight_decay(weight_decay):
    run = sparse(3, search="rsm", lr=sgd(0.3, momentum=0.5, weight_decay=weight_decay))
    masks = masks_of(run.final[0])
    for name, mask in masks.items():
        assert_same_bits({name: run.shared[name][~mask]}, {name: run.servers[0].shared[name][~mask]})
        assert (run.shared[name][mask] != run.servers[0].shared[name][mask]).all()
