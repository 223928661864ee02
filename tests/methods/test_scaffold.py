"""SCAFFOLD: FedAvg with control variates (option II)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.local import adam, epochs, sgd, steps
from plures.methods import fedavg, scaffold
from plures.participation import uniform
from plures.server.weights import uniform as equally
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    Population,
    Product,
    assert_near,
    assert_same_bits,
    bowl,
    federation,
    on_bowls,
    part_of,
    play,
)
from tests.oracles.common import total

ALL = BODY + HEAD
BUDGET = epochs(2, batch=3)
CONTROLS = [f"control.{name}" for name in ALL]
OWN = [f"own_control.{name}" for name in ALL]


def tiny(rounds=3, sampler=None, **options):
    return play(scaffold(**{"lr": 0.3, "budget": BUDGET} | options), rounds, sampler)


def averaged(rounds=3, sampler=None, **options):
    """FedAvg by SCAFFOLD's weights."""
    return play(fedavg(**{"lr": 0.3, "budget": BUDGET, "weight": equally} | options), rounds, sampler)


def everybodys(server):
    """The server's control, by the names of the network."""
    return {name: server.shared[f"control.{name}"] for name in ALL}


def mean_of_own(states):
    """The mean of all clients' controls, by the names of the network."""
    own = [{name: state[f"own_control.{name}"] for name in ALL} for state in states.values()]
    return total((1 / len(own), control) for control in own)


def test_two_rounds_by_hand():
    """F_0 = (w - 3)^2 and F_1 = (w + 1)^2 / 2 from w = 1, two steps at rate 0.1; examples do not count, here 1 and 3.

    Round 1: w_0 = 1 + 0.1 (4 + 3.2) = 1.72, w_1 = 1 - 0.1 (2 + 1.8) = 0.62; w = 1.17.
    c_0 = (1 - 1.72) / 0.2 = -3.6, c_1 = (1 - 0.62) / 0.2 = 1.9; c = -0.85. So c - c_0 = 2.75, c - c_1 = -2.75.
    Round 2: w_0: -3.66 + 2.75 = -0.91, to 1.261; -3.478 + 2.75 = -0.728, to 1.3338.
             w_1: 2.17 - 2.75 = -0.58, to 1.228; 2.228 - 2.75 = -0.522, to 1.2802. w = 1.307.
    c_0 = -3.6 + 0.85 + (1.17 - 1.3338) / 0.2 = -3.569, c_1 = 1.9 + 0.85 + (1.17 - 1.2802) / 0.2 = 2.199; c = -0.685.

    The reported loss has the correction in it, (c - c_i) w_i, and goes by examples.
    """
    run = on_bowls(scaffold(lr=0.1, budget=steps(2)), 2, bowl(2, 3, 1), bowl(1, -1, 3))
    assert [float(server.shared["u"]) for server in run.servers] == pytest.approx([1, 1.17, 1.307], rel=1e-12)
    assert [float(server.shared["control.u"]) for server in run.servers] == pytest.approx([0, -0.85, -0.685], rel=1e-12)
    own = [float(states[client]["own_control.u"]) for states in run.states for client in (0, 1)]
    assert own == pytest.approx([0, 0, -3.6, 1.9, -3.569, 2.199], rel=1e-12)
    first = (1.83**2 + 2.75 * 1.17 + 1.739**2 + 2.75 * 1.261) / 2
    second = (2.17**2 / 2 - 2.75 * 1.17 + 2.228**2 / 2 - 2.75 * 1.228) / 2
    assert run.reports[1].losses == {"shared": pytest.approx((first + 3 * second) / 4, rel=1e-12)}


def test_one_of_two_clients_by_hand_moves_the_servers_control_half_as_far():
    """As above with client 0 alone: w = 1.72, c_0 = -3.6, c = 0 + 1 / 2 * (-3.6) = -1.8.

    Then client 1 alone, c - c_1 = -1.8, from 1.72: 2.72 - 1.8 = 0.92, to 1.628; 2.628 - 1.8 = 0.828, to 1.5452.
    c_1 = 0 + 1.8 + (1.72 - 1.5452) / 0.2 = 2.674, c = -1.8 + 1 / 2 * 2.674 = -0.463; client 0 keeps -3.6.
    """
    method, away = scaffold(lr=0.1, budget=steps(2)), Given([(0,), (1,)], 0.5)
    run = on_bowls(method, 2, bowl(2, 3), bowl(1, -1), sampler=away)
    assert [float(server.shared["u"]) for server in run.servers] == pytest.approx([1, 1.72, 1.5452], rel=1e-12)
    assert [float(server.shared["control.u"]) for server in run.servers] == pytest.approx([0, -1.8, -0.463], rel=1e-12)
    assert {client: float(state["own_control.u"]) for client, state in run.final.items()} == pytest.approx(
        {0: -3.6, 1: 2.674}, rel=1e-12
    )


