"""Split input: who reads what, whose the parameters are, and what travels."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from plures.core.errors import InvalidModel
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.local import steps
from plures.methods import fedalt
from plures.models.split_input import split_input
from plures.parts import personal_branch
from plures.stores.memory import MemoryStore
from tests.core.helpers import class_clients, rounds_of
from tests.parts.networks import seeded


def model(chunk=2, common=3, own=2):
    """Five features: `common` for a shared layer, `own` for a personal one; four and two features go on."""
    layers = [seeded(nn.Linear, *sizes) for sizes in ((common, 4), (own, 2), (6, 3))]
    return split_input(*layers[:2], nn.Sequential(nn.Tanh(), layers[2]), chunk=chunk).double()


INPUTS = torch.arange(10, dtype=torch.float64).reshape(2, 5)


@pytest.mark.parametrize(
    ("chunk", "common", "own"),
    [
        (2, [0, 1, 2], [3, 4]),
        ([3, 4], [0, 1, 2], [3, 4]),
        (range(3, 5), [0, 1, 2], [3, 4]),
        ([4, 0], [1, 2, 3], [4, 0]),
        (1, [0, 1, 2, 3], [4]),
        ([1], [0, 2, 3, 4], [1]),
    ],
)
def test_each_network_reads_its_chunk_and_the_outputs_go_on_side_by_side(chunk, common, own):
    network = model(chunk, len(common), len(own))
    hidden = torch.cat([network.shared(INPUTS[:, common]), network.personal(INPUTS[:, own])], dim=1)
    assert torch.equal(network(INPUTS), network.top(hidden))


def test_the_personal_chunk_does_not_reach_the_shared_network():
    network = model()
    changed = INPUTS.clone()
    changed[:, 3:] = 0.0
    seen = []
    network.shared.register_forward_hook(lambda layer, inputs, output: seen.append(output))
    network(INPUTS), network(changed)
    assert torch.equal(*seen)
    assert not torch.equal(network(INPUTS), network(changed))


def test_chunks_may_be_channels_of_pictures():
    network = split_input(
        nn.Conv2d(2, 4, 1), nn.Conv2d(1, 3, 1), nn.Sequential(nn.Flatten(), nn.Linear(63, 2)), chunk=1
    )
    assert network(torch.randn(5, 3, 3, 3)).shape == (5, 2)


def test_only_the_shared_network_and_the_top_travel():
    network, store = model(), MemoryStore()
    method = fedalt(personal=personal_branch(), lr=0.2, budget=steps(3))
    program = Program(method, OneNetwork(module=network), loss=F.cross_entropy, seed=1)
    done = rounds_of(program, class_clients((6, 6)), 3, store=store)
    assert done[-1].server.shared.keys() == {"shared.weight", "shared.bias", "top.1.weight", "top.1.bias"}
    states = [store.get(client) for client in range(2)]
    assert all(state.keys() == {"personal.weight", "personal.bias"} for state in states)
    assert not torch.equal(states[0]["personal.weight"], states[1]["personal.weight"])
    assert done[-1].report.losses["shared"] < done[0].report.losses["personal"]


def test_clients_can_be_mapped_at_once():
    network = model([4, 0])
    params = {name: torch.stack([value.detach()] * 2) for name, value in network.named_parameters()}
    mapped = vmap(lambda one, x: functional_call(network, one, (x,)))(params, torch.stack([INPUTS, -INPUTS]))
    torch.testing.assert_close(mapped[1], network(-INPUTS), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("chunk", "say"),
    [
        (0, "at least 1 feature, not 0"),
        (-2, "at least 1 feature, not -2"),
        ([], "different places from 0 on"),
        ([1, 1], "different places from 0 on"),
        ([-1], "different places from 0 on"),
    ],
)
def test_a_chunk_that_cannot_be_is_an_error(chunk, say):
    with pytest.raises(InvalidModel, match=say):
        model(chunk)


@pytest.mark.parametrize("chunk", [5, 6, [5], [0, 1, 2, 3, 4]])
def test_an_input_without_the_chunk_and_a_rest_is_an_error(chunk):
    with pytest.raises(InvalidModel, match="An input of 5 features cannot be cut"):
        model(chunk)(INPUTS)


def test_one_network_in_both_places_is_an_error():
    layer = nn.Linear(2, 2)
    with pytest.raises(InvalidModel, match="parameters in common"):
        split_input(layer, layer, nn.Linear(4, 2), chunk=2)
