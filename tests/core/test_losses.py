"""Rounds that go on without some of their clients: what moves, what stays, what is counted and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from plures.core.context import Conduct
from plures.core.errors import ClientFailed, Diverged, InvalidConfig, Refused, TooFewClients
from plures.core.loop import train
from plures.core.losses import STRICT, Tolerance
from plures.core.round import made_up_for
from plures.core.types import Facts
from plures.engines.sequential import Sequential
from plures.methods import fedavg, fedmask, fedspa, local, pfedhn, pflego, scaffold
from plures.participation import Cohort, Faults, over_select, uniform
from plures.parts import patterns
from plures.server import global_ht, round_ht, samples
from plures.stores.memory import MemoryStore
from tests.conformance.table import ROWS, Row
from tests.core.helpers import Given as Turns
from tests.core.helpers import Pair, half_square, pair_clients, pair_program, phase, rounds_of, same_bits
from tests.helpers.faults import (
    BEARING,
    LOST_AS,
    Always,
    Noting,
    Second,
    program_of,
    scripted,
    second_round,
)
from tests.helpers.methods import assert_near, assert_same_bits, federation, network, play

CALLED, HIT = (0, 1, 3, 4), 1
LEFT = tuple(client for client in CALLED if client != HIT)

first_rows = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[] if row.variant == next(iter(row.entry.variants)) else pytest.mark.slow)
        for row in ROWS
    ],
    ids=str,
)
faults = pytest.mark.parametrize("fault", LOST_AS)


@cache
def second_of(row: Row) -> Second:
    return second_round(row.make(), called=CALLED, population=row.population(), module=network(row.network))


@cache
def undisturbed(row: Row) -> tuple[Noting, int]:
    """What comes of everybody's work in the second round, and the bytes that all downloads take."""
    engine = Noting()
    return engine, second_of(row).played(Conduct(), engine).report.bytes_down


def lost_as(row: Row, fault: str) -> str:
    """Bits hold neither NaN nor a large number, and where nothing is uploaded there is nothing to spoil."""
    uploaded = undisturbed(row)[0].results[HIT].upload.values.values()
    if fault in ("nan", "wrong_shape", "wrong_name", "wrong_dtype", "huge", "nothing") and not list(uploaded):
        return "gone"
    if fault in ("nan", "huge") and not any(value.is_floating_point() for value in uploaded):
        return "misfit"
    return LOST_AS[fault]


# A round without one of its clients


@first_rows
@faults
def test_the_round_goes_on_among_those_that_arrive_and_the_lost_client_keeps_what_it_had(row, fault):
    second, engine = second_of(row), Noting()
    store = second.store()
    done = second.played(scripted({(2, HIT): fault}), engine, store)

    alone, kept = second.among(LEFT, engine.results)
    exact = made_up_for(second.program.method.weight, engine.visits[0].facts, len(LEFT)) == 1.0
    same = assert_same_bits if exact else lambda left, right: assert_near(left, right, 1e-10)
    same(done.server.shared, alone.server.shared)
    assert list(store.clients()) == list(kept.clients()) == list(second.states)
    for client in second.states:
        assert_same_bits(store.get(client), second.states[client] if client == HIT else kept.get(client))

    (lost,) = done.report.lost
    assert (lost.client, lost.name, lost.kind) == (HIT, "client 1", lost_as(row, fault))
    assert lost.reason
    assert done.report.cohort == CALLED
    assert (done.report.bytes_up, done.report.values_up) == (alone.report.bytes_up, alone.report.values_up)
    assert done.report.network_passes == alone.report.network_passes
    assert done.report.losses == alone.report.losses
    whole, down = undisturbed(row)
    assert done.report.bytes_down == down - (whole.visits[HIT].down.num_bytes if fault == "absent" else 0)


@first_rows
def test_clients_are_told_the_facts_of_everybody_who_was_called(row):
    second, seen = second_of(row), []
    second.played(
        scripted({(2, HIT): "absent", (2, 3): "gone"}),
        on_result=lambda visit, _: seen.append((visit.client, visit.facts)),
    )
    assert sorted(client for client, _ in seen) == [0, 4]
    for client, facts in seen:
        assert facts == Facts(
            examples=second.population.num_examples(client),
            cohort_examples=sum(second.population.num_examples(one) for one in CALLED),
            all_examples=second.population.total_examples,
            cohort_clients=4,
            all_clients=5,
            inclusion=0.8,
        )


