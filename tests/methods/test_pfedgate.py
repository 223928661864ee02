"""pFedGate: the paper's rounds, its sums by index, what travels, and its equivalences."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.func import grad_and_value

from plures.core.client import run_client
from plures.core.sums import empty_sum
from plures.core.types import SHARED
from plures.core.wire import Parcel
from plures.local import epochs, sgd, steps
from plures.methods import fedavg, pfedgate
from plures.participation import uniform
from tests.helpers.methods import Given, assert_near, assert_same_bits, equal_bits, play
from tests.oracles import pfedgate as oracle
from tests.oracles.common import batches_of
from tests.oracles.settings import ROUNDS, settings

NETWORK = "network."
SIZE = 27
"""Values of the tests' network."""
CAPACITIES = {0: 0.5, 1: 0.7, 2: 1.0, 3: 0.4, 4: 0.6}
OPTIONS = {"least": 0.3, "lr": 0.4, "gate_lr": 0.6, "budget": epochs(2, batch=3)}


def tiny(rounds=3, sampler=None, *, capacity_of=None, **options):
    return play(pfedgate(**OPTIONS | options), rounds, sampler, capacity_of=capacity_of)


def inner(params):
    """The network's own parameters by the names that it has itself."""
    return {name.removeprefix(NETWORK): value for name, value in params.items() if name.startswith(NETWORK)}


def gate_of(state):
    return {name: value for name, value in state.items() if name.startswith("gate.")}


def assert_as_the_oracle(run, budget, *, s, **options):
    """Gates too, but for biases before a batch norm, whose gradient is zero but for roundings."""
    clients = run.population.batches
    gates = {client: gate_of(state) for client, state in run.states[0].items()}
    theta, wanted = oracle.pfedgate(
        clients, inner(run.servers[0].shared), gates, run.cohorts, batches_of(clients, budget), s=s, **options
    )
    assert_near(inner(run.shared), theta)
    for client, expected in wanted.items():
        found = gate_of(run.final[client])
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(found[name].double(), value.double(), rtol=1e-10, atol=1e-12), (client, name)


@settings
@pytest.mark.parametrize("heads", [2, 1])
def test_pfedgate_is_its_paper(budget, sampler, heads):
    run = tiny(ROUNDS, sampler, capacity_of=CAPACITIES.__getitem__, budget=budget, heads=heads)
    rates = {"lr": 0.4, "gate_lr": 0.6, "least": 0.3}
    assert_as_the_oracle(run, budget, s=CAPACITIES, **rates)
    assert any(not torch.equal(inner(run.shared)[n], v) for n, v in inner(run.servers[0].shared).items())


def test_momentum_and_decay_act_on_touched_pieces_alone():
    """As the oracle does it coordinate by coordinate; with plain SGD on the gate."""
    budget, rule = epochs(3, batch=3), sgd(0.2, momentum=0.8, weight_decay=0.1)
    run = tiny(3, uniform(3), lr=rule, budget=budget, density=0.5)
    everybody = dict.fromkeys(range(5), 0.5)
    assert_as_the_oracle(run, budget, s=everybody, lr=0.2, gate_lr=0.6, least=0.3, momentum=0.8, decay=0.1)
    untouched = [not upload_mask(result).all() for _, result in run.results]
    assert any(untouched)


def upload_mask(result):
    return torch.cat([held.flatten() for held in result.upload.held.values()])


def test_both_parts_are_clipped_each_by_itself():
    budget = steps(2)
    run = tiny(2, budget=budget, clip_norm=0.01, lr=5.0, gate_lr=5.0)
    options = {"lr": 5.0, "gate_lr": 5.0, "least": 0.3, "clip": 0.01}
    assert_as_the_oracle(run, budget, s=dict.fromkeys(range(5), 0.5), **options)


# What is kept, and what is sent


