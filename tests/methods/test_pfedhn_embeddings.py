"""pFedHN's embeddings: whose they are, how they begin, and the one model that is made of their mean."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from plures.core.loop import train
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.seeds import generator
from plures.core.types import Batch
from plures.engines.sequential import Sequential
from plures.local import adam, sgd, steps
from plures.methods import pfedhn
from plures.participation import uniform
from plures.parts import head
from plures.stores.memory import MemoryStore
from plures.wire import Codec
from tests.helpers.methods import (
    BODY,
    CLASSES,
    HEAD,
    INPUTS,
    SEED,
    Given,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
    same_bits,
)
from tests.methods.test_pfedhn import ALL, EMBEDDING, MEAN, SMALL, embeddings, made, sent, tiny

# Whose is what


def test_clients_with_different_embeddings_get_different_models_and_equal_ones_the_same():
    run = play(pfedhn(**SMALL), 0)
    for name in ALL:
        assert not torch.allclose(run.model(0)[name], run.model(1)[name])
    assert_near(part_of(run.model(3), ALL), made(run.shared, run.final[3][EMBEDDING]))
    assert_same_bits(sent(run.shared, run.final[1]), part_of(run.model(1), ALL))
    run.store.commit(0, {0: run.final[1]})
    assert_same_bits(part_of(run.model(0), ALL), part_of(run.model(1), ALL))


class Watched:
    """A wire that remembers the names in every message."""

    def __init__(self):
        self.messages = []

    def carry(self, message, *, upward, draws):
        self.messages.append((upward, {*message.parcel.values, *message.exact}))
        return Codec(through_bytes=True).carry(message, upward=upward, draws=draws)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_neither_the_hypernetwork_nor_an_embedding_is_ever_sent(one_by_one):
    """The network has 27 parameters, and so have both messages of each visit: of later ones too."""
    method, wire = pfedhn(**SMALL, budget=steps(1), one_by_one=one_by_one), Watched()
    run = play(method, 3, Given([(0, 3)], 0.4), wire=wire)
    assert len(wire.messages) == 2 * len(run.results) == 12
    assert sum(upward for upward, _ in wire.messages) == 6
    assert all(names == set(ALL) for _, names in wire.messages)
    for visit, result in run.results:
        assert not result.known
        assert set(result.state) == {EMBEDDING, f"{EMBEDDING}.momentum"}
        assert_same_bits(result.state, visit.state)
    for report in run.reports:
        assert (report.values_down, report.values_up) == (2 * 27, 2 * 27)


def test_a_personal_head_stays_with_its_client_and_the_hypernetwork_makes_the_rest():
    """The body has 15 parameters; the others' heads stand still."""
    run = tiny(2, [(0, 3), (3, 4)], personal=head())
    made_of_it = [name for name in run.shared if name.startswith("hyper.heads.")]
    assert made_of_it == [f"hyper.heads.{name}.{kind}" for name in BODY for kind in ("weight", "bias")]
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(BODY)
        assert set(result.state) == {*HEAD, EMBEDDING}
    assert not set(run.shared) & set(HEAD)
    assert (run.reports[0].values_down, run.reports[0].values_up) == (2 * 15, 2 * 15)
    assert_same_bits(run.final[0], run.states[1][0])
    assert not same_bits(part_of(run.states[1][0], HEAD), part_of(run.states[0][0], HEAD))
    assert not run.program.has_global_model()


# How they begin, and who has one


@pytest.mark.parametrize(("clients", "size"), [(3, 1), (4, 2), (5, 2), (100, 26)])
def test_embeddings_have_a_quarter_of_the_number_of_clients_and_one(clients, size):
    population = federation([2] * clients)
    for option, wanted in ((None, size), (3, 3)):
        run = play(pfedhn(**SMALL, embedding=option), 0, population=population)
        assert {value.shape for value in embeddings(run.final).values()} == {(wanted,)}
        assert run.shared["hyper.body.0.weight"].shape == (6, wanted)


