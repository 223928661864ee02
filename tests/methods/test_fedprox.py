"""FedProx (METHODS 2.3)."""

from __future__ import annotations

import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.local import epochs, steps
from plures.methods import fedavg, fedprox
from plures.participation import uniform
from tests.helpers.methods import assert_same_bits, bowl, on_bowls, play

BUDGET = epochs(2, batch=3)


def test_two_steps_by_hand():
    """a = 2, b = 3, mu = 0.5, rate 0.1, from w = 1: grad = -4, w = 1.4; then -3.2 + 0.5 * 0.4 = -3, w = 1.7.

    The reported loss has the pull in it: (4 + (2.56 + 0.25 * 0.16)) / 2 = 3.3.
    """
    run = on_bowls(fedprox(mu=0.5, lr=0.1, budget=steps(2)), 1, bowl(2, 3))
    assert float(run.shared["u"]) == pytest.approx(1.7, rel=1e-12)
    assert run.reports[0].losses == {"shared": pytest.approx(3.3, rel=1e-12)}


def test_many_steps_end_between_the_clients_own_best_and_what_it_received():
    """Where a (w_i - b) + mu (w_i - w) = 0: w_i = (a b + mu w) / (a + mu). With a = 2, b = 3, mu = 0.5:

    from w = 1 to 6.5 / 2.5 = 2.6, and in round 2, from there, to (6 + 1.3) / 2.5 = 2.92: the centre is what was
    received in the round, not where the run began.
    """
    run = on_bowls(fedprox(mu=0.5, lr=0.1, budget=steps(200)), 2, bowl(2, 3))
    assert [float(server.shared["u"]) for server in run.servers] == pytest.approx([1, 2.6, 2.92], rel=1e-12)


def test_the_server_averages_by_examples_where_each_client_has_come_to_rest():
    """w = 1, mu = 1: clients with a = 1, b = 3 and a = 3, b = -1 rest at 4 / 2 = 2 and -2 / 4 = -0.5.

    With 1 and 3 examples the average is (2 - 1.5) / 4 = 0.125.
    """
    run = on_bowls(fedprox(mu=1.0, lr=0.1, budget=steps(400)), 1, bowl(1, 3, 1), bowl(3, -1, 3))
    assert float(run.shared["u"]) == pytest.approx(0.125, rel=1e-12)


def test_one_local_step_does_not_depend_on_mu():
    """The pull is zero where the step begins; from the second step on it is not."""
    weak, strong = (play(fedprox(mu=mu, lr=0.3, budget=steps(1)), 3, uniform(3)) for mu in (0.0, 5.0))
    assert_same_bits(strong.shared, weak.shared)
    weak, strong = (play(fedprox(mu=mu, lr=0.3, budget=steps(2)), 1) for mu in (0.0, 0.1))
    assert all(not torch.equal(strong.shared[name], weak.shared[name]) for name in weak.shared)


def test_a_larger_mu_leaves_each_client_nearer_to_what_it_received():
    def distance(mu):
        run = play(fedprox(mu=mu, lr=0.1, budget=steps(100)), 1)
        return [sum(float(value.norm()) ** 2 for value in result.upload.values.values()) for _, result in run.results]

    none, some, much = distance(0.0), distance(0.1), distance(1.0)
    for near, middle, far in zip(much, some, none, strict=True):
        assert 0 < near < middle < far


def test_finetuning_is_without_the_pull():
    """The model that a client tunes is FedAvg's tuning of the same shared model: the server stands still here."""
    pulled = play(fedprox(mu=2.0, lr=0.3, budget=BUDGET, adapt=BUDGET, server=0.0), 1)
    plain = play(fedavg(lr=0.3, budget=BUDGET, adapt=BUDGET, server=0.0), 1)
    for client in range(5):
        assert_same_bits(pulled.adapted(client), plain.adapted(client))
        assert all(not torch.equal(value, pulled.shared[name]) for name, value in pulled.adapted(client).items())


def test_it_costs_what_fedavg_costs_and_is_judged_by_the_shared_model():
    pulled, plain = play(fedprox(mu=0.5, budget=BUDGET), 1), play(fedavg(budget=BUDGET), 1)
    for name in ("bytes_up", "bytes_down", "network_passes"):
        assert getattr(pulled.reports[0], name) == getattr(plain.reports[0], name) > 0
    assert list(pulled.store.clients()) == []
    assert pulled.program.method.judged_by == "global"


@pytest.mark.parametrize(
    "options", [{"mu": -0.1}, {"mu": float("nan")}, {"mu": "0.1"}, {"lr": -0.1}, {"clip_norm": 0.0}], ids=str
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        fedprox(**options)
