"""pFedHN: a hypernetwork at the server makes each client's model of an embedding."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from plures.core.context import Server
from plures.core.loop import start, train
from plures.core.seeds import generator
from plures.engines.sequential import Sequential
from plures.local import adam, epochs, exponential, sgd, steps
from plures.methods import fedavg, pfedhn
from plures.participation import all_clients
from plures.server.weights import uniform as equally
from plures.stores.memory import MemoryStore
from tests.helpers.methods import (
    BODY,
    HEAD,
    SEED,
    Given,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    minus,
    part_of,
    play,
    same_bits,
)
from tests.oracles import pfedhn as oracle
from tests.oracles.common import batches_of, client_loss, gradient, step
from tests.oracles.settings import ROUNDS, settings

ALL = BODY + HEAD
EMBEDDING, MEAN = "hyper.embedding", "hyper.mean"
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


def embeddings(states):
    """The embedding of each client, before its first visit too."""
    return {client: state[EMBEDDING] for client, state in states.items()}


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
    server = sgd(exponential(0.2, 0.8), momentum=0.5, weight_decay=0.01)
    options = SMALL | {"server_clip": 0.3, "personal": personal, "one_by_one": one_by_one}
    run = play(pfedhn(**options, lr=0.3, budget=budget, server=server), ROUNDS, sampler)
    clients, first, e0 = run.population.batches, run.servers[0].shared, embeddings(run.states[0])
    phi, e, own = oracle.pfedhn(
        clients,
        phi_of(first),
        e0,
        {i: part_of(state, HEAD if personal == "head" else ()) for i, state in run.states[0].items()},
        shapes_of(first),
        drawn_turns(run.cohorts) if one_by_one else [[cohort] if cohort else [] for cohort in run.cohorts],
        batches_of(clients, budget),
        lr=0.3,
        server_lr=lambda round: 0.2 * 0.8 ** (round - 1),
        momentum=0.5,
        decay=0.01,
        clip=0.3,
    )
    assert_near(phi_of(run.shared), phi)
    assert_near(embeddings(run.final), e)
    assert_all_near({i: part_of(run.final[i], own[i]) for i in own}, own)
    models = {i: oracle.made(phi, e[i], shapes_of(first)) | own[i] for i in range(5)}
    assert_all_near({i: part_of(run.model(i), ALL) for i in range(5)}, models)
    mean = sum(e[i] - e0[i] for i in range(5)) / 5
    assert_near(part_of(run.shared, shapes_of(first)), oracle.made(phi, mean, shapes_of(first)))


def loss_of_made(weights, shapes, client):
    return client_loss(oracle.made(weights, weights["e"], shapes), client)


def test_of_one_plain_step_the_server_gets_the_gradient_of_the_loss_through_the_hypernetwork():
    """theta - theta' = a grad F(theta), and the chain rule does the rest; a = 0.3, and the server steps at rate 1."""
    run = tiny(1, [(2,)], budget=steps(1), server=1.0)
    before, after = run.servers[0].shared, run.shared
    point = phi_of(before) | {"e": run.states[0][2][EMBEDDING]}
    grads = gradient(loss_of_made, point, shapes_of(before), run.population.batches[2])
    assert_near(phi_of(after) | {"e": run.final[2][EMBEDDING]}, step(point, grads, 0.3), 1e-14)
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
    point = phi_of(first) | {"e": table(run.states[0])}
    for server, states in zip(run.servers[1:], run.states[1:], strict=True):
        point = step(point, gradient(mean_loss, point, shapes_of(first), run.population.batches), 0.3 * 0.5)
        assert_near(phi_of(server.shared) | {"e": table(states)}, point)


def table(states):
    return torch.stack(list(embeddings(states).values()))


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
    assert_all_near(run.final, run.states[0], 0.0)
    decayed = tiny(2, budget=steps(0), server=sgd(0.5, weight_decay=0.1), one_by_one=one_by_one)
    assert not same_bits(decayed.shared, decayed.servers[0].shared)
    # Each client has two steps of e <- e - 0.5 * 0.1 e, and 0.95^2 = 0.9025.
    assert_near(embeddings(decayed.final), {i: 0.9025 * e for i, e in embeddings(decayed.states[0]).items()}, 1e-14)


