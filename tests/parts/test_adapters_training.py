"""Networks with adapters in federated training: personal, shared or both; gradients, transformations, rounds."""

from dataclasses import replace

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from plures.core.client import run_phases
from plures.core.networks import OneNetwork
from plures.core.problem import descend
from plures.core.program import Program
from plures.local import steps
from plures.methods import fedalt, fedsim, pflego
from plures.models import as_networks
from plures.parts import adapters, adapters_and_norms, conv_adapters, head, lora
from plures.stores.memory import MemoryStore
from tests.core.helpers import rounds_of, same_bits, visit_to
from tests.parts.networks import INSERT, PLAIN, adapted, clients, examples, residual, seeded, weights

kinds = pytest.mark.parametrize("kind", sorted(INSERT))
NUM_CLIENTS = 3


def program(method, module):
    return Program(method, OneNetwork(module=module), loss=F.cross_entropy, seed=1)


def loss_of(module, params, batch):
    return F.cross_entropy(functional_call(module, params, (batch.inputs,)), batch.targets)


class Run:
    """Some rounds of a method on a network with adapters."""

    def __init__(self, method, kind, module, rounds=2):
        self.program, self.population, store = program(method, module), clients(kind, NUM_CLIENTS), MemoryStore()
        self.rounds = rounds_of(self.program, self.population, rounds, store=store)
        self.shared = self.rounds[-1].server.shared
        self.states = [store.get(client) or {} for client in range(NUM_CLIENTS)]


# Whose they are


@kinds
def test_adapters_may_be_personal_and_then_only_the_network_itself_is_sent(kind):
    module = adapted(kind)
    run = Run(fedsim(personal=adapters(), lr=0.1, budget=steps(2)), kind, module)
    assert run.shared.keys() == weights(PLAIN[kind]()).keys()
    for state in run.states:
        assert state.keys() == adapters()(module)
    assert not same_bits(run.states[0], run.states[1])


@kinds
def test_adapters_may_be_shared_and_then_all_clients_have_the_same(kind):
    module = adapted(kind)
    run = Run(fedsim(personal=head() - adapters(), lr=0.1, budget=steps(2)), kind, module)
    assert adapters()(module) <= run.shared.keys()
    assert all(state.keys() == {"head.weight", "head.bias"} for state in run.states)
    moved = [not torch.equal(run.shared[name], weights(module)[name]) for name in adapters()(module)]
    assert any(moved)


@kinds
def test_adapters_may_be_both_under_two_names(kind):
    module = seeded(INSERT[kind], adapted(kind, name="shared_adapter"), seed=2)
    common, own = adapters("shared_adapter")(module), adapters()(module)
    assert len(common) == len(own) > 0
    run = Run(fedsim(personal=adapters(), lr=0.1, budget=steps(2)), kind, module)
    assert run.shared.keys() == weights(PLAIN[kind]()).keys() | common
    assert all(state.keys() == own for state in run.states)
    assert any(not torch.equal(run.shared[name], weights(module)[name]) for name in common)
    assert any(not torch.equal(run.states[0][name], weights(module)[name]) for name in own)


def test_a_frozen_network_is_never_sent_and_its_adapters_can_be_shared():
    module = conv_adapters(residual().requires_grad_(False))
    run = Run(fedsim(personal=head() | adapters(), lr=0.1, budget=steps(1)), "conv", module, rounds=1)
    assert run.shared == {}
    shared = Run(fedsim(personal=(), lr=0.1, budget=steps(1)), "conv", module, rounds=1).shared
    assert shared.keys() == adapters()(module)


@kinds
def test_all_clients_start_from_one_draw_that_follows_the_seed(kind):
    def make():
        return INSERT[kind](PLAIN[kind]())

    def first_states(seed):
        of = Program(fedsim(personal=adapters()), as_networks(make), loss=F.cross_entropy, seed=seed)
        return [of.initial_state(client) for client in range(2)]

    assert same_bits(*first_states(1))
    assert same_bits(first_states(1)[0], first_states(1)[1])
    assert not same_bits(first_states(1)[0], first_states(2)[0])