def test_embeddings_are_drawn_from_a_standard_normal_for_each_client_by_itself():
    """4 * 1000 draws: the deviation of their mean is 0.016, that of their deviation 0.011."""
    few, many = (play(pfedhn(**SMALL, embedding=1000), 0, population=federation([2] * n)).final for n in (2, 4))
    table = torch.stack(list(embeddings(many).values()))
    assert abs(float(table.mean())) < 0.06
    assert float(table.std()) == pytest.approx(1.0, abs=0.05)
    assert len({float(row[0]) for row in table}) == 4
    for client, state in few.items():  # whoever else there is
        assert torch.equal(state[EMBEDDING], many[client][EMBEDDING])


def test_all_clients_start_with_the_same_personal_head():
    run = play(pfedhn(**SMALL, personal=head()), 0)
    given = dict(network().named_parameters())
    for client in range(5):
        assert_same_bits(part_of(run.final[client], HEAD), part_of(given, HEAD))
    assert not torch.equal(run.model(0)[BODY[0]], run.model(1)[BODY[0]])


class ManyClients:
    """A hundred thousand clients of 2 examples each, made when they are asked for."""

    num_clients = 100_000
    total_examples = 2 * num_clients

    def __init__(self):
        self.asked = set()

    def num_examples(self, client):
        return 2

    def client(self, client):
        self.asked.add(client)
        draws = generator(SEED, "one of many", client)
        inputs = torch.randn(2, INPUTS, generator=draws, dtype=torch.float64)
        return SimpleNamespace(train=Batch(inputs, torch.randint(CLASSES, (2,), generator=draws)))

    def name(self, client):
        return str(client)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(("server", "kept"), [(sgd(0.1, momentum=0.9), 2), (adam(0.1), 3)], ids=["sgd", "adam"])
def test_of_a_hundred_thousand_clients_only_the_visited_take_memory(server, kept, one_by_one):
    """Two rounds of three. The server holds as much as in a population of five, with the same size of embeddings."""
    options = SMALL | {"embedding": 8, "budget": steps(1), "server": server, "one_by_one": one_by_one}
    method, drawn = pfedhn(**options), []

    def noted(beginning):
        drawn.append(beginning.client)
        return method.start(beginning)

    population, store = ManyClients(), MemoryStore()
    program = Program(
        replace(method, start=noted),
        OneNetwork(module=network()),
        loss=nn.functional.cross_entropy,
        seed=SEED,
        num_clients=population.num_clients,
    )
    surroundings = {"sampler": uniform(3), "engine": Sequential(), "store": store}
    *_, done = train(program, population, rounds=2, **surroundings)
    visited = list(store.clients())
    assert len(visited) == 6
    assert sorted(drawn) == visited == sorted(population.asked)
    for client in visited:
        assert [value.shape for value in store.get(client).values()] == [(8,)] * kept
    few = play(method, 2)
    assert shapes(done.server) == shapes(few.server)


def shapes(server):
    """Of all that the server holds itself."""
    held = {"shared": server.shared} | server.optimizer["shared.hyper"]
    return {f"{group} {name}": value.shape for group, values in held.items() for name, value in values.items()}


# One model for everybody


@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_model_for_everybody_is_made_of_the_mean_of_how_far_embeddings_have_moved(one_by_one):
    """They are drawn around 0; clients 3 and 4 are never visited, and count among the five."""
    run = tiny(3, [(0, 1), (), (2,)], one_by_one=one_by_one)
    first = embeddings(run.states[0])
    for server, states in zip(run.servers, run.states, strict=True):
        mean = sum(now - first[client] for client, now in embeddings(states).items()) / 5
        assert torch.allclose(server.shared[MEAN], mean, rtol=1e-12, atol=1e-15)
        assert_near(part_of(server.shared, ALL), made(server.shared, server.shared[MEAN]))
    assert not run.servers[0].shared[MEAN].any()
    assert run.servers[1].shared[MEAN].any()
    assert_same_bits(run.servers[2].shared, run.servers[1].shared)
    assert run.program.has_global_model()


def test_a_population_of_one_learns():
    """int(1 + 1 / 4) = 1 number is its embedding."""
    run = play(pfedhn(**SMALL, lr=0.3, budget=steps(3), server=0.5), 8, population=federation([6]))
    assert run.final[0][EMBEDDING].shape == (1,)
    assert_near({MEAN: run.shared[MEAN]}, {MEAN: run.final[0][EMBEDDING] - run.states[0][0][EMBEDDING]})
    losses = [sum(report.losses.values()) for report in run.reports]
    assert losses == sorted(losses, reverse=True)
