"""FedSim (METHODS 2.8), without the adapters, whose networks are not there yet."""

from __future__ import annotations

import pytest
import torch

from plures.core.problem import Problem
from plures.local import epochs, steps
from plures.methods import fedsim, local
from plures.participation import uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    NormedNetwork,
    Population,
    Product,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
    toy_client,
    toy_loss,
)
from tests.oracles.common import client_loss, gradient

ALL = BODY + HEAD
TWINS = tuple(f"twin.{name}" for name in ALL)


def test_both_parts_move_from_the_same_point():
    """F = (u v - 1)^2 / 2 at u = 1, v = 2: dF/du = 2, dF/dv = 1; rate 0.1 gives u = 0.8 and v = 1.9."""
    method = fedsim(personal="v", lr=0.1, budget=steps(1))
    run = play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert float(run.shared["u"]) == pytest.approx(0.8, rel=1e-12)
    assert float(run.final[0]["v"]) == pytest.approx(1.9, rel=1e-12)


def test_the_parts_may_have_rates_of_their_own():
    """u = 1 - 0.1 * 2 = 0.8 and v = 2 - 0.3 * 1 = 1.7."""
    method = fedsim(personal="v", lr=0.1, personal_lr=0.3, budget=steps(1))
    run = play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert float(run.shared["u"]) == pytest.approx(0.8, rel=1e-12)
    assert float(run.final[0]["v"]) == pytest.approx(1.7, rel=1e-12)


def test_clipping_is_on_the_joint_norm_of_both_parts():
    """The gradient (2, 1) has norm sqrt 5; clipped to 1 it is (2, 1) / sqrt 5 (torch's rule: to 1e-6)."""
    method = fedsim(personal="v", lr=0.1, budget=steps(1), clip_norm=1.0)
    run = play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert float(run.shared["u"]) == pytest.approx(1 - 0.1 * 2 / 5**0.5, rel=1e-6)
    assert float(run.final[0]["v"]) == pytest.approx(2 - 0.1 / 5**0.5, rel=1e-6)


def test_the_shared_part_is_averaged_by_examples_and_the_personal_one_is_not():
    """Clients with 2 and 6 examples and targets 1 and 3: du = (2 - 1) 2 = 2 and (2 - 3) 2 = -2, dv = 1 and -1.

    u = 1 - 0.1 (2/8 * 2 - 6/8 * 2) = 1.1; v = 1.9 and 2.1.
    """
    first, second = toy_client(2), toy_client(6)
    population = Population([first, second._replace(targets=3 * second.targets)])
    run = play(fedsim(personal="v", lr=0.1, budget=steps(1)), 1, population=population, module=Product(), loss=toy_loss)
    assert float(run.shared["u"]) == pytest.approx(1.1, rel=1e-12)
    assert [float(run.final[client]["v"]) for client in (0, 1)] == pytest.approx([1.9, 2.1], rel=1e-12)


def test_one_pass_over_the_data_per_epoch():
    assert play(fedsim(budget=epochs(1, batch=2)), 1).reports[0].network_passes == 5


def test_personal_part_of_who_is_not_drawn_does_not_move():
    run = play(fedsim(budget=epochs(1, batch=2)), 1, Given([(1, 4)], 0.4))
    for client in (0, 2, 3):
        assert_same_bits(run.final[client], run.states[0][client])
    for client in (1, 4):
        assert all(not torch.equal(run.final[client][name], run.states[0][client][name]) for name in HEAD)


def test_personal_parts_start_as_that_part_of_the_common_model():
    own = dict(network().named_parameters())
    for state in play(fedsim(), 1).states[0].values():
        assert_same_bits(state, {name: own[name] for name in HEAD})


def test_stateless_clients_start_each_visit_from_the_common_start():
    run = play(fedsim(budget=steps(2), stateful=False), 3, uniform(3))
    for visit, _ in run.results:
        assert_same_bits(visit.state, run.states[0][visit.client])


def test_personal_l2_pulls_to_the_start_without_a_half():
    """Two steps of v with u still: the second has gradient dF/dv + 2 * 0.5 * (v - 2), for 0.5 |v - 2|^2.

    Rate 0.1: v_1 = 2 - 0.1 * 1 = 1.9; dF/dv = (1.9 - 1) * 1 = 0.9; v_2 = 1.9 - 0.1 * (0.9 + 2 * 0.5 * -0.1) = 1.82.
    """
    method = fedsim(personal="v", lr=0.0, personal_lr=0.1, budget=steps(2), personal_l2=0.5)
    run = play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert float(run.shared["u"]) == 1.0
    assert float(run.final[0]["v"]) == pytest.approx(1.82, rel=1e-12)


def test_adaptation_moves_the_personal_part_alone():
    run = play(fedsim(adapt=epochs(2, batch=3)), 2)
    own = run.adapted(2)
    assert_same_bits(part_of(own, BODY), run.shared)
    assert all(not torch.equal(own[name], run.final[2][name]) for name in HEAD)


