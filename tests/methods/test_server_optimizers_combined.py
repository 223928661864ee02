"""Every method whose clients send how far they moved, with every server optimiser (METHODS 2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import signature

import pytest
import torch

from plures.core.context import Server
from plures.core.loop import train
from plures.core.method import Method, Optimizer
from plures.core.program import Program
from plures.core.types import SHARED, SHARED_BUFFERS, Params, travels
from plures.engines.sequential import Sequential
from plures.local import adam, delta, exponential, sgd
from plures.methods import METHODS
from plures.participation import all_clients
from plures.server import SERVER_OPTIMIZERS, fedadagrad, fedadam, fedyogi
from plures.stores.memory import MemoryStore
from tests.conformance.table import ROWS, Row, has_option
from tests.helpers.methods import Played, assert_near, assert_same_bits, minus, network, part_of, play, same_bits

AVERAGE = sgd(1.0)
RATE = exponential(0.05, 0.5)
"""0.05 in round 1 and 0.025 in round 2, so that the rate of a wrong round shows."""
OTHERS = {"adam": adam(RATE), "fedadam": fedadam(RATE), "fedyogi": fedyogi(RATE), "fedadagrad": fedadagrad(RATE)}
FIRST_STEPS = {
    "adam": lambda g: g / (g.abs() + 1e-8),
    "fedadam": lambda g: 0.1 * g / (0.1 * g.abs() + 1e-3),
    "fedyogi": lambda g: 0.1 * g / (0.1 * g.abs() + 1e-3),
    "fedadagrad": lambda g: g / (g.abs() + 1e-3),
}
"""For a rate of 1; see the test that uses them."""


def make(row: Row, **server: Optimizer) -> Method:
    """The row's method with a server, or with its own default whatever the row says."""
    return METHODS[row.method].make(**{key: row.options[key] for key in row.options if key != "server"}, **server)


def moves_by_changes(method: Method) -> bool:
    """Whether the server moves by how far clients moved; a round of its own has its own step, and tests of its own."""
    return method.upload is delta and method.run_round is None


def that_send_changes() -> list[Row]:
    """For each method with an option `server`, its first row in which clients send how far they moved."""
    found: dict[str, Row] = {}
    for row in ROWS:
        if has_option(row.method, "server") and moves_by_changes(make(row)):
            found.setdefault(row.method, row)
    return list(found.values())


FOUND = that_send_changes()
methods = pytest.mark.parametrize("row", FOUND, ids=[row.method for row in FOUND])
others = pytest.mark.parametrize("name", OTHERS)


def played(row: Row, **server: Optimizer) -> Played:
    return play(make(row, **server), 2, population=row.population(), module=network(row.network))


@cache
def averaged(row: Row) -> Played:
    return played(row, server=AVERAGE)


@cache
def optimised(row: Row, name: str) -> Played:
    return played(row, server=OTHERS[name])


def rule_of(method: Method) -> Optimizer:
    """The optimiser of the shared part."""
    return method.server[SHARED] if isinstance(method.server, Mapping) else method.server


def averages_by_default(row: Row) -> bool:
    """The option says so, or leaves it to the method and that does so."""
    default = signature(METHODS[row.method].make).parameters["server"].default
    return default == 1.0 or (default is None and rule_of(make(row)) == AVERAGE)


def names_moved(run: Played) -> list[str]:
    """What the `server` option moves: all that travels, but for statistics and parts with a rule of their own."""
    parts, server = run.program.binding(0).parts, run.program.method.server
    accepted = [SHARED] if isinstance(server, Mapping) else {part for part in parts.values() if travels(part)}
    return [name for name, part in parts.items() if part in accepted and part != SHARED_BUFFERS]


def pseudo_gradient(row: Row, run: Played, round: int) -> Params:
    """w - w' of a round by plain averaging, from what server and clients of the run had before that round."""
    program = Program(make(row, server=AVERAGE), run.program.networks, loss=run.program.loss, seed=run.program.seed)
    before, store = run.servers[round - 1], MemoryStore()
    if run.program.method.stateful:
        store.commit(round - 1, run.states[round - 1])
    server = Server(round=round - 1, shared=before.shared, optimizer={})
    surroundings = {"sampler": all_clients(), "engine": Sequential(), "store": store, "server": server}
    (committed,) = train(program, run.population, rounds=round, **surroundings)
    names = names_moved(run)
    return minus(part_of(before.shared, names), part_of(committed.server.shared, names))