@first_rows
def test_a_soak_of_all_faults_together_ends_with_finite_numbers(row):
    population, store = row.population(), MemoryStore()
    program = program_of(row.make(), population, network(row.network))
    conduct = Conduct(tolerance=Tolerance(least_cohort=0, deadline=5.0, largest_norm=1e6), faults=Faults(rate=0.6))
    done = list(
        train(program, population, rounds=4, sampler=uniform(4), engine=Sequential(), store=store, conduct=conduct)
    )
    kinds = {one.kind for committed in done for one in committed.report.lost}
    assert len(kinds) > 1
    for params in (done[-1].server.shared, *(store.get(client) for client in store.clients())):
        assert all(value.isfinite().all() for value in params.values())


@pytest.mark.parametrize(
    "make", [fedavg, fedspa, fedmask, pfedhn, local, scaffold, pflego], ids=lambda make: make.__name__
)
def test_where_everybody_is_lost_nothing_moves(make):
    second = second_round(make())
    store = second.store()
    conduct = scripted(dict.fromkeys([(2, client) for client in CALLED], "nan"), Tolerance(least_cohort=0))
    done = second.played(conduct, store=store)
    assert_same_bits(done.server.shared, second.server.shared)
    assert done.server.optimizer.keys() == second.server.optimizer.keys()
    for client, state in second.states.items():
        assert_same_bits(store.get(client), state)
    assert [one.client for one in done.report.lost] == list(CALLED)
    assert (done.report.bytes_up, done.report.losses, done.report.network_passes) == (0, {}, 0.0)


def test_a_client_that_is_lost_in_its_first_visit_has_no_state_yet():
    second = replace(second_round(pflego(tau=2), called=(0, 1)), called=(0, 2))
    store = second.store()
    second.played(scripted({(2, 2): "nan"}), store=store)
    assert list(store.clients()) == [0, 1]


def test_what_is_lost_in_one_round_is_back_in_the_next():
    """Client 0 is lost in round 1: round 2 is its first, as if it had not been called before."""
    program, clients = pair_program(phase("personal")), pair_clients([(1, 1, 0)], [(1, 1, 1)])
    kept = {}
    for name, conduct in {"never": None, "lost": scripted({(1, 0): "nan"})}.items():
        store = MemoryStore()
        sampler = Turns((1,), (0, 1)) if conduct is None else Turns((0, 1), (0, 1))
        rounds_of(program, clients, 2, sampler=sampler, store=store, conduct=conduct)
        kept[name] = store.get(0)
    assert same_bits(kept["lost"], kept["never"])


# Weights, by hand

THREE = pair_clients([(1, 1, 0)], [(1, 1, 5)] * 2, [(1, 1, 1)] * 3, [(1, 1, 9)] * 4)
"""At a = 2 and b = 1 the residuals are 3, -2, 2 and -6; of 10 examples they have 1, 2, 3 and 4."""


def test_weights_that_are_divided_are_divided_by_what_arrived():
    # Clients 0 and 2 move by 0.1 * 3 and 0.1 * 2, and have 1 and 3 examples: (0.3 + 3 * 0.2) / 4.
    sampler = Always(Cohort((0, 1, 2), 0.75))
    (done,) = rounds_of(pair_program(), THREE, sampler=sampler, conduct=scripted({(1, 1): "nan"}))
    assert done.server.shared["a"].item() == pytest.approx(2 - 0.9 / 4, rel=1e-14)