def test_adaptation_is_clipped_as_training_is():
    """Clipped to a norm of 1e-9, no step goes anywhere to speak of."""
    run = play(fedsim(lr=0.1, clip_norm=1e-9, adapt=steps(1)), 1)
    assert_near(part_of(run.adapted(2), HEAD), run.final[2], 1e-8)


# With `mean_regularised`: F_i(v_i) + strength / 2 |v_i - u|^2


def test_mean_regularised_client_has_a_whole_twin_that_starts_as_the_shared_model():
    run = play(fedsim(mean_regularised=0.5, budget=steps(1)), 1)
    assert set(run.shared) == set(ALL)
    for state in run.states[0].values():
        assert_same_bits(state, {f"twin.{name}": run.servers[0].shared[name] for name in ALL})


def test_mean_regularised_predictions_are_the_twins():
    run = play(fedsim(mean_regularised=0.5), 2)
    inputs = run.population.batches[1].inputs
    twin = {name: run.final[1][f"twin.{name}"] for name in ALL}
    assert torch.equal(run.output(run.model(1), inputs), run.program.binding(1).task.output(twin, inputs))


def test_mean_regularised_gradients_are_those_of_the_formula():
    """grad_u = strength (u - v) and grad_v = grad F(v) + strength (v - u)."""
    run = play(fedsim(mean_regularised=0.7, budget=steps(2)), 2)
    (phase,) = run.program.method.local
    visit, params = run.visit(1), run.model(1)
    problem = Problem(phase=phase, visit=visit, binding=run.program.binding(1), params=params)
    grads, _ = problem.gradients(params, visit.data, [*ALL, *TWINS])
    twin = {name: params[f"twin.{name}"] for name in ALL}
    own = gradient(client_loss, twin, run.population.batches[1])
    for name in ALL:
        apart = params[name] - twin[name]
        assert apart.any()
        torch.testing.assert_close(grads[name], 0.7 * apart, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(grads[f"twin.{name}"], own[name] - 0.7 * apart, rtol=1e-12, atol=1e-15)


def test_mean_regularised_by_hand():
    """u = v = (1, 2) of F = (v_1 v_2 - 1)^2 / 2, strength 0.5, rate 0.1, two steps.

    Step 1: u and v agree, so u stays and v = (0.8, 1.9). Step 2: v_1 v_2 - 1 = 0.52;
    grad_v = (0.52 * 1.9 + 0.5 (0.8 - 1), 0.52 * 0.8 + 0.5 (1.9 - 2)) = (0.888, 0.366), so v = (0.7112, 1.8634);
    grad_u = 0.5 ((1, 2) - (0.8, 1.9)) = (0.1, 0.05), so u = (0.99, 1.995).
    """
    method = fedsim(lr=0.1, budget=steps(2), mean_regularised=0.5)
    run = play(method, 1, population=Population([toy_client()]), module=Product(), loss=toy_loss)
    assert [float(run.shared[name]) for name in "uv"] == pytest.approx([0.99, 1.995], rel=1e-12)
    assert [float(run.final[0][f"twin.{name}"]) for name in "uv"] == pytest.approx([0.7112, 1.8634], rel=1e-12)


def test_mean_regularised_with_strength_zero_is_local_beside_a_model_that_stays():
    budget = epochs(2, batch=3)
    run = play(fedsim(lr=0.3, budget=budget, mean_regularised=0.0), 3, uniform(3))
    alone = play(local(lr=0.3, budget=budget), 3, uniform(3))
    assert_same_bits(run.shared, run.servers[0].shared)
    twins = {i: {name: state[f"twin.{name}"] for name in ALL} for i, state in run.final.items()}
    assert_all_near(twins, alone.final)


def test_mean_regularised_with_more_strength_holds_twins_and_model_closer_together():
    """Where v_i has come to rest, grad F_i(v_i) = strength (u - v_i): the distance falls as strength grows."""

    def spread(strength):
        run = play(fedsim(lr=0.1, budget=steps(1), mean_regularised=strength), 40, population=federation([4, 6]))
        apart = [state[f"twin.{name}"] - run.shared[name] for state in run.final.values() for name in ALL]
        return sum(float(value.norm()) for value in apart)

    weak, middle, strong = spread(0.1), spread(1.0), spread(5.0)
    assert strong < middle / 2
    assert middle < weak / 2


def test_the_reported_loss_counts_no_distance_of_running_statistics():
    """At rate 0 nothing trained moves; personal statistics do, and are no parameters that a penalty could count."""
    options = {"lr": 0.0, "budget": steps(2), "buffers": "personal", "personal": "head"}
    held = play(fedsim(personal_l2=5.0, **options), 3, module=network(NormedNetwork))
    free = play(fedsim(personal_l2=0.0, **options), 3, module=network(NormedNetwork))
    assert [report.losses for report in held.reports] == [report.losses for report in free.reports]
