"""Whatever a user gives as the model, as networks of clients."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.local import steps
from plures.methods import fedalt, fedavg
from plures.models import as_networks, mlp, per_client, with_own_heads
from tests.core.helpers import class_clients, rounds_of, same_bits


def program(model, of=None, seed=1):
    return Program(of or fedavg(budget=steps(1)), as_networks(model), loss=F.cross_entropy, seed=seed)


def make():
    return mlp(shape=(5,), hidden=(4,), classes=3)


def test_a_module_is_everybodys_network():
    module = make()
    networks = as_networks(module)
    assert isinstance(networks, OneNetwork)
    assert networks.build(networks.key(7)) is module


def test_networks_are_taken_as_they_are():
    networks = per_client(lambda client: make())
    assert as_networks(networks) is networks


def test_a_function_without_arguments_makes_one_network_by_the_seed_of_the_run():
    shared = [program(make, seed=seed).initial_shared() for seed in (1, 1, 2)]
    assert same_bits(shared[0], shared[1])
    assert not same_bits(shared[0], shared[2])
    of = program(make)
    assert of.binding(0) is of.binding(9)


def test_arguments_with_defaults_are_not_asked_for():
    assert program(mlp).initial_shared()["head.weight"].shape == (10, 64)


def test_making_a_network_does_not_disturb_the_global_generator():
    before = torch.get_rng_state()
    program(make).binding(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_function_of_the_client_makes_each_its_own():
    of = program(lambda client: mlp(shape=(5,), hidden=(4,), classes=2 + client), fedalt(budget=steps(1)))
    assert [len(of.initial_state(client)["head.bias"]) for client in range(4)] == [2, 3, 4, 5]


def test_bodies_of_networks_that_differ_in_their_heads_begin_alike():
    classes = (2, 3, 5)
    networks = with_own_heads(lambda count: mlp(shape=(5,), hidden=(4,), classes=count), lambda client: classes[client])
    of = Program(fedalt(budget=steps(1)), networks, loss=F.cross_entropy, seed=1)
    bodies = [of.binding(client).task.parameters["body.1.weight"] for client in range(3)]
    assert all(torch.equal(body, bodies[0]) for body in bodies)
    done = rounds_of(of, class_clients((4, 4, 6), classes=classes, dtype=torch.float32))[-1]
    assert done.server.shared.keys() == {"body.1.weight", "body.1.bias"}


@pytest.mark.parametrize("wrong", [3, None, [nn.Linear(2, 2)]])
def test_anything_else_is_an_error(wrong):
    with pytest.raises(InvalidModel, match="torch module or a function"):
        as_networks(wrong)