# Where it goes


def test_it_finds_the_optimum_of_the_average_where_fedavg_stops_elsewhere():
    """a = 1, b = 0 and a = 4, b = 5: the average is least where (w - 0) + 4 (w - 5) = 0, at w = 4.

    FedAvg: 10 steps at rate 0.1 leave r_i = (1 - 0.1 a_i)^10 of w - b_i, r = 0.9^10 and 0.6^10, so it stands still
    where sum_i (1 - r_i) (w - b_i) = 0: at 5 (1 - r_1) / (2 - r_0 - r_1) = 3.02.
    SCAFFOLD: if w and all c_i stand still, (w - w_i) / (10 * 0.1) = c for all i; these average to 0, so c = 0 and
    w_i = w, whence F_i'(w) = c_i - c, which sum to 0: the optimum, with c_i = F_i'(4) = 4 and -4.
    """
    clients, options = (bowl(1, 0), bowl(4, 5)), {"lr": 0.1, "budget": steps(10)}
    corrected = on_bowls(scaffold(**options), 60, *clients)
    plain = on_bowls(fedavg(**options, weight=equally), 60, *clients)
    left = 0.9**10, 0.6**10
    assert float(plain.shared["u"]) == pytest.approx(5 * (1 - left[1]) / (2 - sum(left)), rel=1e-12)
    assert float(plain.shared["u"]) == pytest.approx(3.02, abs=0.01)
    assert float(corrected.shared["u"]) == pytest.approx(4.0, rel=1e-12)
    assert float(corrected.shared["control.u"]) == pytest.approx(0.0, abs=1e-12)
    assert [float(corrected.final[i]["own_control.u"]) for i in (0, 1)] == pytest.approx([4.0, -4.0], rel=1e-12)


def test_one_full_batch_step_of_everybody_is_descent_on_the_average_and_leaves_the_gradients_as_controls():
    """The corrections c - c_i of all clients sum to 0, so that with one step w moves as FedAvg's; c_i = grad F_i(w)."""
    run, plain = tiny(4, budget=steps(1)), averaged(4, budget=steps(1))
    for one, other in zip(run.servers, plain.servers, strict=True):
        assert_near(part_of(one.shared, ALL), other.shared)
    for visit, result in plain.results[-5:]:
        gradient = {f"own_control.{name}": value / 0.3 for name, value in result.upload.values.items()}
        assert_near(run.final[visit.client], gradient, 1e-11)  # the way of one step, divided by its length


def test_the_first_round_is_that_of_fedavg_with_equal_weights():
    """All controls are zero; in the second round they are not."""
    run, plain = tiny(2, uniform(3)), averaged(2, uniform(3))
    assert not any(value.any() for value in everybodys(run.servers[0]).values())
    assert_same_bits(part_of(run.servers[1].shared, ALL), plain.servers[1].shared)
    assert run.reports[0].losses == plain.reports[0].losses
    assert all(not torch.equal(run.shared[name], plain.shared[name]) for name in ALL)


def test_among_clients_with_the_same_examples_the_controls_cancel():
    """c_i = c for all i, and each step is FedAvg's."""
    (batch,) = federation([6]).batches
    four = Population([batch] * 4)
    corrected = play(scaffold(lr=0.3, budget=steps(3)), 4, population=four)
    plain = play(fedavg(lr=0.3, budget=steps(3)), 4, population=four)
    for one, other in zip(corrected.servers, plain.servers, strict=True):
        assert_near(part_of(one.shared, ALL), other.shared)
    assert all(value.norm() > 1e-3 for value in everybodys(corrected.server).values())


