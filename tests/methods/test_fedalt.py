"""FedAlt (METHODS 2.9)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from plures.core.client import run_phases
from plures.core.problem import Problem
from plures.local import epochs, steps
from plures.methods import fedalt, fedavg, local
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Population,
    Product,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    part_of,
    play,
    toy_client,
    toy_loss,
)

ALL = BODY + HEAD


def toy(**options):
    method = fedalt(**{"lr": 0.1, "budget": steps(1)} | options)
    return play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)


def test_the_shared_part_moves_with_the_gradient_at_the_new_personal_part():
    """F = (u v - 1)^2 / 2 at u = 1, v = 2: v = 2 - 0.1 * 1 = 1.9; then dF/du = (1.9 - 1) 1.9 = 1.71, u = 0.829."""
    run = toy(personal="v")
    assert float(run.final[0]["v"]) == pytest.approx(1.9, rel=1e-12)
    assert float(run.shared["u"]) == pytest.approx(0.829, rel=1e-12)


def test_the_parts_may_have_rates_and_budgets_of_their_own():
    """v: 2 - 0.3 * 1 = 1.7, then 1.7 - 0.3 * 0.7 = 1.49; u: dF/du = 0.49 * 1.49 = 0.7301, u = 1 - 0.07301."""
    run = toy(personal="v", personal_lr=0.3, personal_budget=steps(2))
    assert float(run.final[0]["v"]) == pytest.approx(1.49, rel=1e-12)
    assert float(run.shared["u"]) == pytest.approx(0.92699, rel=1e-12)


def test_each_phase_leaves_the_other_part_bitwise_as_it_was():
    run = play(fedalt(lr=0.3, budget=epochs(2, batch=3)), 2, uniform(3))
    personal, shared = run.program.method.local
    for client in range(5):
        binding, visit, params = run.program.binding(client), run.visit(client), run.model(client)
        middle = run_phases((personal,), binding, visit, params)[0]
        assert_same_bits(part_of(middle, BODY), part_of(params, BODY))
        assert all(not torch.equal(middle[name], params[name]) for name in HEAD)
        last = run_phases((shared,), binding, visit, middle)[0]
        assert_same_bits(part_of(last, HEAD), part_of(middle, HEAD))
        assert all(not torch.equal(last[name], middle[name]) for name in BODY)


def test_the_second_phase_leaves_the_personal_part_as_the_first_left_it():
    """With and without a second phase, the states after one round are the same."""
    both = play(fedalt(lr=0.3, budget=epochs(2, batch=3), personal_budget=steps(3)), 1)
    first = play(fedalt(lr=0.3, budget=epochs(0), personal_budget=steps(3)), 1)
    for client in range(5):
        assert_same_bits(both.final[client], first.final[client])


def test_without_shared_steps_the_shared_part_is_constant():
    run = play(fedalt(lr=0.3, budget=steps(0), personal_budget=steps(2)), 3, uniform(3))
    assert_same_bits(run.shared, run.servers[0].shared)
    assert any(not torch.equal(run.final[i]["head.weight"], run.states[0][i]["head.weight"]) for i in range(5))


def test_without_personal_steps_the_personal_parts_are_constant():
    run = play(fedalt(lr=0.3, budget=steps(2), personal_budget=steps(0)), 3, uniform(3))
    for client in range(5):
        assert_same_bits(run.final[client], run.states[0][client])
    assert all(not torch.equal(run.shared[name], run.servers[0].shared[name]) for name in BODY)


def test_two_passes_over_the_data_per_epoch_and_the_mean_loss_of_both_phases():
    """Twice the passes of FedSim; the report names each phase's own mean loss."""
    (report,) = play(fedalt(budget=epochs(1, batch=2)), 1).reports
    assert report.network_passes == 2 * 5
    assert set(report.losses) == {"personal", "shared"}
    assert report.losses["shared"] < report.losses["personal"]


def test_the_first_phase_may_be_capped():
    """A cap of 2 updates on 2 examples each: 4 / N_i passes for clients of 5, 7 and 9; 3 / 3 and 4 / 4 for the others.

    The second phase passes over everything once.
    """
    method = fedalt(budget=epochs(1, batch=2), personal_budget=epochs(1, batch=2, cap=2))
    (report,) = play(method, 1).reports
    assert report.network_passes == pytest.approx(5 + 1 + 4 / 5 + 4 / 7 + 4 / 9 + 1, rel=1e-12)


def test_the_personal_regulariser_acts_in_the_first_phase_only():
    """Two personal steps at rate 0.1 with 0.5 |v - 2|^2, as in FedSim's test: v = 1.82; then u at that v.

    dF/du = (1.82 - 1) 1.82 = 1.4924, so u = 0.85076: nothing of the regulariser is in it.
    """
    run = toy(personal="v", personal_budget=steps(2), personal_l2=0.5)
    assert float(run.final[0]["v"]) == pytest.approx(1.82, rel=1e-12)
    assert float(run.shared["u"]) == pytest.approx(0.85076, rel=1e-12)
    assert run.program.method.local[1].penalty is None


