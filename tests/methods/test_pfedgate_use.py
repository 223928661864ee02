"""pFedGate in use: capacities, newcomers, what is recorded, groups of clients, and what is refused before round 1."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import plures
from plures.core.client import run_phases
from plures.core.errors import InvalidConfig, InvalidInput, InvalidModel
from plures.data import digits_federation
from plures.local import epochs, steps
from plures.methods import pfedgate
from plures.models import mlp, resnet8_gn
from plures.recipes import make_experiment, run_experiment
from plures.recipes.gate_clusters import gate_clusters
from plures.report import records
from plures.report.gates import read_gates
from tests.helpers.methods import assert_same_bits, federation, play
from tests.methods.test_pfedgate import NETWORK, gate_of, is_statistic, tiny

SMALL = {"method": "pfedgate", "rounds": 2, "cohort": 4, "data": {"source": "digits", "clients": 8}}
RATES = {"lr": 0.5, "gate_lr": 1.5, "budget": {"epochs": 2, "batch": 10}}


@cache
def digits():
    return digits_federation(num_clients=8, classes_per_client=2, seed=0)


def short(method, model=mlp, rounds=1, **options):
    return plures.run(method, digits(), model, rounds=rounds, cohort=4, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on digits with a folder, by clients of three capacities."""
    table = SMALL | {
        "rounds": 3,
        "method_options": {**RATES, "least": 0.1},
        "capacity": {"density": [1, 0.5, 0.2, 0.2] * 2},
    }
    folder = tmp_path_factory.mktemp("gates") / "run"
    return run_experiment(make_experiment(table), out=folder)


# Capacities


def test_mixed_capacities_are_kept_by_everybody_in_every_round(finished):
    rows = list(records.read_visits(finished.folder))
    assert len(rows) == 12
    for row in rows:
        assert float(row["density"]) <= float(row["capacity"]) == [1.0, 0.5, 0.2, 0.2][int(row["client"]) % 4]
        assert float(row["density"]) > 0.5 * float(row["capacity"])
    assert {row["capacity"] for row in rows} == {"1.0", "0.5", "0.2"}


def test_half_of_the_operations_may_keep_more_than_half_of_the_entries():
    """Of a network with convolutions: a weight of a convolution takes part in many more operations."""
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    entries, operations = (
        short(pfedgate(block_cost=cost, density=0.5, budget=steps(2)), module) for cost in ("parameters", "flops")
    )
    for result, most in ((entries, 0.5), (operations, 1.0)):
        assert all(line["used"] <= 1.0 for line in result.history)
        densities = [kept_share(result, client) for client in range(8)]
        assert max(densities) <= most
    flops = [kept_flops(operations, client) for client in range(8)]
    assert max(flops) <= 0.5


def shown(result, client):
    binding = result.program.binding(client)
    batch = binding.task.place(digits().client(client).train)
    params = {
        **binding.values,
        **result.server.shared,
        **(result.store.get(client) or result.program.initial_state(client)),
    }
    binding.task.train(False)
    with torch.no_grad():
        found = binding.task.ask("parameters", params, batch.inputs)
    return {name.removeprefix(NETWORK): value for name, value in found.items()}


def kept_share(result, client):
    values = shown(result, client).values()
    return sum(int(torch.count_nonzero(v)) for v in values) / sum(v.numel() for v in values)


def kept_flops(result, client):
    """By hand: 36 places of each of the convolution's weights, 2 operations a weight, 1 a bias."""
    each = {"0.weight": 72, "0.bias": 36, "3.weight": 2, "3.bias": 1}
    values = shown(result, client)
    used = sum(each[name] * int(torch.count_nonzero(value)) for name, value in values.items())
    return used / sum(each[name] * value.numel() for name, value in values.items())


# Newcomers


def test_a_newcomer_trains_its_gate_and_nothing_else():
    run = tiny(3, adapt=epochs(2, batch=3))
    newcomer = play(run.program.method, 0, population=federation([6, 30]))
    before = newcomer.model(1) | run.shared
    work = run_phases(run.program.method.adapt, run.program.binding(0), newcomer.visit(1), before)
    same = {name for name in before if not name.startswith("gate.")}
    assert_same_bits({n: work.params[n] for n in same}, {n: before[n] for n in same})
    learnt = {n for n in gate_of(before) if not is_statistic(n) and not torch.equal(work.params[n], before[n])}
    assert {name.split(".")[1] for name in learnt} == {"norm", "weigh", "rank"}


def test_a_gate_learns_on_digits_what_a_newcomers_first_gate_does_not_know():
    result = short(pfedgate(lr=0.5, gate_lr=1.5, density=0.8, budget=epochs(2, batch=10)), rounds=12)
    tuned = result.metrics["personal/test/loss"].weighted
    fresh = [loss_with_first_gate(result, client) for client in range(8)]
    assert tuned < min(sum(fresh) / len(fresh), 2.0)