@pytest.mark.parametrize(
    ("server", "groups"), [(HEAVY, ["momentum"]), (adam(0.05), ["first", "second"])], ids=["sgd", "adam"]
)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_embeddings_of_others_stay_bitwise_and_so_does_their_momentum(server, groups, one_by_one):
    """Clients 0 and 1 have momentum from round 1, which would carry them on; weight decay would shrink them all."""
    run = tiny(2, [(0, 1), (1, 2)], server=server, one_by_one=one_by_one)
    memories = [f"{EMBEDDING}.{group}" for group in groups]
    for (before, after), cohort in zip(pairwise(run.states), run.cohorts, strict=True):
        for client in range(5):
            assert set(after[client]) == {EMBEDDING, *memories}
            same = [name for name in after[client] if torch.equal(before[client][name], after[client][name])]
            assert same == ([] if client in cohort else [EMBEDDING, *memories])
    for client in range(5):
        assert [bool(run.final[client][name].any()) for name in memories] == [client < 3] * len(groups)
    assert {name for group in groups for name in run.server.optimizer["shared.hyper"][group]} == {
        f"hyper.{name}" for name in phi_of(run.shared)
    }


@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_servers_rate_is_that_of_the_round(one_by_one):
    """Of the same point and the same uploads, a step at 0.25 is half of one at 0.5: in round 2, and not in round 1."""
    cohorts = [(1,), (3,)]
    run, constant = (tiny(2, cohorts, server=lr, one_by_one=one_by_one) for lr in (exponential(0.5, 0.5), 0.5))
    assert_same_bits(run.servers[1].shared, constant.servers[1].shared)
    moves = [minus(moved_by(played, 2, 3), moved_by(played, 1, 3)) for played in (run, constant)]
    assert_near(moves[0], {name: value / 2 for name, value in moves[1].items()}, 1e-10)
    assert all(value.any() for value in moves[1].values())


def moved_by(run, round, client):
    """All that the server's optimiser moves in a step for that client."""
    return phi_of(run.servers[round].shared) | {EMBEDDING: run.states[round][client][EMBEDDING]}


def test_a_cohort_of_one_is_the_same_in_turn_and_together():
    cohorts = [(2,), (0,), (2,)]
    in_turn, together = (tiny(3, cohorts, server=HEAVY, one_by_one=choice) for choice in (True, False))
    assert_same_bits(in_turn.shared, together.shared)
    assert_all_near(in_turn.final, together.final, 0.0)
    assert not same_bits(tiny(1).shared, tiny(1, one_by_one=False).shared)


def test_turns_are_drawn_for_each_round_whatever_the_order_of_the_cohort():
    cohorts = [(0, 1, 2, 3, 4)] * 3
    run, turned = tiny(3, cohorts), tiny(3, [cohort[::-1] for cohort in cohorts])
    visited = [(visit.round, visit.client) for visit, _ in run.results]
    assert visited == [(r, i) for r, order in enumerate(drawn_turns(cohorts), 1) for (i,) in order]
    assert len({tuple(i for r, i in visited if r == round) for round in (1, 2, 3)}) == 3
    assert_same_bits(run.shared, turned.shared)
    assert_all_near(run.final, turned.final, 0.0)
    assert turned.cohorts == [cohort[::-1] for cohort in cohorts]


def test_each_client_gets_what_the_step_for_the_client_before_has_left():
    in_turn, together = tiny(1), tiny(1, one_by_one=False)
    first = in_turn.servers[0].shared
    for run, alike in ((in_turn, 1), (together, 5)):
        fresh = [same_bits(visit.received, sent(first, run.states[0][visit.client])) for visit, _ in run.results]
        assert fresh == [True] * alike + [False] * (5 - alike)


def sent(shared, state):
    """The download of a client with that state, so that bits can be compared."""
    return pfedhn(**SMALL).download(shared, {EMBEDDING: state[EMBEDDING]}).values


def test_the_largest_norm_of_the_servers_gradient_counts_the_embedding_too():
    """With a limit of 0.01 and a rate of 1, all that moves in a step for one client moves by 0.01 together."""
    run = tiny(1, [(3,)], server=1.0, server_clip=0.01)
    moves = minus(moved_by(run, 1, 3), moved_by(run, 0, 3))
    assert float(sum((move**2).sum() for move in moves.values()) ** 0.5) == pytest.approx(0.01, rel=1e-3)
    assert all(move.any() for move in moves.values())
