"""pFedHN: a hypernetwork at the server makes each client's model of an embedding."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from plures.core.context import Server
from plures.core.loop import start, train
from plures.core.seeds import generator
from plures.engines.sequential import Sequential
from plures.local import adam, epochs, sgd, steps
from plures.methods import fedavg, pfedhn
from plures.participation import all_clients
from plures.parts import head
from plures.server.weights import uniform as equally
from plures.stores.memory import MemoryStore
from plures.wire import Codec
from tests.helpers.methods import (
    BODY,
    HEAD,
    SEED,
    Given,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    part_of,
    play,
    same_bits,
)
from tests.oracles import pfedhn as oracle
from tests.oracles.common import batches_of, client_loss, gradient, step
from tests.oracles.settings import ROUNDS, settings

ALL = BODY + HEAD
TABLE = "hyper.embeddings"
SMALL = {"hidden": 6, "layers": 1, "clip_norm": None, "server_clip": None}
HEAVY = sgd(0.2, momentum=0.5, weight_decay=0.01)


def tiny(rounds=3, cohorts=((0, 1, 2, 3, 4),), **options):
    method = pfedhn(**SMALL | {"lr": 0.3, "server": 0.5, "budget": steps(2)} | options)
    return play(method, rounds, Given([tuple(cohort) for cohort in cohorts], 0.4))


def phi_of(shared):
    """The hypernetwork by the oracle's names."""
    return {n.removeprefix("hyper."): value for n, value in shared.items() if n.startswith(("hyper.b", "hyper.heads."))}


def shapes_of(shared):
    return {name: value.shape for name, value in shared.items() if name in ALL}


def made(shared, embedding):
    return oracle.made(phi_of(shared), embedding, shapes_of(shared))


def drawn_turns(cohorts):
    """The order in which the clients of each round have their turns: a drawn one, each by itself."""
    orders = []
    for round, cohort in enumerate(cohorts, 1):
        places = torch.randperm(len(cohort), generator=generator(SEED, "turns", round)).tolist()
        orders.append([(sorted(cohort)[place],) for place in places])
    return orders


# Against the paper


@settings
@pytest.mark.parametrize("personal", ["all_shared", "head"], ids=["pFedHN", "pFedHN-PC"])
@pytest.mark.parametrize("one_by_one", [True, False], ids=["in turn", "together"])
def test_it_is_its_paper(budget, sampler, personal, one_by_one):
    options = SMALL | {"server_clip": 0.3, "personal": personal, "one_by_one": one_by_one}
    run = play(pfedhn(**options, lr=0.3, budget=budget, server=HEAVY), ROUNDS, sampler)
    clients, first = run.population.batches, run.servers[0].shared
    phi, e, own = oracle.pfedhn(
        clients,
        phi_of(first),
        dict(enumerate(first[TABLE])),
        {i: part_of(state, HEAD if personal == "head" else ()) for i, state in run.states[0].items()},
        shapes_of(first),
        drawn_turns(run.cohorts) if one_by_one else [[cohort] if cohort else [] for cohort in run.cohorts],
        batches_of(clients, budget),
        lr=0.3,
        server_lr=0.2,
        momentum=0.5,
        decay=0.01,
        clip=0.3,
    )
    assert_near(phi_of(run.shared), phi)
    assert_near({str(i): run.shared[TABLE][i] for i in range(5)}, {str(i): value for i, value in e.items()})
    assert_all_near({i: part_of(run.final[i], own[i]) for i in own}, own)
    models = {i: oracle.made(phi, e[i], shapes_of(first)) | own[i] for i in range(5)}
    assert_all_near({i: part_of(run.model(i), ALL) for i in range(5)}, models)
    assert_near(part_of(run.shared, shapes_of(first)), oracle.made(phi, sum(e.values()) / 5, shapes_of(first)))


def loss_of_made(weights, shapes, client):
    return client_loss(oracle.made(weights, weights["e"], shapes), client)


def test_of_one_plain_step_the_server_gets_the_gradient_of_the_loss_through_the_hypernetwork():
    """theta - theta' = a grad F(theta), and the chain rule does the rest; a = 0.3, and the server steps at rate 1."""
    run = tiny(1, [(2,)], budget=steps(1), server=1.0)
    before, after = run.servers[0].shared, run.shared
    point = phi_of(before) | {"e": before[TABLE][2]}
    grads = gradient(loss_of_made, point, shapes_of(before), run.population.batches[2])
    assert_near(phi_of(after) | {"e": after[TABLE][2]}, step(point, grads, 0.3), 1e-14)
    for name, value in phi_of(before).items():
        assert_near({name: (value - phi_of(after)[name]) / 0.3}, {name: grads[name]}, 1e-10)
    assert all(value.any() for value in grads.values())


