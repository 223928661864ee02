"""Keyed randomness: draws named by what they are for, whatever was drawn before."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plures.core.client import run_client
from plures.core.seeds import derive_seed, generator, global_draws
from plures.local import delta, epochs, steps
from tests.core.helpers import class_clients, class_program, method, network, phase, rounds_of, same_bits, visit_to

words = st.text("abcdefgh:. 0123456789", max_size=6)
keys = st.tuples(st.integers(0, 2**62), words, st.lists(st.integers(-5, 10**9) | words, max_size=3).map(tuple))


def draw(seed, purpose, *more):
    return torch.rand(3, generator=generator(seed, purpose, *more))


@given(keys, keys)
@settings(deadline=None, max_examples=200)
def test_distinct_keys_have_distinct_seeds_and_equal_keys_equal_ones(left, right):
    of_left, of_right = (derive_seed(seed, purpose, *more) for seed, purpose, more in (left, right))
    assert (of_left == of_right) == (left == right)
    assert 0 <= of_left < 2**63


def test_keys_are_not_run_together():
    # As plain text, each of these would be "1 a 1 2" or "1 a 12".
    seeds = {derive_seed(1, "a", 12), derive_seed(1, "a", 1, 2), derive_seed(1, "a", "1", 2), derive_seed(1, "a1", 2)}
    assert len(seeds) == 4
    assert derive_seed(1, "1a") != derive_seed(11, "a")
    assert derive_seed(1, "a", "b", "c") != derive_seed(1, "a", "bstr:c")


def test_ten_thousand_rounds_and_clients_have_ten_thousand_seeds():
    assert len({derive_seed(0, "batches", round, client) for round in range(100) for client in range(100)}) == 10_000


def test_a_draw_does_not_depend_on_the_draws_before_it():
    alone = draw(1, "batches", 3, 7)
    for client in range(7):
        draw(1, "batches", 3, client)
    torch.rand(5)
    assert torch.equal(draw(1, "batches", 3, 7), alone)


def test_a_generator_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    draw(1, "batches", 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_global_draws_are_keyed_and_give_the_global_state_back():
    before = torch.get_rng_state()
    with global_draws(1, "network", 2, 3):
        first = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(9)
    with global_draws(1, "network", 2, 3):
        assert torch.equal(torch.rand(4), first)
    with global_draws(1, "network", 3, 2):
        assert not torch.equal(torch.rand(4), first)


def test_global_draws_give_the_state_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), global_draws(1, "network"):
        torch.rand(2) @ torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def dropout_program(budget=epochs(2, batch=2)):  # noqa: B008 - a frozen value
    training = phase(("shared", "personal"), budget=budget)
    return class_program(method(training, personal=("3.*",), upload=delta), network(hidden=8, dropout=0.5))


@given(st.permutations(range(4)))
@settings(deadline=None, max_examples=10)
def test_a_network_with_dropout_gives_the_same_bits_in_any_order_of_clients(order):
    clients = class_clients((3, 5, 4, 6))
    program = dropout_program()
    in_order = {
        client: run_client(program.method, program.binding(client), visit_to(program, clients, client))
        for client in range(4)
    }
    for client in order:
        torch.rand(client + 1)
        again = run_client(program.method, program.binding(client), visit_to(program, clients, client))
        assert same_bits(again.trained, in_order[client].trained)


def test_dropout_differs_between_clients_with_equal_data_and_between_rounds():
    clients = class_clients((4,))
    clients = type(clients)(batches=clients.batches * 2)
    program = dropout_program(steps(1))

    def trained(client, round):
        visit = visit_to(program, clients, client, round=round)
        return run_client(program.method, program.binding(client), visit).trained

    first = trained(0, 1)
    assert not same_bits(first, trained(1, 1))
    assert not same_bits(first, trained(0, 2))


def test_a_run_does_not_disturb_the_global_generator():
    before = torch.get_rng_state()
    rounds_of(dropout_program(), class_clients((3, 4)), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_does_not_depend_on_the_global_generator():
    runs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        runs.append(rounds_of(dropout_program(), class_clients((3, 4)), 2)[-1])
    assert same_bits(runs[0].server.shared, runs[1].server.shared)
    assert runs[0].report == runs[1].report