def test_there_are_methods_and_none_is_left_out():
    """Whether clients send changes or gradients may depend on a variant; what the defaults send is a least."""
    with_server = {name: METHODS[name].make() for name in METHODS if has_option(name, "server")}
    by_default = {name for name, method in with_server.items() if moves_by_changes(method)}
    assert {name for name, method in with_server.items() if method.run_round is not None} == {"pfedhn"}
    assert by_default <= {row.method for row in FOUND}
    assert {"fedavg", "fedsim", "fedalt", "pfedme", "apfl", "scaffold", "per_fedavg", "fedbn"} <= by_default
    assert sum(averages_by_default(row) for row in FOUND) > len(FOUND) / 2
    assert set(SERVER_OPTIMIZERS) < set(OTHERS) == set(FIRST_STEPS)


@pytest.mark.parametrize("row", [row for row in FOUND if averages_by_default(row)], ids=lambda row: row.method)
def test_sgd_at_rate_one_is_the_default(row):
    run, default = averaged(row), played(row)
    for one, other in zip(run.servers, default.servers, strict=True):
        assert_same_bits(one.shared, other.shared)
    for one, other in zip(run.states, default.states, strict=True):
        for client in one:
            assert_same_bits(one[client], other[client])
    assert run.reports == default.reports


@methods
@others
def test_the_first_step_is_the_optimisers_own_on_what_averaging_would_have_moved(row, name):
    """From g = w0 - w1 of averaging; the moments start at 0.

    Adam's corrected moments are g and g^2: a step of lr g / (|g| + 1e-8). FedAdam's are 0.1 g and 0.01 g^2, and so are
    FedYogi's, whose second moment rises by 0.01 g^2 from 0: lr 0.1 g / (0.1 |g| + 1e-3). FedAdagrad's are g and g^2:
    lr g / (|g| + 1e-3).
    """
    run, average, rule = optimised(row, name), averaged(row), OTHERS[name]
    names = names_moved(run)
    start, moved = part_of(run.servers[0].shared, names), part_of(run.servers[1].shared, names)
    grads = minus(start, part_of(average.servers[1].shared, names))
    assert grads
    assert all(value.any() for value in grads.values())
    assert_near(moved, rule.update(grads, rule.init(start), start, 0.05)[0])
    assert_near(moved, {one: start[one] - 0.05 * FIRST_STEPS[name](grad) for one, grad in grads.items()})


@methods
@others
def test_in_the_first_round_the_clients_and_all_else_are_as_with_averaging(row, name):
    """The server's step comes after the clients' work; running statistics and further parts have rules of their own."""
    run, average = optimised(row, name), averaged(row)
    for client in range(run.population.num_clients):
        assert_same_bits(run.states[1][client], average.states[1][client])
    assert run.reports[0] == average.reports[0]
    rest = set(run.shared) - set(names_moved(run))
    assert_same_bits(part_of(run.servers[1].shared, rest), part_of(average.servers[1].shared, rest))
    for one in names_moved(run):
        assert not torch.equal(run.servers[1].shared[one], average.servers[1].shared[one])


@methods
@others
def test_the_second_round_goes_on_from_the_optimisers_state(row, name):
    """Its update twice over, each on what averaging would have moved from where the run then was."""
    run, rule = optimised(row, name), OTHERS[name]
    moved = part_of(run.servers[0].shared, names_moved(run))
    state = rule.init(moved)
    for round, rate in [(1, 0.05), (2, 0.025)]:
        grads = pseudo_gradient(row, run, round)
        forgetful, _ = rule.update(grads, rule.init(moved), moved, rate)
        moved, state = rule.update(grads, state, moved, rate)
        assert_near(part_of(run.servers[round].shared, moved), moved)
    assert not same_bits(forgetful, moved)
    assert all(not torch.allclose(forgetful[one], moved[one], rtol=1e-6, atol=0.0) for one in moved)


@methods
@others
def test_where_nothing_is_learnt_nothing_moves(row, name):
    """Gradients of zero leave moments of zero; running statistics follow the data at any rate."""
    still = {key: value for key, value in row.entry.still.items() if key != "server"}
    method = METHODS[row.method].make(**{**row.options, **still, "server": OTHERS[name]})
    run = play(method, 2, population=row.population(), module=network(row.network))
    names = names_moved(run)
    assert_same_bits(part_of(run.shared, names), part_of(run.servers[0].shared, names))
