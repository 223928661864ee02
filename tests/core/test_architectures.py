"""Clients whose personal parts differ in shape or in everything; the shared part is common."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core import program as program_module
from plures.core.client import run_client
from plures.core.loop import start
from plures.core.networks import NetworkPerClient
from plures.core.program import MODULES_KEPT, Program
from plures.local import epochs, steps
from plures.methods import fedalt, fedavg, fedper, fedsim, pflego
from plures.stores.memory import MemoryStore
from tests.core.helpers import class_clients, class_program, copied, network, rounds_of, same_bits, visit_to

CLASSES = (3, 2, 5, 3)
CLIENTS = class_clients((6, 4, 7, 5), classes=CLASSES)


def per_classes(of, *, seed=1, make=None):
    """Every client has a head of its own number of classes on a common body."""
    networks = NetworkPerClient(make=make or (lambda key: network(classes=key)), key_of=lambda client: CLASSES[client])
    return Program(of, networks, loss=F.cross_entropy, seed=seed)


METHODS = {
    "fedper": lambda: fedper(budget=steps(2)),
    "fedsim": lambda: fedsim(budget=epochs(1, batch=3)),
    "fedalt": lambda: fedalt(budget=epochs(1, batch=3)),
    "pflego": lambda: pflego(tau=3),
}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_heads_of_different_sizes_share_a_body(name):
    program, store = per_classes(METHODS[name]()), MemoryStore()
    done = rounds_of(program, CLIENTS, 2, store=store)
    assert {n: tuple(v.shape) for n, v in done[-1].server.shared.items()} == {"0.weight": (4, 5), "0.bias": (4,)}
    assert not same_bits(done[-1].server.shared, start(program).shared)
    for client, classes in enumerate(CLASSES):
        assert {n: tuple(v.shape) for n, v in store.get(client).items()} == {
            "3.weight": (classes, 4),
            "3.bias": (classes,),
        }
    # Two rounds, four clients, the body's 24 values of 8 bytes.
    assert sum(one.report.bytes_up for one in done) == 2 * 4 * 24 * 8


def test_clients_of_one_architecture_are_treated_as_if_all_had_it():
    program = per_classes(METHODS["fedsim"]())
    alike = class_program(METHODS["fedsim"](), network(classes=3))
    results = [run_client(of.method, of.binding(3), visit_to(of, CLIENTS, 3)).trained for of in (program, alike)]
    assert same_bits(*results)


def test_clients_with_the_same_key_have_the_same_network_but_starts_of_their_own():
    program = per_classes(METHODS["fedper"]())
    assert program.binding(0) is program.binding(3)
    assert program.binding(0) is not program.binding(1)
    assert not same_bits(program.initial_state(0), program.initial_state(3))


class WithHead(nn.Module):
    """A common body and any head."""

    def __init__(self, head):
        super().__init__()
        self.body = nn.Linear(5, 4)
        self.head = head

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(inputs)))


class Convolution(nn.Module):
    """Slides over the features, with running statistics of its own."""

    def __init__(self):
        super().__init__()
        self.slide = nn.Conv1d(1, 2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.out = nn.Linear(6, 3)

    def forward(self, features):
        return self.out(self.norm(self.slide(features[:, None])).flatten(1))


HEADS = {
    "linear": lambda: nn.Linear(4, 3),
    "deep": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)),
    "convolution": Convolution,
}


def make_with_head(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return WithHead(HEADS[kind]()).double()


def test_personal_modules_may_have_nothing_in_common():
    kinds = ["linear", "deep", "convolution", "deep"]
    networks = NetworkPerClient(make=make_with_head, key_of=lambda client: kinds[client])
    of = fedsim(personal=["head.*"], budget=epochs(2, batch=3), buffers="personal")
    program, store = Program(of, networks, loss=F.cross_entropy, seed=1), MemoryStore()
    clients = class_clients((6, 4, 7, 5))
    done = rounds_of(program, clients, 3, store=store)
    assert done[-1].server.shared.keys() == {"body.weight", "body.bias"}
    for client, kind in enumerate(kinds):
        kept = store.get(client)
        assert kept.keys() == {f"head.{name}" for name in HEADS[kind]().state_dict()}
    assert done[-1].report.losses["shared+personal"] < done[0].report.losses["shared+personal"]


def test_the_shared_part_is_that_of_the_first_clients_network():
    def make(key):
        return network(classes=key, seed=key)

    program = per_classes(METHODS["fedper"](), make=make)
    expected = dict(network(classes=3, seed=3)[0].named_parameters(prefix="0"))
    assert all(torch.equal(start(program).shared[name], value) for name, value in expected.items())
    received = visit_to(program, CLIENTS, 2).received
    assert same_bits(received, start(program).shared), "not the values that client 2's own network began with"


def counting():
    built = Counter()

    def make(key):
        built[key] += 1
        return network(classes=2 + key % 3, seed=key)

    return make, built


def test_no_more_than_so_many_networks_are_kept():
    make, built = counting()
    program = Program(
        METHODS["fedper"](), NetworkPerClient(make=make, key_of=lambda client: client), loss=F.cross_entropy, seed=1
    )
    for client in range(MODULES_KEPT):
        program.binding(client)
    program.binding(0)
    program.binding(MODULES_KEPT)
    assert max(built.values()) == 1, "one more than fits puts out the one not asked for the longest: client 1"
    program.binding(0)
    assert built[0] == 1
    program.binding(1)
    assert built[1] == 2


def test_networks_that_were_put_out_and_built_again_change_no_bits(monkeypatch):
    runs = []
    for kept in (64, 1):
        monkeypatch.setattr(program_module, "MODULES_KEPT", kept)
        make, built = counting()
        networks = NetworkPerClient(make=make, key_of=lambda client: client)
        program, store = Program(METHODS["fedalt"](), networks, loss=F.cross_entropy, seed=1), MemoryStore()
        clients = class_clients((4, 4, 4), classes=2)
        shared = rounds_of(program, clients, 2, store=store)[-1].server.shared
        runs.append((shared, copied(store.get(1)), max(built.values())))
    assert same_bits(runs[0][0], runs[1][0])
    assert same_bits(runs[0][1], runs[1][1])
    assert (runs[0][2], runs[1][2] > 1) == (1, True)


def test_networks_drawn_at_random_are_the_same_whenever_they_are_built():
    def make(key):
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, key)).double()

    first = per_classes(fedalt(), make=make)
    torch.manual_seed(1)
    there = [copied(first.initial_state(client)) for client in (0, 1, 2)]
    second = per_classes(fedalt(), make=make)
    back = {client: copied(second.initial_state(client)) for client in (2, 1, 0)}
    assert all(same_bits(state, back[client]) for client, state in enumerate(there))


def test_extensions_drawn_at_random_are_the_same_whenever_they_are_made():
    def with_gate(network):
        return {"gate": {"gate.weight": torch.randn(3)}}

    states = [class_program(replace(fedalt(), extend=with_gate)).initial_state(0) for _ in range(2)]
    assert same_bits(*states)


def test_a_method_without_a_personal_part_needs_one_architecture_and_works_with_equal_ones():
    networks = NetworkPerClient(make=lambda key: network(), key_of=lambda client: client)
    program = Program(fedavg(budget=steps(1)), networks, loss=F.cross_entropy, seed=1)
    alike = class_program(fedavg(budget=steps(1)))
    clients = class_clients((3, 4))
    assert same_bits(rounds_of(program, clients)[-1].server.shared, rounds_of(alike, clients)[-1].server.shared)


def test_architectures_hold_in_common_what_travels():
    """So that sixty heads of different sizes do not hold sixty bodies."""
    program = per_classes(METHODS["fedper"]())
    first, other = program.binding(0), program.binding(1)
    assert first.values["0.weight"].data_ptr() == other.values["0.weight"].data_ptr()
    assert first.values["3.weight"].shape != other.values["3.weight"].shape