def test_both_phases_see_the_same_batches_unless_they_have_streams_of_their_own():
    """Then the loss of a shared phase with rate 0 is that of the personal phase with rate 0, batch by batch."""
    still = {"lr": 0.0, "budget": epochs(1, batch=2)}
    (same,) = play(fedalt(**still), 1).reports
    (other,) = play(fedalt(**still, personal_budget=epochs(1, batch=2, stream="personal")), 1).reports
    assert same.losses["personal"] == same.losses["shared"]
    assert other.losses["personal"] != other.losses["shared"]


def test_adaptation_is_the_personal_phase_for_longer():
    run = play(fedalt(lr=0.3, budget=epochs(1, batch=2), adapt=epochs(4, batch=3)), 2)
    longer = (replace(run.program.method.local[0], budget=epochs(4, batch=3)),)
    own = run.adapted(2)
    assert_same_bits(own, run_phases(longer, run.program.binding(2), run.visit(2), run.model(2))[0])
    assert_same_bits(part_of(own, BODY), run.shared)
    assert all(not torch.equal(own[name], run.final[2][name]) for name in HEAD)


# With `mean_regularised`: F_i(v_i) + strength / 2 |v_i - u|^2


def test_mean_regularised_by_hand():
    """u = v = (1, 2) of F = (v_1 v_2 - 1)^2 / 2, strength 0.5, rate 0.1, one step of each phase, two rounds.

    Round 1: v = (0.8, 1.9), then u = (1, 2) - 0.1 * 0.5 * (0.2, 0.1) = (0.99, 1.995).
    Round 2: v_1 v_2 - 1 = 0.52; grad_v = (0.52 * 1.9 + 0.5 (0.8 - 0.99), 0.52 * 0.8 + 0.5 (1.9 - 1.995))
    = (0.893, 0.3685), v = (0.7107, 1.86315); grad_u = 0.5 (0.99 - 0.7107, 1.995 - 1.86315) = (0.13965, 0.065925),
    u = (0.976035, 1.9884075).
    """
    method = fedalt(lr=0.1, budget=steps(1), mean_regularised=0.5)
    run = play(method, 2, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert [float(run.servers[1].shared[name]) for name in "uv"] == pytest.approx([0.99, 1.995], rel=1e-12)
    assert [float(run.states[1][0][f"twin.{name}"]) for name in "uv"] == pytest.approx([0.8, 1.9], rel=1e-12)
    assert [float(run.shared[name]) for name in "uv"] == pytest.approx([0.976035, 1.9884075], rel=1e-12)
    assert [float(run.final[0][f"twin.{name}"]) for name in "uv"] == pytest.approx([0.7107, 1.86315], rel=1e-12)


def test_mean_regularised_gradient_of_the_shared_model_is_strength_times_its_distance_from_the_twin():
    run = play(fedalt(mean_regularised=0.7, budget=steps(2)), 2)
    visit, params = run.visit(1), run.model(1)
    problem = Problem(phase=run.program.method.local[1], visit=visit, binding=run.program.binding(1), params=params)
    grads, _ = problem.gradients(params, visit.data, problem.moving_names())
    assert_near(grads, {name: 0.7 * (params[name] - params[f"twin.{name}"]) for name in ALL})


def test_mean_regularised_with_strength_zero_is_local_beside_a_model_that_stays():
    budget = epochs(2, batch=3)
    run = play(fedalt(lr=0.3, budget=budget, mean_regularised=0.0), 3, uniform(3))
    alone = play(local(lr=0.3, budget=budget), 3, uniform(3))
    assert_same_bits(run.shared, run.servers[0].shared)
    twins = {i: {name: state[f"twin.{name}"] for name in ALL} for i, state in run.final.items()}
    assert_all_near(twins, alone.final)


def test_mean_regularised_with_more_strength_holds_twins_and_model_closer_together():
    """Where v_i has come to rest, grad F_i(v_i) = strength (u - v_i): the distance falls as strength grows."""

    def spread(strength):
        run = play(fedalt(lr=0.1, budget=steps(1), mean_regularised=strength), 40, population=federation([4, 6]))
        apart = [state[f"twin.{name}"] - run.shared[name] for state in run.final.values() for name in ALL]
        return sum(float(value.norm()) for value in apart)

    weak, middle, strong = spread(0.1), spread(1.0), spread(5.0)
    assert strong < middle / 2
    assert middle < weak / 2


def test_without_a_personal_part_it_is_fedavg_and_without_a_shared_one_local():
    """The phase that has nothing to move costs no pass."""
    budget = epochs(2, batch=3)
    averaged = play(fedalt(personal=(), lr=0.3, budget=budget), 3, uniform(3))
    assert_same_bits(averaged.shared, play(fedavg(lr=0.3, budget=budget), 3, uniform(3)).shared)
    alone = play(fedalt(personal="*", lr=0.3, budget=budget), 3, uniform(3))
    twin = play(local(lr=0.3, budget=budget), 3, uniform(3))
    for client in range(5):
        assert_same_bits(alone.final[client], twin.final[client])
    assert averaged.reports[0].network_passes == alone.reports[0].network_passes == 2 * 3
