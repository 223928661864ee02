"""The loop over rounds: whole rounds, stopping and going on."""

from itertools import islice

import pytest

from plures.core.loop import start, train
from plures.core.types import PERSONAL, SHARED
from plures.engines.sequential import Sequential
from plures.local import epochs, sgd, uniform_start
from plures.participation import binomial, uniform
from plures.stores.memory import MemoryStore
from tests.core.helpers import (
    class_clients,
    class_program,
    copied,
    method,
    network,
    pair_clients,
    pair_program,
    phase,
    rounds_of,
    same_bits,
)

CLIENTS = class_clients((3, 4, 5, 6))


def program():
    training = phase((SHARED, PERSONAL), budget=epochs(1, batch=2))
    of = method(training, personal=("3.*",), start=uniform_start, server=sgd(0.8, momentum=0.5))
    return class_program(of, network(dropout=0.2))


def states(store):
    return {client: copied(store.get(client)) for client in store.clients()}


def test_the_server_begins_with_the_models_own_values_at_round_zero():
    server = start(program())
    assert (server.round, server.optimizer) == (0, {})
    assert same_bits(server.shared, {f"0.{name}": value.detach() for name, value in network()[0].named_parameters()})


def test_rounds_are_numbered_from_one_and_committed_in_order():
    commits, staged = [], {}

    class Watched(MemoryStore):
        def stage(self, round, states):
            staged.update(states)
            super().stage(round, states)

        def commit(self, round, states):
            commits.append((round, sorted({**staged, **states})))
            staged.clear()
            super().commit(round, states)

    done = rounds_of(program(), CLIENTS, 3, store=Watched())
    assert [one.server.round for one in done] == [one.report.round for one in done] == [1, 2, 3]
    assert commits == [(round, [0, 1, 2, 3]) for round in (1, 2, 3)]


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_stopping_after_some_rounds_leaves_the_store_at_that_round(rounds):
    store, whole = MemoryStore(), MemoryStore()
    endless = train(program(), CLIENTS, rounds=10**9, sampler=uniform(2), engine=Sequential(), store=store)
    for _ in islice(endless, rounds):
        pass
    endless.close()
    rounds_of(program(), CLIENTS, rounds, sampler=uniform(2), store=whole)
    assert store.round == rounds
    assert states(store).keys() == states(whole).keys()
    assert all(same_bits(kept, states(whole)[client]) for client, kept in states(store).items())


def test_nothing_runs_before_a_round_is_asked_for():
    store = MemoryStore()
    run = train(program(), CLIENTS, rounds=3, sampler=uniform(2), engine=Sequential(), store=store)
    assert store.round == 0
    next(run)
    assert store.round == 1


def test_a_run_that_goes_on_from_a_round_has_the_bits_of_one_left_alone():
    store, whole = MemoryStore(), MemoryStore()
    half = rounds_of(program(), CLIENTS, 2, sampler=uniform(2), store=store)[-1].server
    rest = rounds_of(program(), CLIENTS, 5, sampler=uniform(2), store=store, server=half)
    full = rounds_of(program(), CLIENTS, 5, sampler=uniform(2), store=whole)
    assert [done.report for done in rest] == [done.report for done in full[2:]]
    assert same_bits(rest[-1].server.shared, full[-1].server.shared)
    assert same_bits(rest[-1].server.optimizer[SHARED]["momentum"], full[-1].server.optimizer[SHARED]["momentum"])
    assert all(same_bits(kept, states(whole)[client]) for client, kept in states(store).items())


def test_a_run_that_has_its_rounds_already_ends_at_once():
    server = rounds_of(program(), CLIENTS, 2)[-1].server
    assert rounds_of(program(), CLIENTS, 2, server=server) == []


def test_earlier_rounds_stay_as_they_were_while_later_ones_run():
    run = train(program(), CLIENTS, rounds=3, sampler=uniform(3), engine=Sequential(), store=MemoryStore())
    first = next(run)
    kept = copied(first.server.shared)
    list(run)
    assert same_bits(first.server.shared, kept)


def test_cohorts_follow_from_seed_and_round_and_reach_the_clients():
    done = rounds_of(program(), CLIENTS, 6, sampler=binomial(0.5))
    cohorts = [one.report.cohort for one in done]
    assert cohorts == [binomial(0.5).draw(4, round, 1).clients for round in range(1, 7)]
    assert len(set(cohorts)) > 1


def test_the_inclusion_of_the_sampler_reaches_weights_and_scales():
    seen = []
    watching = phase(scale=lambda facts: seen.append(facts.inclusion) or 1.0)
    rounds_of(pair_program(watching), pair_clients(*[[(1, 1, 0)]] * 4), sampler=uniform(1))
    assert set(seen) == {0.25}