def test_pflego_divides_by_the_chance_to_be_called_and_to_arrive_and_its_clients_by_that_to_be_called():
    """Three of four are called, and two of three arrive: 0.75 * 2 / 3 = 0.5.

    The sum is (1/10 * 3 + 3/10 * 2) / 0.5 = 1.8, and the server's rate 0.1. A client steps by its own gradient, times
    its share over 0.75: 0.1 * 0.1 / 0.75 * 3 = 0.04 and 0.1 * 0.3 / 0.75 * 2 = 0.08.
    """
    exact = pflego(tau=1, preset="exact", server=0.1, personal=patterns("b"), start="common")
    store = MemoryStore()
    run = play(exact, 0, population=THREE, module=Pair(), loss=half_square)
    (done,) = train(
        run.program,
        THREE,
        rounds=1,
        sampler=Always(Cohort((0, 1, 2), 0.75)),
        engine=Sequential(),
        store=store,
        conduct=scripted({(1, 1): "gone"}),
    )
    assert done.server.shared["a"].item() == pytest.approx(2 - 0.18, rel=1e-14)
    assert [store.get(client)["b"].item() for client in (0, 2)] == pytest.approx([0.96, 0.92], rel=1e-14)
    assert list(store.clients()) == [0, 2]


FACTS = Facts(examples=3, cohort_examples=6, all_examples=10, cohort_clients=3, all_clients=4, inclusion=0.75)


@pytest.mark.parametrize(("weight", "factor"), [(samples, 1.0), (global_ht, 1.5), (round_ht, 1.5)])
@pytest.mark.parametrize("examples", [3, 0])
def test_shares_over_the_inclusion_grow_by_called_over_arrived_whoever_came_last(weight, factor, examples):
    assert made_up_for(weight, replace(FACTS, examples=examples), 2) == pytest.approx(factor, rel=1e-14)


def test_a_weight_whose_divisor_grows_alike_stays_as_it_was():
    assert made_up_for(round_ht._replace(per=round_ht.share), FACTS, 2) == 1.0


# More called than wanted


def test_the_first_to_arrive_are_taken_and_the_others_were_sent_a_model_in_vain():
    program = pair_program()
    conduct = scripted({(1, 0): "slow", (1, 2): "absent"}, Tolerance(least_cohort=1))
    (done,) = rounds_of(program, THREE, sampler=Always(Cohort((0, 1, 2, 3), 1.0, 2)), conduct=conduct)
    assert [(one.client, one.kind) for one in done.report.lost] == [(0, "surplus"), (2, "absent")]
    assert done.report.lost[0].reason == "2 others were quicker"
    # One number of 8 bytes: sent to clients 0, 1 and 3, and back by 1 and 3.
    assert (done.report.bytes_down, done.report.bytes_up) == (24, 16)
    # Clients 1 and 3 move by 0.1 * -2 and 0.1 * -6, with 2 and 4 examples.
    assert done.server.shared["a"].item() == pytest.approx(2 + (2 * 0.2 + 4 * 0.6) / 6, rel=1e-14)


def test_nobody_is_too_few_where_as_many_arrive_as_are_wanted():
    conduct = scripted({(1, 0): "absent"}, STRICT)
    (done,) = rounds_of(pair_program(), THREE, sampler=Always(Cohort((0, 1, 2, 3), 1.0, 3)), conduct=conduct)
    assert [one.kind for one in done.report.lost] == ["absent"]
    with pytest.raises(TooFewClients, match=r"Round 1: 3 of 4 clients arrived, but 4 must \(1 absent\)"):
        rounds_of(pair_program(), THREE, sampler=Always(Cohort((0, 1, 2, 3), 1.0)), conduct=conduct)


def test_of_equally_quick_clients_each_is_left_out_as_often():
    # One of four is left out in each of 400 rounds: 100 times each, deviation sqrt(400 * 3/16) = 8.7; five allowed.
    done = rounds_of(pair_program(), THREE, 400, sampler=Always(Cohort((0, 1, 2, 3), 1.0, 3)))
    left_out = [one.client for committed in done for one in committed.report.lost]
    assert len(left_out) == 400
    assert all(abs(left_out.count(client) - 100) < 44 for client in range(4))