def test_with_one_step_of_everybody_together_it_is_gradient_descent_on_the_mean_loss():
    """Of phi and of all embeddings at once, at rate 0.3 * 0.5 (METHODS 6)."""

    def mean_loss(weights, shapes, clients):
        losses = [client_loss(oracle.made(weights, weights["e"][i], shapes), one) for i, one in enumerate(clients)]
        return sum(losses) / len(losses)

    run = tiny(4, budget=steps(1), one_by_one=False)
    first = run.servers[0].shared
    point = phi_of(first) | {"e": first[TABLE]}
    for server in run.servers[1:]:
        point = step(point, gradient(mean_loss, point, shapes_of(first), run.population.batches), 0.3 * 0.5)
        assert_near(phi_of(server.shared) | {"e": server.shared[TABLE]}, point)


def test_a_hypernetwork_that_makes_the_same_of_every_embedding_is_fedavg_with_equal_weights():
    """Nothing but the heads' biases is other than 0: the features are 0 and pull at nothing, the biases are theta.

    One step against the mean of the uploads at rate 1 then sets them to the mean of the trained models.
    """
    plain = play(fedavg(lr=0.3, budget=epochs(2, batch=3), weight=equally), 3)
    method = pfedhn(**SMALL, lr=0.3, budget=epochs(2, batch=3), server=1.0, one_by_one=False)
    program, population = play(method, 0).program, federation()
    shared = {name: torch.zeros_like(value) for name, value in start(program).shared.items()}
    shared |= {f"hyper.heads.{name}.bias": value.flatten() for name, value in plain.servers[0].shared.items()}
    surroundings = {"sampler": all_clients(), "engine": Sequential(), "store": MemoryStore()}
    server = Server(round=0, shared=shared, optimizer={})
    for done, other in zip(
        train(program, population, rounds=3, server=server, **surroundings), plain.servers[1:], strict=True
    ):
        assert_near(part_of(done.server.shared, ALL), other.shared)


# What moves


@pytest.mark.parametrize("one_by_one", [True, False])
def test_without_steps_on_clients_and_without_decay_nothing_moves(one_by_one):
    run = tiny(2, budget=steps(0), server=sgd(0.5, momentum=0.9), one_by_one=one_by_one)
    assert_same_bits(run.shared, run.servers[0].shared)
    decayed = tiny(2, budget=steps(0), server=sgd(0.5, weight_decay=0.1), one_by_one=one_by_one)
    assert not same_bits(decayed.shared, decayed.servers[0].shared)


@pytest.mark.parametrize("server", [HEAVY, adam(0.05)], ids=["sgd", "adam"])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_embeddings_of_others_stay_bitwise_and_so_does_their_momentum(server, one_by_one):
    """Clients 0 and 1 have momentum from round 1, which would carry them on; weight decay would shrink them all."""
    run = tiny(2, [(0, 1), (1, 2)], server=server, one_by_one=one_by_one)
    for (before, after), cohort in zip(pairwise(run.servers), run.cohorts, strict=True):
        for client in range(5):
            same = torch.equal(before.shared[TABLE][client], after.shared[TABLE][client])
            assert same == (client not in cohort)
    old, new = (server.optimizer["shared.hyper"] for server in run.servers[1:])
    groups = [group for group in new if TABLE in new[group]]
    for group in groups:
        assert torch.equal(new[group][TABLE][0], old[group][TABLE][0])
        assert new[group][TABLE][:3].any(dim=1).all()
        assert not new[group][TABLE][3:].any()
    assert len(groups) == (1 if server is HEAVY else 2)


def test_a_cohort_of_one_is_the_same_in_turn_and_together():
    cohorts = [(2,), (0,), (2,)]
    in_turn, together = (tiny(3, cohorts, server=HEAVY, one_by_one=choice) for choice in (True, False))
    assert_same_bits(in_turn.shared, together.shared)
    assert not same_bits(tiny(1).shared, tiny(1, one_by_one=False).shared)