@pytest.mark.parametrize("sampler", [None, uniform(2)], ids=["everybody", "two"])
def test_the_servers_control_is_the_mean_of_all_clients_controls_whoever_takes_part(sampler):
    """Both begin at 0, and c moves by (m / n) (1 / m) sum over the cohort of c_i' - c_i: by 1 / n of their sum."""
    run = tiny(4, sampler)
    for server, states in zip(run.servers[1:], run.states[1:], strict=True):
        assert_near(everybodys(server), mean_of_own(states))
        assert all(value.any() for value in everybodys(server).values())


# What is sent, what is kept


def test_who_is_away_keeps_its_control():
    run = tiny(3, Given([(0, 1), (1, 2), (1, 2)], 0.4))
    assert_same_bits(run.final[0], run.states[1][0])
    assert all(value.any() for value in run.final[0].values())
    assert not any(value.any() for client in (3, 4) for value in run.final[client].values())
    assert all(not torch.equal(run.final[1][name], run.states[1][1][name]) for name in OWN)


def test_weights_and_the_servers_control_are_sent_and_a_clients_own_is_not():
    run, plain = tiny(2), averaged(2)
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == {*ALL, *CONTROLS}
        assert set(result.state) == set(OWN)
    for report, other in zip(run.reports, plain.reports, strict=True):
        assert (report.bytes_up, report.bytes_down) == (2 * other.bytes_up, 2 * other.bytes_down)
        assert report.network_passes == other.network_passes == 5 * 2
        assert other.bytes_up > 0


def test_what_a_client_sends_of_the_control_is_its_share_of_the_change_of_its_own():
    """The server moves against an upload, hence c - c' = -(m / n) (c_i' - c_i), with 2 clients of 5."""
    run = tiny(2, Given([(0, 1), (1, 2)], 0.4))
    for visit, result in run.results:
        change = {f"control.{n}": result.state[f"own_control.{n}"] - visit.state[f"own_control.{n}"] for n in ALL}
        expected = {name: -2 / 5 * value for name, value in change.items()}
        assert_near(part_of(result.upload.values, CONTROLS), expected, 1e-11)


def test_a_server_that_stands_still_learns_its_control_all_the_same():
    run = tiny(1, server=0.0)
    assert_same_bits(part_of(run.shared, ALL), part_of(run.servers[0].shared, ALL))
    assert_near(everybodys(run.server), everybodys(tiny(1).server))


@pytest.mark.parametrize(
    "options", [{"lr": lambda round: 0.3 * (round < 2)}, {"budget": steps(0)}], ids=["rate", "steps"]
)
def test_a_visit_that_takes_no_way_changes_no_control(options):
    """At a rate of 0, or of no steps, (w - w_i) / (K lr) would be 0 / 0: nothing was learnt of the gradient."""
    run = tiny(2, **options)
    assert_same_bits(run.shared, run.servers[1].shared)
    for client in range(5):
        assert_same_bits(run.final[client], run.states[1][client])
    learnt_before = any(value.any() for value in run.final[0].values())
    assert learnt_before == ("lr" in options)


def test_finetuning_is_without_the_correction():
    """The model that a client tunes is FedAvg's tuning of the same shared model: the server stands still here."""
    run, plain = tiny(1, adapt=BUDGET, server=0.0), averaged(1, adapt=BUDGET, server=0.0)
    for client in range(5):
        assert_same_bits(part_of(run.adapted(client), ALL), plain.adapted(client))
        assert all(not torch.equal(value, run.shared[name]) for name, value in plain.adapted(client).items())
    assert run.program.method.judged_by == "global"


# What is refused


def test_a_model_with_the_name_of_a_control_is_told_to_rename_it():
    module = Product()
    module.control = nn.Module()
    module.control.u = nn.Parameter(torch.zeros((), dtype=torch.float64))
    with pytest.raises(InvalidModel, match=r"'control\.u', but that names a control\. Rename"):
        play(scaffold(), 0, population=federation([3]), module=module)


@pytest.mark.parametrize("options", [{"lr": -0.1}, {"lr": adam(0.1)}, {"lr": sgd(0.1, momentum=0.9)}, {"server": -1.0}])
def test_what_cannot_be_is_refused(options):
    """Another optimiser than plain SGD does not leave the gradients in its steps."""
    with pytest.raises(InvalidConfig):
        scaffold(**options)
