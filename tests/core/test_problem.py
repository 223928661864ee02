"""One phase on one client, by hand on a * x0 + b * x1 (a = 2 shared, b = 1 personal) and half the squared error."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from plures.core.client import run_phases
from plures.core.errors import InvalidConfig
from plures.core.problem import Outcome, Problem, eager_gradient
from plures.core.types import PERSONAL, SHARED
from plures.local import adam, epochs, exponential, proximal, sgd, steps
from plures.parts import split
from tests.core.helpers import (
    class_clients,
    class_program,
    mean_output,
    method,
    network,
    numbers,
    pair_clients,
    pair_program,
    phase,
    same_bits,
    visit_to,
)

ONES = pair_clients([(1, 1, 0)])
"""One example at x = (1, 1) with target 0: the residual is a + b = 3, and so are both gradients."""
THREE_FOUR = pair_clients([(3, 4, 0)])
"""With the mean output as the loss, the gradients are 3 and 4, and their joint norm 5."""
BOTH = (SHARED, PERSONAL)


def run(*phases, clients=ONES, **changes):
    program = pair_program(*phases, **changes)
    visit = visit_to(program, clients)
    return run_phases(phases, program.binding(0), visit, visit.received | visit.state)[:4]


def values(params):
    return [params["a"].item(), params["b"].item()]


OPTIMIZERS = {
    "sgd": sgd(0.1),
    "momentum and decay": sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": adam(0.1, weight_decay=0.1),
}


@pytest.mark.parametrize("rule", sorted(OPTIMIZERS))
@pytest.mark.parametrize(("moving", "still"), [(SHARED, "3"), (PERSONAL, "0")])
def test_a_part_that_is_not_in_the_optimiser_keeps_its_bits(rule, moving, still):
    training = phase(moving, optimizer=OPTIMIZERS[rule], budget=epochs(3, batch=2))
    program = class_program(method(training, personal=("3.*",)), network(dropout=0.2))
    visit = visit_to(program, class_clients((7,)))
    before = visit.received | visit.state
    after, *_ = run_phases((training,), program.binding(0), visit, before)
    for name in before:
        assert torch.equal(after[name], before[name]) == name.startswith(still)


def test_a_step_goes_against_the_gradient_of_the_moving_part_alone():
    params, *_ = run(phase(SHARED))
    assert values(params) == pytest.approx([2 - 0.1 * 3, 1], rel=1e-14)
    params, *_ = run(phase(PERSONAL))
    assert values(params) == pytest.approx([2, 1 - 0.1 * 3], rel=1e-14)


def test_parts_that_move_together_use_gradients_of_the_same_point():
    params, *_ = run(phase(BOTH))
    assert values(params) == pytest.approx([1.7, 0.7], rel=1e-14)


def test_phases_run_in_order_each_from_where_the_last_one_ended():
    # First a = 1.7; then the residual is 2.7 and b = 1 - 0.27.
    params, *_ = run(phase(SHARED), phase(PERSONAL))
    assert values(params) == pytest.approx([1.7, 0.73], rel=1e-14)


def test_each_part_may_have_an_optimiser_of_its_own_in_the_same_step():
    # Residual 3: a = 2 - 0.1 * 3, b = 1 - 0.5 * 3. Then residual 1.7 - 0.5 = 1.2: a = 1.7 - 0.12, b = -0.5 - 0.6.
    rules = {SHARED: sgd(0.1), PERSONAL: sgd(0.5)}
    params, *_ = run(phase(BOTH, optimizer=rules))
    assert values(params) == pytest.approx([1.7, -0.5], rel=1e-14)
    params, *_ = run(phase(BOTH, optimizer=rules, budget=steps(2)))
    assert values(params) == pytest.approx([1.58, -1.1], rel=1e-14)


def test_optimisers_of_parts_keep_states_of_their_own():
    # Constant gradients 3 and 4; momentum 0.5 for a only: a moves by 0.1 * (3 + 4.5), b by 2 * 0.1 * 4.
    rules = {SHARED: sgd(0.1, momentum=0.5), PERSONAL: sgd(0.1)}
    params, *_ = run(phase(BOTH, optimizer=rules, budget=steps(2)), clients=THREE_FOUR, loss=mean_output)
    assert values(params) == pytest.approx([2 - 0.75, 1 - 0.8], rel=1e-14)


def test_optimiser_state_begins_anew_in_every_phase():
    rule = sgd(0.1, momentum=0.5)
    params, *_ = run(phase(optimizer=rule), phase(optimizer=rule), clients=THREE_FOUR, loss=mean_output)
    assert values(params) == pytest.approx([2 - 0.6, 1], rel=1e-14)


def test_a_rate_is_that_of_the_round():
    training = phase(optimizer=sgd(exponential(0.4, 0.5)))
    program = pair_program(training)
    for round, moved in ((1, 1.2), (2, 0.6), (3, 0.3)):
        visit = visit_to(program, ONES, round=round)
        params, *_ = run_phases((training,), program.binding(0), visit, visit.received | visit.state)
        assert values(params) == pytest.approx([2 - moved, 1], rel=1e-14)


def test_clipping_is_joint_over_all_that_moves():
    # Gradients (3, 4) have norm 5; torch's rule shortens by 1 / (5 + 1e-6).
    params, *_ = run(phase(BOTH, clip_norm=1.0), clients=THREE_FOUR, loss=mean_output)
    short = 0.1 / (5 + 1e-6)
    assert values(params) == pytest.approx([2 - 3 * short, 1 - 4 * short], rel=1e-14)


def test_clipping_counts_nothing_that_does_not_move():
    params, *_ = run(phase(SHARED, clip_norm=1.0), clients=THREE_FOUR, loss=mean_output)
    assert values(params) == pytest.approx([2 - 0.1 * 3 / (3 + 1e-6), 1], rel=1e-14)


def test_clipping_may_be_by_part_and_leaves_other_parts_alone():
    params, *_ = run(phase(BOTH, clip_norm={SHARED: 1.0}), clients=THREE_FOUR, loss=mean_output)
    assert values(params) == pytest.approx([2 - 0.1 * 3 / (3 + 1e-6), 1 - 0.1 * 4], rel=1e-14)
    params, *_ = run(phase(BOTH, clip_norm={SHARED: 1.0, PERSONAL: 2.0}), clients=THREE_FOUR, loss=mean_output)
    assert values(params) == pytest.approx([2 - 0.1 * 3 / (3 + 1e-6), 1 - 0.1 * 4 * 2 / (4 + 1e-6)], rel=1e-14)


def test_clipping_by_part_counts_every_parameter_of_the_part():
    # With both in the shared part, one limit for the part is a joint one.
    joint, *_ = run(phase(SHARED, clip_norm=1.0), clients=THREE_FOUR, loss=mean_output, split=split())
    by_part, *_ = run(phase(SHARED, clip_norm={SHARED: 1.0}), clients=THREE_FOUR, loss=mean_output, split=split())
    assert same_bits(joint, by_part)


def test_gradients_below_the_limit_keep_their_bits():
    limited, *_ = run(phase(BOTH, clip_norm=5.1), clients=THREE_FOUR, loss=mean_output)
    free, *_ = run(phase(BOTH), clients=THREE_FOUR, loss=mean_output)
    assert same_bits(limited, free)


def test_scale_multiplies_the_step_after_clipping():
    params, *_ = run(phase(BOTH, scale=lambda facts: 0.5))
    assert values(params) == pytest.approx([2 - 0.05 * 3, 1 - 0.05 * 3], rel=1e-14)
    params, *_ = run(phase(BOTH, clip_norm=1.0, scale=lambda facts: 3.0), clients=THREE_FOUR, loss=mean_output)
    short = 0.1 * 3 / (5 + 1e-6)
    assert values(params) == pytest.approx([2 - 3 * short, 1 - 4 * short], rel=1e-14)


def test_scale_may_depend_on_the_sizes_of_client_cohort_and_population():
    # The first of two clients has 1 of 4 examples, and is a cohort by itself.
    clients = pair_clients([(1, 1, 0)], [(0, 0, 0)] * 3)
    seen = []
    run(phase(scale=lambda facts: seen.append(facts) or 1.0), clients=clients)
    facts = seen[0]
    assert (facts.examples, facts.cohort_examples, facts.all_examples) == (1, 1, 4)
    assert (facts.cohort_clients, facts.all_clients, facts.inclusion) == (1, 2, 1.0)


def test_an_observed_gradient_is_kept_and_not_applied():
    params, observed, *_ = run(phase(PERSONAL, observe=SHARED))
    assert observed.keys() == {"a"}
    assert observed["a"].item() == 3
    assert values(params) == pytest.approx([2, 0.7], rel=1e-14)


def test_an_observed_gradient_is_neither_clipped_nor_scaled_nor_counted():
    training = phase(PERSONAL, observe=SHARED, clip_norm=1.0, scale=lambda facts: 7.0)
    params, observed, *_ = run(training, clients=THREE_FOUR, loss=mean_output)
    assert observed["a"].item() == 3
    assert values(params) == pytest.approx([2, 1 - 0.1 * 7 * 4 / (4 + 1e-6)], rel=1e-14)


def test_of_several_steps_the_gradient_of_the_last_is_kept():
    # b = 0.7 after the first step, so the last gradient is taken at residual 2.7.
    params, observed, *_ = run(phase(PERSONAL, observe=SHARED, budget=steps(2)))
    assert observed["a"].item() == pytest.approx(2.7, rel=1e-15)
    assert values(params) == pytest.approx([2, 0.7 - 0.27], rel=1e-14)


def test_gradients_observed_in_several_phases_are_all_kept():
    _, observed, *_ = run(phase(PERSONAL, observe=SHARED), phase(SHARED, observe=PERSONAL))
    assert {name: value.item() for name, value in observed.items()} == pytest.approx({"a": 3, "b": 2.7}, rel=1e-15)


def test_a_penalty_adds_its_gradient():
    # At the received a = 2 the pull is 0: a = 1.7. Then 2.7 + 0.5 * (1.7 - 2) = 2.55: a = 1.7 - 0.255.
    params, _, losses, _ = run(phase(budget=steps(2), penalty=proximal(0.5)))
    assert values(params) == pytest.approx([1.445, 1], rel=1e-14)
    # Losses 9/2 and 2.7^2/2 + 0.5/2 * 0.3^2.
    assert losses[SHARED].item() == pytest.approx((4.5 + 3.645 + 0.0225) / 2, rel=1e-14)


def test_a_penalty_may_see_what_holds_still_and_the_visit():
    def to_personal(params, visit):
        return visit.round * (params["a"] - params["b"]).square() / 2

    # 3 + 1 * (2 - 1) = 4.
    params, *_ = run(phase(SHARED, penalty=to_personal))
    assert values(params) == pytest.approx([2 - 0.4, 1], rel=1e-14)


def test_a_view_stands_between_the_parameters_and_the_network():
    # The network sees 2a: residual 5, and d/da = 2 * 5.
    params, *_ = run(phase(view=lambda params, inputs: params | {"a": 2 * params["a"]}))
    assert values(params) == pytest.approx([2 - 1.0, 1], rel=1e-14)


def test_a_view_may_depend_on_the_inputs():
    # A gate equal to the mean of x0 = 3: output 3 * 2 * 3 + 4 = 22, d/da = 22 * 9.
    gated = phase(optimizer=sgd(0.001), view=lambda params, inputs: params | {"a": params["a"] * inputs[:, 0].mean()})
    params, *_ = run(gated, clients=THREE_FOUR)
    assert values(params) == pytest.approx([2 - 0.198, 1], rel=1e-14)


def test_a_view_sees_the_inputs_of_the_batch():
    sizes = []
    watching = phase(budget=epochs(1, batch=2), view=lambda params, inputs: sizes.append(len(inputs)) or params)
    run(watching, clients=pair_clients([(1, 1, 0)] * 5))
    assert sizes == [2, 2, 1]


def test_a_view_may_hide_a_parameter_which_then_has_gradient_zero():
    params, *_ = run(phase(BOTH, view=lambda params, inputs: params | {"a": params["a"].new_tensor(5.0)}))
    assert values(params) == pytest.approx([2, 1 - 0.6], rel=1e-14)
    assert params["a"].item() == 2.0


def test_gradients_of_what_the_loss_ignores_are_zero():
    grads, value = eager_gradient(lambda point: point["x"].square().sum(), {"x": numbers(1, 2), "y": numbers(3)})
    assert grads["x"].tolist() == [2, 4]
    assert grads["y"].tolist() == [0]
    assert (value.item(), value.requires_grad) == (5.0, False)


def test_a_solver_carries_out_the_phase_in_its_own_way():
    def exactly(problem):
        """The a that makes the residual zero."""
        batch = next(problem.batches())
        grads, loss = problem.gradients(problem.params, batch, problem.moving_names())
        return Outcome(problem.params | {"a": problem.params["a"] - grads["a"]}, {}, loss, 0.25)

    params, observed, losses, passes = run(phase(SHARED, solver=exactly), phase(PERSONAL))
    # a = -1 makes the residual 0, so that the next phase finds nothing to do.
    assert values(params) == pytest.approx([-1, 1], rel=1e-14)
    assert observed == {}
    assert {name: loss.item() for name, loss in losses.items()} == {SHARED: 4.5, PERSONAL: 0.0}
    assert passes == 1.25


def test_losses_are_means_over_updates_at_the_points_where_gradients_were_taken():
    # Residuals 3 and 2.7: (9/2 + 7.29/2) / 2.
    *_, losses, passes = run(phase(budget=steps(2)))
    assert losses[SHARED].item() == pytest.approx((4.5 + 3.645) / 2, rel=1e-15)
    assert passes == 2.0


def test_phases_with_equal_names_have_losses_of_their_own():
    *_, losses, _ = run(phase(), phase(), phase(PERSONAL, observe=SHARED))
    assert list(losses) == ["shared", "shared.1", "personal observing shared"]
    # Residuals 3, 2.7 and then 1.7 - 0.27 + 1 = 2.43.
    assert [loss.item() for loss in losses.values()] == pytest.approx([4.5, 3.645, 2.43**2 / 2], rel=1e-14)


def test_a_phase_of_no_steps_changes_nothing_and_costs_nothing():
    params, observed, losses, passes = run(phase(BOTH, observe=SHARED, budget=steps(0)))
    assert values(params) == pytest.approx([2, 1], rel=1e-14)
    assert (observed, losses, passes) == ({}, {}, 0.0)


@pytest.mark.parametrize(
    ("budget", "passes"),
    [(epochs(1, batch=2), 1.0), (epochs(3, batch=2), 3.0), (steps(2, batch=2), 0.8), (epochs(2, batch=2, cap=1), 0.4)],
)
def test_passes_count_the_examples_seen_over_those_there_are(budget, passes):
    *_, counted = run(phase(budget=budget), clients=pair_clients([(1, 1, 0)] * 5))
    assert counted == pytest.approx(passes, rel=1e-15)


def watched_batches(*budgets, client=0, round=1, seed=1):
    """The first inputs of every batch that phases with these budgets see."""
    seen = []

    def look(problem):
        seen.append([batch.inputs[:, 0].tolist() for batch in problem.batches()])
        return Outcome(problem.params, {}, torch.zeros(()), 0.0)

    phases = tuple(phase(budget=budget, solver=look) for budget in budgets)
    program = pair_program(*phases, seed=seed)
    rows = [(float(number), 0.0, 0.0) for number in range(8)]
    visit = visit_to(program, pair_clients(rows, rows), client, round=round)
    run_phases(phases, program.binding(client), visit, visit.received | visit.state)
    return seen


def test_phases_of_the_same_stream_see_the_same_batches_and_others_see_others():
    same, again, other = watched_batches(
        epochs(2, batch=3, stream="a"), epochs(2, batch=3, stream="a"), epochs(2, batch=3, stream="b")
    )
    assert same == again
    assert same != other
    assert [len(batch) for batch in same] == [3, 3, 2, 3, 3, 2]
    for epoch in (same[:3], same[3:], other[:3]):
        assert sorted(value for batch in epoch for value in batch) == list(range(8))
    assert same[:3] != same[3:]


def test_batches_differ_by_round_client_and_seed_and_by_nothing_else():
    budget = epochs(1, batch=2)
    first = watched_batches(budget)
    assert watched_batches(budget) == first
    for change in ({"round": 2}, {"client": 1}, {"seed": 2}):
        assert watched_batches(budget, **change) != first


def test_a_longer_budget_begins_with_the_batches_of_a_shorter_one():
    short, long = watched_batches(steps(2, batch=3), steps(5, batch=3))
    assert long[:2] == short


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3), st.integers(0, 100))
@settings(deadline=None, max_examples=15)
def test_phases_agree_with_a_plain_loop_of_torch(size, batch, count, seed):
    training = phase((SHARED, PERSONAL), budget=epochs(count, batch=batch), optimizer=sgd(0.3, momentum=0.9))
    clients = class_clients((size,))
    program = class_program(method(training, personal=("3.*",)), seed=seed)
    visit = visit_to(program, clients)
    after, _, losses, *_ = run_phases((training,), program.binding(0), visit, visit.received | visit.state)

    module = network()
    torch_rule = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    plain = []
    for inputs, targets in batches_of(training, visit, program):
        torch_rule.zero_grad()
        loss = F.cross_entropy(module(inputs), targets)
        loss.backward()
        torch_rule.step()
        plain.append(loss.item())
    for name, value in module.named_parameters():
        torch.testing.assert_close(after[name], value.detach(), rtol=1e-11, atol=1e-13)
    assert losses["shared+personal"].item() == pytest.approx(sum(plain) / len(plain), rel=1e-11)


def batches_of(training, visit, program):
    return Problem(phase=training, visit=visit, binding=program.binding(0), params={}).batches()


def test_a_phase_whose_part_is_empty_moves_nothing():
    # As FedAlt without personal parameters: what is left is one step on the shared ones, which are then a and b.
    params, observed, losses, passes = run(phase(PERSONAL), phase(SHARED), split=split())
    assert values(params) == pytest.approx([1.7, 0.7], rel=1e-14)
    assert (observed, list(losses), passes) == ({}, [SHARED], 1.0)


@pytest.mark.parametrize("limit", [0.0, -1.0, {SHARED: 0.0}, float("nan")])
def test_a_limit_that_is_not_above_zero_is_an_error(limit):
    with pytest.raises(InvalidConfig, match="clip_norm must be a finite number above 0"):
        phase(clip_norm=limit)