@pytest.mark.parametrize("density", [0.31, 0.5, 0.75, 1.0])
def test_no_client_uses_more_than_its_capacity_and_dropped_entries_are_zero(density):
    run = tiny(4, density=density)
    task = run.program.binding(0).task
    for visit, result in run.results:
        task.train(False)
        with torch.no_grad():
            shown = inner(task.ask("parameters", result.trained, visit.data.inputs))
        used = sum(int(torch.count_nonzero(value)) for value in shown.values())
        assert used <= density * SIZE
        assert used == sum(count for name, count in result.used.items() if name.startswith(NETWORK))
    assert all(report.used <= 1.0 for report in run.reports)


def is_statistic(name):
    return "running" in name or "tracked" in name


def test_only_touched_blocks_are_uploaded_and_they_are_where_anything_moved():
    run = tiny(3, density=0.4)
    blocks = run.program.binding(0).task.module.blocks
    shares = set()
    for visit, result in run.results:
        values, held = result.upload
        assert set(values) == {name for name in run.shared if name.startswith(NETWORK)} == set(held)
        for name, pieces in blocks.by_name.items():
            change = (visit.received[NETWORK + name] - result.trained[NETWORK + name]).flatten()
            for piece in pieces:
                here = held[NETWORK + name].flatten()[piece.start : piece.stop]
                moved = bool((change[piece.start : piece.stop] != 0).any())
                assert bool(here.all()) == bool(here.any()) == moved
        shares.add(float(upload_mask(result).double().mean()))
    assert max(shares) < 1.0
    for report in run.reports:
        assert report.values_up < 5 * SIZE == report.values_down


def test_what_nobody_touched_stays_bitwise_and_the_gate_never_leaves_its_client():
    run = tiny(1, Given([(0, 1)]), density=0.4, budget=steps(1))
    touched = {name: sum(result.upload.held[name] for _, result in run.results) > 0 for name in run.shared}
    assert not all(mask.all() for mask in touched.values())
    for name, mask in touched.items():
        before, after = run.servers[0].shared[name], run.shared[name]
        assert equal_bits(before[~mask], after[~mask])
        assert not torch.equal(before[mask], after[mask]) or not mask.any()
    for visit, result in run.results:
        sent = {*visit.received, *result.upload.values, *result.buffers, *result.known}
        assert not [name for name in sent if name.startswith("gate.")]
    assert set(run.shared) == {name for name in run.program.binding(0).parts if name.startswith(NETWORK)}


def test_sums_by_index_are_those_of_the_papers_appendix():
    """Appendix G: blocks 0, 2 from client 1; 1, 2 from 2; 0, 1 from 3; all from 4. Weights 1, 2, 3, 4.

    Block 0: (1 d1 + 3 d3 + 4 d4) / 8, block 1: (2 d2 + 3 d3 + 4 d4) / 9, block 2: (1 d1 + 2 d2 + 4 d4) / 7.
    """
    changes = {1: [10.0, 0.0, 30.0], 2: [0.0, 4.0, 5.0], 3: [2.0, 6.0, 0.0], 4: [1.0, 2.0, 3.0]}
    uploads = empty_sum()
    for client, change in changes.items():
        value = torch.tensor(change, dtype=torch.float64)
        uploads.add(Parcel({"theta": value}, {"theta": value != 0}), share=client, divisor=client, per_coordinate=True)
    found = uploads.direction(divided=True)["theta"].tolist()
    assert found == pytest.approx([(10 + 6 + 4) / 8, (8 + 18 + 8) / 9, (30 + 10 + 12) / 7], rel=1e-15)


@pytest.mark.parametrize("server", [1.0, sgd(0.5, momentum=0.9)], ids=["plain", "momentum"])
def test_where_everybody_touches_everything_sums_by_index_are_dense_ones(server):
    by_index, dense = (tiny(3, density=1.0, aggregate=how, server=server) for how in ("index", "dense"))
    assert all(upload_mask(result).all() for _, result in by_index.results)
    assert_near(by_index.shared, dense.shared)


