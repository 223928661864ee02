"""PFLEGO: an exact, unbiased step on the shared weights and all heads together (METHODS 2.15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.core.method import Method
from plures.core.seeds import generator
from plures.core.types import Params
from plures.local import adam, exponential, sgd, steps
from plures.methods import fedper, pflego
from plures.participation import binomial, random_size, uniform
from tests.helpers.methods import (
    BODY,
    HEAD,
    SIZES,
    Given,
    Played,
    Population,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    minus,
    part_of,
    play,
)
from tests.oracles.common import client_loss, gradient, step, total

RATE = 0.3
CLIENTS = range(len(SIZES))
Chances = list[tuple[tuple[int, ...], float]]
"""Every cohort that may be drawn, with its probability."""


def exact(tau: int = 1, **options) -> Method:
    return pflego(**{"preset": "exact", "tau": tau, "client_lr": 0.2, "server": RATE} | options)


def joint_gradient(population: Population, theta: Params, heads: dict[int, Params]) -> tuple[Params, dict[int, Params]]:
    """Gradient of L(theta, W_1..W_I) = sum_i alpha_i l_i(W_i, theta), alpha_i = N_i / N."""
    shares = [batch.num_examples / population.total_examples for batch in population.batches]
    grads = [gradient(client_loss, theta | heads[i], population.batches[i]) for i in range(population.num_clients)]
    of_heads = {i: {name: shares[i] * grads[i][name] for name in HEAD} for i in heads}
    return total((shares[i], part_of(grads[i], BODY)) for i in heads), of_heads


# (1) Exactness


def test_one_step_of_everybody_is_gradient_descent_on_the_joint_loss():
    run = play(exact(), 20)
    theta, heads = run.servers[0].shared, run.states[0]
    for round in range(1, 21):
        of_theta, of_heads = joint_gradient(run.population, theta, heads)
        theta = step(theta, of_theta, RATE)
        heads = {i: step(heads[i], of_heads[i], RATE) for i in heads}
        assert_near(run.servers[round].shared, theta)
        assert_all_near(run.states[round], heads)


def test_the_paper_preset_is_no_descent_on_the_joint_loss():
    """Equation (3) lacks alpha_i: with SGD at the server, the heads' steps are 1 / alpha_i times those of the loss."""
    run = play(pflego(preset="paper", tau=1, server=sgd(RATE)), 1)
    _, of_heads = joint_gradient(run.population, run.servers[0].shared, run.states[0])
    for i, size in enumerate(SIZES):
        taken = minus(run.states[0][i], run.final[i], RATE)
        assert_near(taken, {name: value * sum(SIZES) / size for name, value in of_heads[i].items()}, 1e-11)


# (2) Unbiasedness, by enumeration


def fixed_size(size: int) -> Chances:
    return [(cohort, 1 / comb(5, size)) for cohort in combinations(CLIENTS, size)]


def by_coin(rate: float) -> Chances:
    return [
        (cohort, rate**size * (1 - rate) ** (5 - size)) for size in range(6) for cohort in combinations(CLIENTS, size)
    ]


def any_size(low: int, high: int) -> Chances:
    """Every size equally likely, then every cohort of that size."""
    sizes = range(low, high + 1)
    return [(cohort, chance / len(sizes)) for size in sizes for cohort, chance in fixed_size(size)]


PARTICIPATION = {
    "one of five": (uniform(1), fixed_size(1)),
    "two of five": (uniform(2), fixed_size(2)),
    "four of five": (uniform(0.8), fixed_size(4)),
    "by coin, 0.3": (binomial(0.3), by_coin(0.3)),
    "by coin, 0.7": (binomial(0.7), by_coin(0.7)),
    "one to three": (random_size(1, 3), any_size(1, 3)),
    "none to three": (random_size(0, 3), any_size(0, 3)),
}


def mean_step(method: Method, chances: Chances, inclusion: float | None) -> tuple[Params, dict[int, Params], Played]:
    """The mean of one round's last step over all cohorts, divided by the rate; `inclusion` None: the realised share.

    With a server rate of 0 the last step of a head goes nowhere, which tells where the steps before it ended.
    """
    assert sum(chance for _, chance in chances) == pytest.approx(1.0, rel=1e-12)
    rule = method.server
    still = replace(method, local=(*method.local[:-1], replace(method.local[-1], optimizer=sgd(0.0))))
    reached = play(still, 1)  # everybody, so that every head is known
    start = reached.servers[0].shared
    of_theta, of_heads = [], {i: [] for i in CLIENTS}
    for cohort, chance in chances:
        run = play(method, 1, Given([cohort], len(cohort) / 5 if inclusion is None else inclusion))
        of_theta.append((chance, minus(start, run.shared, rule.lr(1))))
        for i in CLIENTS:
            from_here = reached.final[i] if i in cohort else run.states[0][i]
            of_heads[i].append((chance, minus(from_here, run.final[i], rule.lr(1))))
    return total(of_theta), {i: total(steps) for i, steps in of_heads.items()}, reached