@pytest.mark.parametrize("sampler", [uniform(3), over_select(uniform(2), 1.5)], ids=["as drawn", "more called"])
def test_scaffolds_control_stays_the_mean_of_all_clients_own_whoever_is_lost(sampler):
    """Both begin at 0; c moves by 1 / n of the sum over those that arrived of c_i' - c_i, and who is lost keeps c_i."""
    population, store, lost = federation(), MemoryStore(), 0
    conduct = Conduct(tolerance=Tolerance(least_cohort=1), faults=Faults(gone=0.3))
    program = program_of(scaffold(lr=0.3), population)
    for done in train(
        program, population, rounds=20, sampler=sampler, engine=Sequential(), store=store, conduct=conduct
    ):
        lost += sum(one.kind == "gone" for one in done.report.lost)
    controls = {name: value for name, value in done.server.shared.items() if name.startswith("control.")}
    for name, value in controls.items():
        own = [store.get(client)[f"own_{name}"] for client in store.clients()]
        torch.testing.assert_close(value, torch.stack(own).sum(dim=0) / population.num_clients, rtol=0, atol=1e-14)
        assert value.norm() > 1e-3
    assert lost > 5
    assert len(controls) == 4


# How many must arrive


@pytest.mark.parametrize(
    ("least", "wanted", "must"),
    [(None, 5, 5), (3, 5, 3), (9, 5, 5), (0, 5, 0), (0.5, 5, 3), (1.0, 5, 5), (0.07, 100, 7), (0.1, 0, 0), (1, 0, 0)],
)
def test_so_many_must_arrive(least, wanted, must):
    assert Tolerance(least_cohort=least).least(wanted) == must


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"least_cohort": -1},
            "no share above 0 and up to 1.0, must be a whole number, 0 or more",
        ),
        ({"least_cohort": 1.5}, "not 1.5"),
        ({"least_cohort": True}, "not True"),
        ({"deadline": 0.0}, "deadline must be a finite number above 0"),
        ({"largest_norm": float("nan")}, "largest_norm must be a finite number above 0"),
    ],
)
def test_what_no_round_can_bear_is_refused(wrong, told):
    with pytest.raises(InvalidConfig, match=told):
        Tolerance(**wrong)


def test_too_few_are_counted_by_kind_and_nothing_of_the_round_is_in_force():
    second = second_round(fedavg())
    store = second.store()
    conduct = scripted({(2, 0): "wrong_name", (2, 1): "absent", (2, 3): "wrong_shape"}, Tolerance(least_cohort=0.5))
    told = r"Round 2: 1 of 4 clients arrived, but 2 must \(1 absent, 2 misfit\)\. For example: .* Lower least_cohort"
    with pytest.raises(TooFewClients, match=told):
        second.played(conduct, store=store)
    assert store.round == 1


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        ("nan", Diverged, "not finite numbers"),
        ("wrong_shape", Refused, "of shape"),
        ("wrong_name", Refused, "'not body.weight', which is not shared"),
        ("wrong_dtype", Refused, "as torch.float32, but the shared part as torch.float64"),
        ("nothing", Refused, "The upload is empty"),
        ("failing", ClientFailed, "It failed"),
        ("gone", ClientFailed, "It was not heard of again"),
        ("absent", TooFewClients, "3 of 4 clients arrived"),
    ],
)
def test_where_nothing_is_borne_the_first_failure_ends_the_run_at_the_last_whole_round(fault, error, told):
    second, seen = second_round(fedavg()), []
    store = second.store()
    hits = {(2, 1): fault} if fault == "absent" else {(2, 1): fault, (2, 3): "failing"}
    with pytest.raises(error, match=told) as found:
        second.played(scripted(hits, STRICT), store=store, on_result=lambda visit, _: seen.append(visit.client))
    if isinstance(found.value, ClientFailed):
        assert (found.value.client, found.value.round) == ("client 1", 2)
        assert seen == [0]
    assert store.round == 1


def test_a_round_without_faults_is_the_same_whatever_it_bears():
    second = second_round(fedavg())
    strict, bearing = second.played(Conduct()), second.played(scripted({}))
    assert_same_bits(strict.server.shared, bearing.server.shared)
    assert strict.report == bearing.report


def test_a_hostile_client_is_in_the_sum_as_what_it_sends():
    """All four are hostile and turn their uploads round: the server goes the other way, as far."""
    second = second_round(fedavg())
    plain = second.played(Conduct())
    hostile = Faults(attackers=0.999999, attack="sign_flip", attack_scale=1.0)
    turned = second.played(Conduct(tolerance=BEARING, faults=hostile))
    assert turned.report.lost == ()
    for name, old in second.server.shared.items():
        assert torch.allclose(turned.server.shared[name] - old, old - plain.server.shared[name], rtol=1e-9, atol=1e-15)
