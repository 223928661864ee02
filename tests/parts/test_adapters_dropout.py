"""Dropout on the input of a chosen layer (Appendix C.2 of FedAlt's paper)."""

import copy
import pickle

import pytest
import torch
from torch.func import functional_call, vmap
from torch.nn import functional as F

from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.local import steps
from plures.methods import fedsim
from plures.parts import head, input_dropout
from tests.core.helpers import class_clients, network, rounds_of, same_bits
from tests.parts.networks import residual, seeded, weights

INPUTS = torch.ones(200, 5, dtype=torch.float64)


def dropped(rate=0.3, on="3"):
    """The network of two layers, "0" and "3"."""
    return input_dropout(network(), on=on, rate=rate)


def test_the_input_of_the_layer_is_dropped_and_scaled_as_by_a_dropout_layer():
    module = dropped(0.3)
    hidden = torch.tanh(module[0](INPUTS))
    expected = F.linear(seeded(F.dropout, hidden, 0.3, seed=5), module[3].weight, module[3].bias)
    assert torch.equal(seeded(module, INPUTS, seed=5), expected)


def test_a_share_of_the_inputs_is_dropped():
    """1,000 inputs of value 1: zero with probability 0.3, or else 1 / 0.7; 5 deviations are 5 * sqrt(0.21 / 1000)."""
    module, seen = dropped(0.3, on="0"), []
    module[0].register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    seeded(module, INPUTS)
    values = seen[0].unique().tolist()
    assert values == pytest.approx([0.0, 1 / 0.7], rel=1e-12)
    assert (seen[0] == 0).double().mean().item() == pytest.approx(0.3, abs=0.073)


def test_nothing_is_dropped_in_evaluation_mode_or_at_rate_zero():
    plain = network().eval()(INPUTS)
    assert torch.equal(dropped().eval()(INPUTS), plain)
    before = torch.get_rng_state()
    assert torch.equal(dropped(rate=0.0)(INPUTS), plain)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_are_those_of_the_global_generator():
    module = dropped()
    assert torch.equal(seeded(module, INPUTS, seed=1), seeded(module, INPUTS, seed=1))
    assert not torch.equal(seeded(module, INPUTS, seed=1), seeded(module, INPUTS, seed=2))


def test_the_given_network_and_all_names_stay_as_they_were():
    plain = network()
    module = input_dropout(plain, on="3", rate=0.5)
    assert same_bits(weights(module), weights(plain))
    assert module.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(plain(INPUTS), network()(INPUTS))


def test_copies_and_pickles_draw_as_the_original_does():
    module = dropped()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(seeded(other, INPUTS, seed=3), seeded(module, INPUTS, seed=3))


def test_blocks_may_have_it_and_clients_can_be_mapped():
    module = input_dropout(residual(), on="blocks.1", rate=0.5)
    inputs, params = torch.randn(3, 4, 1, 5, 5, dtype=torch.float64), weights(module)

    def output(one):
        return functional_call(module, params, (one,))

    assert vmap(output, randomness="different")(inputs).shape == (3, 4, 3)
    module.eval()
    torch.testing.assert_close(vmap(output)(inputs)[1], residual()(inputs[1]), rtol=1e-12, atol=1e-12)


def test_a_run_with_personal_dropout_is_the_same_again_and_differs_from_one_without():
    def final(module):
        of = Program(
            fedsim(personal=head(), lr=0.1, budget=steps(3)), OneNetwork(module=module), loss=F.cross_entropy, seed=1
        )
        return rounds_of(of, class_clients((6, 6)), 2)[-1].server.shared

    assert same_bits(final(dropped()), final(dropped()))
    assert not same_bits(final(dropped()), final(network()))