@pytest.mark.parametrize(("sampler", "chances"), PARTICIPATION.values(), ids=PARTICIPATION.keys())
@pytest.mark.parametrize("tau", [1, 4])
def test_the_mean_step_over_all_cohorts_is_the_gradient_of_the_joint_loss(tau, sampler, chances):
    """At the heads after tau - 1 steps of their own, by the sampler's own probability that a client is drawn."""
    (inclusion,) = {sampler.draw(5, round, 0).inclusion for round in range(1, 21)}  # known before the draw
    of_theta, of_heads, reached = mean_step(exact(tau), chances, inclusion)
    wanted_theta, wanted_heads = joint_gradient(reached.population, reached.servers[0].shared, reached.final)
    assert_near(of_theta, wanted_theta)
    assert_all_near(of_heads, wanted_heads)


@pytest.mark.parametrize(
    ("chances", "factor"),
    [(by_coin(0.3), 1 - 0.7**5), (any_size(0, 3), 3 / 4), (any_size(1, 3), 1.0)],
    ids=["by coin", "none to three", "one to three"],
)
def test_weights_by_the_realised_size_lose_what_empty_cohorts_would_have_given(chances, factor):
    """Given m > 0 clients, I/m is unbiased; a cohort of nobody moves nothing, so the mean is Pr(m > 0) of the gradient.

    Hence the sampler's probability: it makes up for empty cohorts.
    """
    of_theta, _, reached = mean_step(exact(), chances, None)
    wanted, _ = joint_gradient(reached.population, reached.servers[0].shared, reached.final)
    assert_near(of_theta, {name: factor * value for name, value in wanted.items()})


# (2) for mini-batches