# Gradients


@kinds
def test_a_phase_that_trains_adapters_moves_them_and_nothing_else(kind):
    module = adapted(kind)
    of = program(fedalt(personal=adapters(), lr=0.1, budget=steps(2)), module)
    visit = visit_to(of, clients(kind))
    before = visit.received | visit.state
    after = run_phases(of.method.local[:1], of.binding(0), visit, before)[0]
    chosen = adapters()(module)
    for name, value in before.items():
        assert torch.equal(after[name], value) == (name not in chosen), name


@kinds
@pytest.mark.parametrize("training", [False, True])
def test_gradients_by_transformation_are_those_of_autograd(kind, training):
    module, batch = adapted(kind).train(training), examples(kind)
    loss_of(module, dict(module.named_parameters()), batch).backward()
    params = weights(module)
    own = {name: params[name] for name in adapters()(module)}
    found = grad(lambda part: loss_of(module, params | part, batch))(own)
    for name, value in found.items():
        torch.testing.assert_close(value, module.get_parameter(name).grad, rtol=1e-10, atol=1e-14)


@kinds
def test_adapters_of_many_clients_can_be_mapped_at_once(kind):
    module = adapted(kind)
    params, batches = weights(module), [examples(kind, seed=seed) for seed in range(NUM_CLIENTS)]
    states = [
        {name: params[name] + 0.1 * client for name in sorted(adapters()(module))} for client in range(NUM_CLIENTS)
    ]

    def gradients(state, inputs, targets):
        return grad(lambda part: loss_of(module, params | part, type(batches[0])(inputs, targets)))(state)

    stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    mapped = vmap(gradients)(stacked, *(torch.stack(parts) for parts in zip(*batches, strict=True)))
    for client, (state, batch) in enumerate(zip(states, batches, strict=True)):
        for name, value in gradients(state, *batch).items():
            torch.testing.assert_close(mapped[name][client], value, rtol=1e-10, atol=1e-13)


# Rounds


@pytest.mark.parametrize("selector", [adapters, adapters_and_norms])
@kinds
def test_three_rounds_of_fedalt_move_adapters_and_lower_the_loss(kind, selector):
    module = adapted(kind)
    method = fedalt(personal=selector(), lr=0.05, budget=steps(10))
    run = Run(method, kind, module, rounds=3)

    def mean_loss(shared, states):
        batches = run.population.batches
        params = [shared | state for state in states]
        return sum(loss_of(module, p, b).item() for p, b in zip(params, batches, strict=True)) / NUM_CLIENTS

    initial = [run.program.initial_state(client) for client in range(NUM_CLIENTS)]
    before = mean_loss(run.program.initial_shared(), initial)
    assert mean_loss(run.shared, run.states) < 0.95 * before
    for client, state in enumerate(run.states):
        assert state.keys() == selector()(module)
        assert all(not torch.equal(value, initial[client][name]) for name, value in state.items())


def test_lora_on_the_head_alone_leaves_the_head_itself_shared():
    module = seeded(lora, residual(), on="head", rank=1)
    run = Run(fedsim(personal=adapters(), lr=0.1, budget=steps(2)), "conv", module)
    assert {"head.weight", "head.bias"} <= run.shared.keys()
    assert all(state.keys() == {"head.adapter.a", "head.adapter.b"} for state in run.states)


def test_a_head_with_an_adapter_is_not_taken_for_a_linear_layer_alone():
    # PFLEGO computes the features before a linear head once; with the adapter left out, its loss would be another.
    module = seeded(lora, residual(), on="head", rank=1)
    module.head.adapter.b.data.fill_(1.0)
    of = program(pflego(), module)
    visit, phase = visit_to(of, clients("conv")), of.method.local[0]
    params = visit.received | visit.state
    fast = run_phases((phase,), of.binding(0), visit, params)[0]
    plain = run_phases((replace(phase, solver=descend),), of.binding(0), visit, params)[0]
    assert same_bits(fast, plain)
