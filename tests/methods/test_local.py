"""Local (METHODS 2.4)."""

from __future__ import annotations

import pytest

from plures.local import epochs, steps
from plures.methods import fedavg, local
from plures.participation import round_robin
from tests.helpers.methods import Given, Population, assert_near, assert_same_bits, federation, play, same_bits


def test_two_clients_with_swapped_data_have_swapped_models():
    """Bitwise: with full batches nothing is drawn, and a client's model depends on its own data alone."""
    first, second = federation([6, 8]).batches
    straight = play(local(lr=0.3, budget=steps(3)), 3, population=Population([first, second]))
    swapped = play(local(lr=0.3, budget=steps(3)), 3, population=Population([second, first]))
    assert_same_bits(straight.final[0], swapped.final[1])
    assert_same_bits(straight.final[1], swapped.final[0])
    assert not same_bits(straight.final[0], straight.final[1])


@pytest.mark.parametrize("client", range(5))
def test_each_client_is_fedavg_of_that_client_alone(client):
    """A cohort of one client averages nothing; the same client number draws the same mini-batches."""
    budget = epochs(2, batch=3)
    alone = play(fedavg(lr=0.3, budget=budget), 3, Given([(client,)]))
    assert_near(play(local(lr=0.3, budget=budget), 3).final[client], alone.shared)


def test_each_client_is_fedavg_with_a_population_of_one():
    for client, batch in enumerate(federation().batches):
        alone = play(fedavg(lr=0.3, budget=steps(2)), 3, population=Population([batch]))
        assert_near(play(local(lr=0.3, budget=steps(2)), 3).final[client], alone.shared)


def test_nothing_is_sent_in_either_direction():
    run = play(local(), 3)
    assert [(report.bytes_up, report.bytes_down) for report in run.reports] == [(0, 0)] * 3
    assert run.shared == {}
    assert all(not visit.received and not result.upload.values for visit, result in run.results)


def test_a_client_trains_only_in_rounds_it_is_drawn_for():
    """Two of five in turn: {0, 1}, {2, 3}, {0, 4}. After 3 rounds client 0 trained twice, client 4 once."""
    run = play(local(lr=0.3, budget=steps(1)), 3, round_robin(2))
    everyday = play(local(lr=0.3, budget=steps(1)), 2)
    assert run.cohorts == [(0, 1), (2, 3), (0, 4)]
    assert_same_bits(run.final[0], everyday.states[2][0])
    assert_same_bits(run.final[4], everyday.states[1][4])


def test_all_clients_start_from_the_same_model():
    start = play(local(), 1).states[0]
    for client in range(1, 5):
        assert_same_bits(start[client], start[0])