@dataclass(frozen=True)
class Chosen:
    """A budget of one update on given examples."""

    rows: tuple[int, ...]
    stream: str = ""

    def batches(self, num_examples: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
        yield torch.tensor(self.rows)


def test_the_mean_step_over_all_mini_batches_and_cohorts_is_the_gradient_of_the_joint_loss():
    """Clients of 4 and 3 examples, one of them drawn, a batch of two: 6 and 3 equally likely batches."""
    population = federation([4, 3])
    method = exact(batch=2)
    draws = [(i, rows, 1 / 2 / comb(size, 2)) for i, size in enumerate((4, 3)) for rows in combinations(range(size), 2)]
    assert len(draws) == 6 + 3
    of_theta, of_heads = [], {0: [], 1: []}
    for i, rows, chance in draws:
        chosen = replace(method, local=(replace(method.local[-1], budget=Chosen(rows)),))
        run = play(chosen, 1, Given([(i,)], 0.5), population=population)
        of_theta.append((chance, minus(run.servers[0].shared, run.shared, RATE)))
        for j in of_heads:
            of_heads[j].append((chance, minus(run.states[0][j], run.final[j], RATE)))
    wanted_theta, wanted_heads = joint_gradient(population, run.servers[0].shared, run.states[0])
    assert_near(total(of_theta), wanted_theta)
    assert_all_near({j: total(steps) for j, steps in of_heads.items()}, wanted_heads)


def test_every_mini_batch_of_the_joint_step_is_equally_likely():
    """6 pairs of 4 examples in 3000 rounds: 500 each, with standard deviation sqrt(3000 * 1/6 * 5/6) = 20.4."""
    budget = exact(batch=2).local[-1].budget
    counts = dict.fromkeys(combinations(range(4), 2), 0)
    for round in range(3000):
        (rows,) = budget.batches(4, generator(0, "batches", round, 0, budget.stream))
        counts[tuple(sorted(rows.tolist()))] += 1
    assert all(abs(count - 500) < 4 * 20.4 for count in counts.values())


def test_the_joint_mini_batch_has_draws_of_its_own():
    """Whatever the heads' own steps saw: else the joint gradient would not be unbiased given the heads."""
    inner, joint = exact(tau=2, batch=2).local
    assert inner.budget.stream != joint.budget.stream
    pairs = [
        [
            next(iter(b.batches(4, generator(0, "batches", round, 0, b.stream)))).tolist()
            for b in (inner.budget, joint.budget)
        ]
        for round in range(50)
    ]
    # Two independent pairs of 4 examples agree in order with probability 1/12; 50 of 50 never.
    assert sum(first == second for first, second in pairs) < 15


# (3) The documented negative test


@pytest.mark.parametrize("size", [1, 2, 4])
def test_alpha_over_the_cohort_makes_the_mean_step_too_large_by_clients_over_cohort(size):
    """Equal N_i: alpha_i = 1/r in place of 1/I, and I/r besides; so the mean is I/r times the gradient."""
    population = federation([4] * 5)
    runs = [
        play(exact(alpha_norm="round"), 1, Given([cohort], size / 5), population=population)
        for cohort in combinations(CLIENTS, size)
    ]
    start = runs[0].servers[0].shared
    wanted, of_heads = joint_gradient(population, start, runs[0].states[0])
    mean = total((1 / len(runs), minus(start, run.shared, RATE)) for run in runs)
    assert_near(mean, {name: 5 / size * value for name, value in wanted.items()})
    for i in CLIENTS:
        of_head = total((1 / len(runs), minus(run.states[0][i], run.final[i], RATE)) for run in runs)
        assert_near(of_head, {name: 5 / size * value for name, value in of_heads[i].items()})


def test_alpha_over_the_cohort_is_right_when_everybody_is_drawn():
    """r = I: then the cohort is the population. This is the only case in which both normalisations agree."""
    assert_near(play(exact(alpha_norm="round"), 3).shared, play(exact(), 3).shared)


# (5) and what moves


@pytest.mark.parametrize("preset", ["exact", "paper"])
def test_heads_of_who_is_not_drawn_are_bitwise_unchanged(preset):
    run = play(exact(5, preset=preset), 4, uniform(2))
    for before, after, cohort in zip(run.states, run.states[1:], run.cohorts, strict=False):
        for i in CLIENTS:
            if i not in cohort:
                assert_same_bits(after[i], before[i])
            else:
                assert all(not torch.equal(after[i][name], before[i][name]) for name in HEAD)


def test_a_client_never_changes_the_shared_weights_and_sends_their_gradient():
    """g_i at the head before its last step: with tau = 1, the head as it was."""
    run = play(exact(), 2, uniform(3))
    for visit, result in run.results:
        assert_same_bits(part_of(result.trained, BODY), visit.received)
        grads = gradient(client_loss, visit.received | visit.state, visit.data)
        assert_near(result.upload.values, part_of(grads, BODY))
        assert_near(
            minus(visit.state, result.state, RATE), {n: 5 / 3 * visit.facts.examples / 28 * grads[n] for n in HEAD}
        )


def test_heads_start_as_those_of_fedper_do():
    """Both W_i ~ U[0, 1), drawn by client: the two methods can be compared from the same start."""
    ours, theirs = play(exact(), 1).states[0], play(fedper(budget=steps(1)), 1).states[0]
    for i in CLIENTS:
        assert_same_bits(ours[i], theirs[i])


# The server's rate is also that of the head's last step


@pytest.mark.parametrize("rule", [exponential(0.4, 0.5), sgd(exponential(0.4, 0.5))], ids=["schedule", "optimiser"])
def test_the_last_step_of_a_head_has_the_servers_rate_of_that_round(rule):
    """0.4, 0.2 and 0.1 in rounds 1, 2 and 3, for theta and for the heads; client_lr has no part in it."""
    run = play(exact(server=rule, client_lr=7.0), 3)
    for round, rate in ((1, 0.4), (2, 0.2), (3, 0.1)):
        before, heads = run.servers[round - 1].shared, run.states[round - 1]
        of_theta, of_heads = joint_gradient(run.population, before, heads)
        assert_near(minus(before, run.servers[round].shared), {n: rate * g for n, g in of_theta.items()}, 1e-11)
        for i in CLIENTS:
            taken = minus(heads[i], run.states[round][i])
            assert_near(taken, {name: rate * value for name, value in of_heads[i].items()}, 1e-11)


def test_the_steps_before_the_last_have_the_clients_rate():
    """tau = 2 and a server that stands still: W <- W - client_lr * grad l_i, without alpha and I/r."""
    run = play(exact(2, server=0.0, client_lr=0.2), 1, uniform(2))
    assert_same_bits(run.shared, run.servers[0].shared)
    for i in run.cohorts[0]:
        grads = gradient(client_loss, run.servers[0].shared | run.states[0][i], run.population.batches[i])
        assert_near(run.final[i], step(run.states[0][i], grads, 0.2))


# The paper's preset


def test_the_paper_preset_by_hand():
    """Clients 1 and 3 of 5, with 5 and 9 examples: I/r = 2.5, and alpha = 5/14 and 9/14 over the cohort.

    W_i <- W_i - rho 2.5 grad_W l_i; the server's direction is d = 2.5 (5/14 g_1 + 9/14 g_3), and Adam's first step is
    rho d / (|d| + 1e-8), for with bias correction both moments are those of d alone.
    """
    run = play(pflego(tau=1, server=0.05), 1, Given([(1, 3)], 2 / 5))
    theta = run.servers[0].shared
    grads = {i: gradient(client_loss, theta | run.states[0][i], run.population.batches[i]) for i in (1, 3)}
    for i in (1, 3):
        assert_near(run.final[i], step(run.states[0][i], grads[i], 0.05 * 2.5))
    direction = {name: 2.5 * (5 / 14 * grads[1][name] + 9 / 14 * grads[3][name]) for name in BODY}
    moved = {name: theta[name] - 0.05 * d / (d.abs() + 1e-8) for name, d in direction.items()}
    assert_near(run.shared, moved)


def test_the_paper_preset_keeps_adams_moments_and_counts_rounds():
    run = play(pflego(tau=2, server=0.05), 3, uniform(2))
    assert int(run.server.optimizer["shared"]["count"][""]) == 3
    assert_near(play(pflego(tau=2, server=adam(0.05)), 3, uniform(2)).shared, run.shared)


HEAD_SCALES = {
    # For client 3 of cohort {1, 3}: N_i = 9 of 28, of which 14 in the cohort; I/r = 2.5.
    ("paper", None, None): 2.5,
    ("paper", None, True): 2.5 * 9 / 14,
    ("paper", "global", True): 2.5 * 9 / 28,
    ("paper", "global", None): 2.5,
    ("exact", None, None): 2.5 * 9 / 28,
    ("exact", None, False): 2.5,
    ("exact", "round", None): 2.5 * 9 / 14,
}


@pytest.mark.parametrize(("flags", "scale"), HEAD_SCALES.items(), ids=map(str, HEAD_SCALES))
def test_the_alpha_flags_override_the_preset(flags, scale):
    preset, norm, in_head = flags
    method = pflego(preset=preset, alpha_norm=norm, alpha_in_head=in_head, tau=1, server=sgd(RATE))
    run = play(method, 1, Given([(1, 3)], 2 / 5))
    theta = run.servers[0].shared
    grads = {i: gradient(client_loss, theta | run.states[0][i], run.population.batches[i]) for i in (1, 3)}
    assert_near(run.final[3], step(run.states[0][3], grads[3], RATE * scale))
    over = 28 if (norm or {"paper": "round", "exact": "global"}[preset]) == "global" else 14
    direction = {name: 2.5 * (5 * grads[1][name] + 9 * grads[3][name]) / over for name in BODY}
    assert_near(run.shared, step(theta, direction, RATE))


@pytest.mark.parametrize("tau", [0, -1, 2.5])
def test_tau_is_a_whole_number_of_one_or_more(tau):
    with pytest.raises(InvalidConfig, match="tau"):
        pflego(tau=tau)


@pytest.mark.parametrize(
    "options", [{"preset": "exakt"}, {"alpha_norm": "all"}, {"start": "zero"}, {"solver": "lbfgs"}], ids=str
)
def test_a_word_it_does_not_know_is_refused(options):
    with pytest.raises(InvalidConfig):
        pflego(**options)


# What one round costs


def test_adaptation_takes_tau_steps_of_the_head_alone():
    run = play(exact(6), 2)
    own, expected = run.adapted(2), run.final[2]
    for _ in range(6):
        expected = step(expected, gradient(client_loss, run.shared | expected, run.population.batches[2]), 0.2)
    assert_same_bits(part_of(own, BODY), run.shared)
    assert_near(part_of(own, HEAD), expected)


def test_each_client_gets_and_sends_as_many_values_as_the_body_has():
    """15 values of 8 bytes, 3 clients; a gradient is as large as what it is the gradient of."""
    (report,) = play(exact(3), 1, uniform(3)).reports
    assert (report.bytes_down, report.bytes_up) == (3 * 15 * 8, 3 * 15 * 8)


@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize("batch", [2, 4])
def test_with_mini_batches_the_joint_step_passes_over_one_batch(tau, batch):
    """min(batch, N_i) / N_i passes for the joint step, and for tau > 1 one more for the features of everything."""
    (report,) = play(exact(tau, batch=batch), 1).reports
    joint = sum(min(batch, size) / size for size in SIZES)
    assert report.network_passes == pytest.approx(joint + (5 if tau > 1 else 0), rel=1e-12)