def loss_with_first_gate(result, client):
    binding, data = result.program.binding(client), digits().client(client).splits["test"]
    params = {**binding.values, **result.server.shared, **result.program.initial_state(client)}
    binding.task.train(False)
    with torch.no_grad():
        return float(binding.task.loss(params, binding.task.place(data)))


# Records


def test_gates_densities_and_touched_shares_are_recorded(finished):
    by_round = {}
    for row in records.read_visits(finished.folder):
        notes = json.loads(row["notes"])
        assert len(notes["gate_weights"]) == 10
        assert sum(notes["gate_weights"]) == pytest.approx(1.0, abs=1e-5)
        assert 0 < float(row["upload_share"]) <= 1
        assert float(row["upload_share"]) == pytest.approx(int(row["values_up"]) / 4810)
        by_round.setdefault(int(row["round"]), []).append(notes)
    for line in records.read_rounds(finished.folder):
        for name, means in line["notes"].items():
            wanted = np.mean([notes[name] for notes in by_round[line["round"]]], axis=0)
            assert means == pytest.approx(wanted.tolist(), abs=2e-6)


def test_a_method_without_notes_records_none(tmp_path):
    result = run_experiment(make_experiment({**SMALL, "method": "fedavg"}), out=tmp_path / "run")
    assert all("notes" not in line for line in result.history)
    rows = list(records.read_visits(tmp_path / "run"))
    assert {(row["notes"], row["upload_share"]) for row in rows} == {("", "1.0")}


# Groups of clients


def test_clients_of_a_run_are_grouped_by_their_gates(finished):
    found = gate_clusters(finished.folder)
    gates = read_gates(finished.folder / records.PERSONAL)
    assert tuple(gates) == found.clusters.clients == tuple(sorted(finished.store.clients()))
    for client, vector in gates.items():
        state = finished.store.get(client)
        own = [state[n] for n in sorted(gate_of(state)) if not is_statistic(n)]
        assert np.allclose(vector, torch.cat([value.flatten() for value in own]).double().numpy())
        assert found.labels[client] == sorted(set(digits().client(client).train.targets.tolist()))
    assert -1 <= found.clusters.correlation <= 1
    assert 0 < found.clusters.p_value <= 1


# What is refused


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"density": 0.0}, "density"),
        ({"density": 1.5}, "density"),
        ({"least": 2.0}, "least"),
        ({"splits": 1}, "splits"),
        ({"cut": "columns"}, "cut"),
        ({"cut": 3}, "cut"),
        ({"heads": 3}, "heads"),
        ({"level": "layer"}, "level"),
        ({"select": "best"}, "select"),
    ],
)
def test_wrong_options_are_refused_at_once(options, wrong):
    with pytest.raises(InvalidConfig, match=wrong):
        pfedgate(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"cut": "equal", "splits": 2, "density": 0.3},
        {"cut": "equal", "splits": 5, "density": 0.1},
        {"density": 0.2, "least": 0.4},
    ],
)
def test_a_capacity_below_what_is_always_kept_is_refused_before_round_1(options):
    """The authors' code breaks the constraint there: its first pieces alone are 1 / splits of everything."""
    with pytest.raises(InvalidInput, match="always keeps"):
        short(pfedgate(**options))


def test_a_client_with_too_small_a_capacity_is_refused_and_told_what_to_give():
    with pytest.raises(InvalidInput, match=r"least = 0\.1"):
        short(pfedgate(density=0.5), capacity={"density": [0.5, 0.1] * 4})


@pytest.mark.parametrize(
    ("cut", "wrong"),
    [
        ({"body.1.weight": [1, 2]}, "add up to 4096"),
        ({"body.weight": [650]}, "no parameter 'body.weight'.*head.weight"),
        ({"head.weight": [640.0]}, "add up to 640"),
        (lambda shapes: [5], "give a dict"),
    ],
)
def test_wrong_cuts_are_refused_before_round_1(cut, wrong):
    with pytest.raises(InvalidInput, match=wrong):
        short(pfedgate(cut=cut))


def test_tokens_have_no_gate():
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    clients = [(plures.core.types.Batch(torch.randint(5, (8, 2)), torch.randint(2, (8,))),) * 2 for _ in range(4)]
    with pytest.raises(InvalidModel, match="tokens"):
        plures.run(pfedgate(), plures.data.federate(clients), module, rounds=1)


def test_norms_are_shared_and_never_gated():
    result = short(pfedgate(density=0.5, budget=steps(1)), lambda: resnet8_gn(shape=(1, 8, 8), classes=10))
    blocks = result.program.binding(0).task.module.blocks
    norms = [name for name in result.server.shared if name.removeprefix(NETWORK) not in blocks.by_name]
    assert len(norms) >= 14
    assert all(value.dim() == 1 for name, value in result.server.shared.items() if name in norms)