def test_turns_are_drawn_for_each_round_whatever_the_order_of_the_cohort():
    cohorts = [(0, 1, 2, 3, 4)] * 3
    run, turned = tiny(3, cohorts), tiny(3, [cohort[::-1] for cohort in cohorts])
    visited = [(visit.round, visit.client) for visit, _ in run.results]
    assert visited == [(r, i) for r, order in enumerate(drawn_turns(cohorts), 1) for (i,) in order]
    assert len({tuple(i for r, i in visited if r == round) for round in (1, 2, 3)}) == 3
    assert_same_bits(run.shared, turned.shared)
    assert turned.cohorts == [cohort[::-1] for cohort in cohorts]


def test_each_client_gets_what_the_step_for_the_client_before_has_left():
    in_turn, together = tiny(1), tiny(1, one_by_one=False)
    first = in_turn.servers[0].shared
    for run, alike in ((in_turn, 1), (together, 5)):
        fresh = [same_bits(visit.received, fresh_model(first, visit.client)) for visit, _ in run.results]
        assert fresh == [True] * alike + [False] * (5 - alike)


def fresh_model(shared, client):
    """As the download makes it, so that bits can be compared."""
    method = pfedhn(**SMALL)
    digits = torch.tensor([bool(client >> bit & 1) for bit in range(32)])
    return method.download(shared, {"hyper.number": digits}).values


def test_the_largest_norm_of_the_servers_gradient_counts_the_embedding_too():
    """With a limit of 0.01 and a rate of 1, all that moves in a step for one client moves by 0.01 together."""
    run = tiny(1, [(3,)], server=1.0, server_clip=0.01)
    moves = {n: value - run.shared[n] for n, value in run.servers[0].shared.items() if n.startswith("hyper.")}
    assert float(sum((move**2).sum() for move in moves.values()) ** 0.5) == pytest.approx(0.01, rel=1e-3)
    assert all(move.any() for move in moves.values())


# Whose is what


def test_clients_with_different_embeddings_get_different_models_and_equal_ones_the_same():
    run = play(pfedhn(**SMALL), 0)
    for name in ALL:
        assert not torch.allclose(run.model(0)[name], run.model(1)[name])
    table = run.servers[0].shared[TABLE]
    assert_near(part_of(run.model(3), ALL), made(run.servers[0].shared, table[3]))
    alike = run.servers[0].shared | {TABLE: table[[1, 1, 2, 3, 4]]}
    assert_same_bits(fresh_model(alike, 0), fresh_model(alike, 1))


def test_neither_the_hypernetwork_nor_an_embedding_is_ever_sent():
    """The network has 27 parameters, and so have both messages of each visit."""
    run = play(pfedhn(**SMALL, budget=steps(1)), 2, Given([(0, 3)], 0.4), wire=Codec(through_bytes=True))
    assert len(run.results) == 4
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(ALL)
        assert not result.message().exact
        assert set(result.state) == {"hyper.number"}
    for report in run.reports:
        assert (report.values_down, report.values_up) == (2 * 27, 2 * 27)


def test_a_personal_head_stays_with_its_client_and_the_hypernetwork_makes_the_rest():
    """The body has 15 parameters; the others' heads stand still."""
    run = tiny(2, [(0, 3), (3, 4)], personal=head())
    made_of_it = [name for name in run.shared if name.startswith("hyper.heads.")]
    assert made_of_it == [f"hyper.heads.{name}.{kind}" for name in BODY for kind in ("weight", "bias")]
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(BODY)
        assert set(result.state) == {*HEAD, "hyper.number"}
    assert not set(run.shared) & set(HEAD)
    assert (run.reports[0].values_down, run.reports[0].values_up) == (2 * 15, 2 * 15)
    assert_same_bits(part_of(run.final[0], HEAD), part_of(run.states[1][0], HEAD))
    assert not same_bits(part_of(run.states[1][0], HEAD), part_of(run.states[0][0], HEAD))
    assert not run.program.has_global_model()


def test_reports_are_of_the_whole_cohort():
    """Two full-batch steps of each client are two passes; losses go by examples, of which they have 3, 5, 7, 9, 4."""
    run = tiny(1)
    (report,) = run.reports
    assert (report.cohort, report.network_passes) == ((0, 1, 2, 3, 4), 5 * 2)
    (phase,) = report.losses
    total = sum(visit.facts.examples * float(result.losses[phase]) for visit, result in run.results)
    assert report.losses[phase] == pytest.approx(total / 28, rel=1e-12)
    assert set(run.store.clients()) == {0, 1, 2, 3, 4}