def test_dense_sums_divide_by_all_of_the_cohort():
    run = tiny(1, density=0.4, aggregate="dense", budget=steps(1))
    n = [batch.num_examples for batch in run.population.batches]
    for name, before in run.servers[0].shared.items():
        change = sum(n[v.client] * r.upload.values[name] for v, r in run.results) / sum(n)
        assert_near({name: run.shared[name]}, {name: before - change})


# Equivalences


def with_gates_of_one(**options):
    """pFedGate whose gate says 1 of every block, whatever it sees: no norm, no sigmoid, no weights, biases of 1."""
    method = pfedgate(density=1.0, pre_norm=False, post_norm=False, sigmoid=False, gate_lr=0.0, **options)
    assert method.wrap is not None

    def wrap(bare):
        gated = method.wrap(bare)
        with torch.no_grad():
            for head in (gated.gate.weigh, gated.gate.rank):
                head.linear.weight.zero_()
                head.linear.bias.fill_(1.0)
        return gated

    return replace(method, wrap=wrap)


@pytest.mark.parametrize("sampler", [None, uniform(2)], ids=["everybody", "two"])
@pytest.mark.parametrize("level", ["batch", "client"])
def test_with_gates_of_one_and_the_whole_capacity_it_is_fedavg(sampler, level):
    """Bit for bit with dense sums; by index, sums are divided by the same number coordinate by coordinate."""
    budget = epochs(2, batch=3)
    plain = play(fedavg(lr=0.3, budget=budget), 3, sampler)
    dense = play(with_gates_of_one(lr=0.3, budget=budget, clip_norm=None, aggregate="dense", level=level), 3, sampler)
    assert_same_bits(inner(dense.shared), dict(plain.shared))
    index = play(with_gates_of_one(lr=0.3, budget=budget, clip_norm=None, level=level), 3, sampler)
    assert_near(inner(index.shared), dict(plain.shared))


def test_by_sample_gates_of_one_are_fedavg_too():
    budget = epochs(2, batch=3)
    plain = play(fedavg(lr=0.3, budget=budget), 3)
    run = play(with_gates_of_one(lr=0.3, budget=budget, clip_norm=None, level="sample"), 3)
    assert_near(inner(run.shared), dict(plain.shared))


def test_with_the_whole_capacity_the_ranking_head_has_no_gradient():
    run = tiny(2, density=1.0)
    moved = {
        name.split(".")[1]
        for name, value in gate_of(run.final[0]).items()
        if not is_statistic(name) and not torch.equal(value, run.states[0][0][name])
    }
    assert moved == {"norm", "weigh"}


def test_gradients_by_torch_func_are_the_same():
    """So that an engine may map clients; a gate without running statistics, which no transformation may write into."""
    for options in ({}, {"level": "sample"}, {"cut": "rows"}, {"select": "exact"}):
        run = tiny(1, pre_norm=False, post_norm=False, **options)
        visit, binding = run.visit(3), run.program.binding(3)
        mapped = run_client(run.program.method, binding, visit, lambda loss, point: grad_and_value(loss)(point))
        plain = run_client(run.program.method, binding, visit)
        assert_near(mapped.upload.values, plain.upload.values)


def test_two_rates_in_one_step():
    """From the same start one step moves each part by its own rate times the same gradients."""
    slow, fast = (tiny(1, lr=lr, gate_lr=gate_lr, budget=steps(1)) for lr, gate_lr in ((0.1, 0.2), (0.2, 0.8)))
    for (_, one), (_, two) in zip(slow.results, fast.results, strict=True):
        for name, value in one.upload.values.items():
            assert torch.allclose(2 * value, two.upload.values[name], rtol=1e-12)
        for name in [n for n in gate_of(one.state) if not is_statistic(n)]:
            start = slow.states[0][one.client][name]
            assert torch.allclose(4 * (one.state[name] - start), two.state[name] - start, rtol=1e-9, atol=1e-14)
    assert slow.program.method.local[0].moves == (SHARED, "gate")
