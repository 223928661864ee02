"""Faults seen in other frameworks, each as a sentence about this one that would become false with it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from plures import make_experiment, run, run_experiment
from plures.core.client import run_client
from plures.core.errors import InvalidSplit
from plures.core.types import Batch
from plures.core.wire import Message, Parcel, Uncoded
from plures.data import federate
from plures.local import epochs, steps
from plures.methods import METHODS, ditto, fedavg, fedper, lg_fedavg
from plures.recipes.watching import Silence
from plures.report import records
from plures.wire import encode
from tests.recipes.helpers import CLIENTS, built, ran, same_bits, table

ROOT = Path(__file__).parents[2]
STATISTICS = {"0.running_mean", "0.running_var", "0.num_batches_tracked"}


class Noting(Uncoded):
    """A wire that notes the names of all that it carries."""

    def __init__(self) -> None:
        self.up: set[str] = set()
        self.down: set[str] = set()

    def carry(self, message, *, upward, draws):
        (self.up if upward else self.down).update(message.parcel.values, message.exact)
        return super().carry(message, upward=upward, draws=draws)


# Running statistics; elsewhere those of the first client stood for all


def shifted_clients():
    """Four clients whose inputs are around 0, 10, 20 and 30, with 4, 6, 8 and 10 training examples."""
    draws = torch.Generator().manual_seed(0)

    def examples(size: int, centre: float) -> Batch:
        return Batch(centre + torch.randn(size, 3, generator=draws), torch.arange(size) % 2)

    return federate([(examples(4 + 2 * i, 10.0 * i), examples(4, 10.0 * i)) for i in range(4)])


def normed() -> nn.Module:
    """The norm comes first, so that its statistics follow from the inputs alone."""
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shared_running_statistics_are_the_mean_of_the_cohort_by_examples(seed):
    """After one batch: 0.9 * 0 + 0.1 * the client's mean, and 0.9 * 1 + 0.1 * its variance."""
    federation = shifted_clients()
    result = run(fedavg(buffers="shared", budget=steps(1)), federation, normed, rounds=1, cohort=2, seed=seed)

    first, second = (federation.client(client).train.inputs for client in result.history[0]["cohort"])
    share = len(first) / (len(first) + len(second))
    mean = 0.1 * (share * first.mean(dim=0) + (1 - share) * second.mean(dim=0))
    variance = 0.9 + 0.1 * (share * first.var(dim=0) + (1 - share) * second.var(dim=0))
    torch.testing.assert_close(result.server.shared["0.running_mean"], mean)
    torch.testing.assert_close(result.server.shared["0.running_var"], variance)
    assert all((mean - 0.1 * alone.mean(dim=0)).abs().min() > 0.2 for alone in (first, second))


@pytest.mark.parametrize(("policy", "sent"), [("shared", STATISTICS), ("personal", set()), ("reset", set())])
def test_running_statistics_are_sent_only_where_the_policy_says_so(policy, sent):
    wire = Noting()
    run(fedavg(buffers=policy, budget=steps(1)), shifted_clients(), normed, rounds=2, wire=wire)

    assert {"0.weight", "1.weight"} <= wire.up
    assert wire.up & STATISTICS == wire.down & STATISTICS == sent


@pytest.mark.parametrize("method", ["fedavg", "fedper", "ditto"])
def test_running_statistics_without_a_policy_are_an_error_before_there_is_a_folder(method, tmp_path):
    with pytest.raises(InvalidSplit) as found:
        ran(method, tmp_path / "run", model={"batch_norm": True})

    assert all(choice in str(found.value) for choice in ("buffers='shared'", "'personal'", "'reset'", "[split]"))
    assert not (tmp_path / "run").exists()


# Seeds; elsewhere torch alone was seeded, or the server and not the workers

CHEAP = [method for method in METHODS if method not in ("fedem", "pfedgate")]
"""The others take a second each before they begin."""
IN_A_PROCESS = "import json; from tests.recipes.test_faults_of_peers import runs; print(json.dumps(runs(2)))"


def runs(number: int) -> dict[str, Any]:
    """What runs come to, each after draws from everybody's generators."""
    for draw in (random.seed, np.random.seed, torch.manual_seed):
        draw(number)
    data, found = {"source": "tests.recipes.helpers:tiny"}, {}
    for method, seed in [(method, 0) for method in CHEAP] + [("fedavg", 1), ("ditto", 1), ("fedper", 1)]:
        random.random(), np.random.rand(), torch.rand(1)
        result = ran(method, seed=seed, cohort=2, data=data).as_json()
        found[f"{method} {seed}"] = [result["fingerprint"]["final_state"], result["metrics"]]
    return found


def test_a_seed_gives_the_same_run_in_every_process_and_another_seed_another():
    """Whatever the order of sets in a process is, and whatever else is drawn there."""
    other_order = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment, command = os.environ | {"PYTHONHASHSEED": other_order}, [sys.executable, "-c", IN_A_PROCESS]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        here, (there, _) = runs(1), process.communicate(timeout=120)

    assert json.loads(there) == json.loads(json.dumps(here))
    for method in ("fedavg", "ditto", "fedper"):
        assert here[f"{method} 0"][0] != here[f"{method} 1"][0]


# Order; elsewhere uploads were added up as they came in, and workers drew as they pleased


class Shuffled:
    """Runs the cohort in some other order, but hands the results over in that of the visits."""

    name = "shuffled"

    def __init__(self) -> None:
        self.draws, self.orders = random.Random(3), set()

    def run(self, program, visits):
        return self.map(lambda visit: run_client(program.method, program.binding(visit.client), visit), visits)

    def map(self, work, visits):
        visits = list(visits)
        order = self.draws.sample(range(len(visits)), len(visits))
        self.orders.add(tuple(order))
        done = {place: work(visits[place]) for place in order}
        return iter([done[place] for place in range(len(visits))])


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 4))


@pytest.mark.parametrize("make", [fedavg, ditto, fedper, lg_fedavg], ids=lambda make: make.__name__)
def test_a_run_does_not_depend_on_the_order_in_which_clients_are_done(make):
    """Dropout and mini-batches draw, and running statistics are written into, while a client works."""
    method, engine = make(buffers="shared", budget=epochs(2, batch=3)), Shuffled()
    usual, other = (run(method, built().federation, with_dropout, rounds=4, engine=e) for e in ("sequential", engine))

    assert len(engine.orders) > 1
    assert other.fingerprint == usual.fingerprint
    assert other.metrics == usual.metrics
    for line, wanted in zip(other.history, usual.history, strict=True):
        assert all(line[key] == wanted[key] for key in line.keys() - {"seconds", "phase_seconds"})


# Interrupts; elsewhere Ctrl-C removed the folder


class Interrupting(Silence):
    def round_done(self, report, metrics) -> None:
        if report.round == 2:
            raise KeyboardInterrupt


def test_an_interrupted_run_keeps_its_folder_with_all_that_was_done(tmp_path):
    plan = {"cohort": 2, "evaluation": {"every": 1}}
    with pytest.raises(KeyboardInterrupt):
        run_experiment(make_experiment(table("fedper", rounds=9, **plan)), out=tmp_path / "run", watcher=Interrupting())
    shorter = ran("fedper", tmp_path / "shorter", rounds=2, **plan)

    result = records.read_result(tmp_path / "run")
    assert (result["status"], result["rounds_done"], result["metrics_round"]) == ("interrupted", 2, 2)
    assert [line["round"] for line in records.read_rounds(tmp_path / "run")] == [1, 2]
    assert list(records.read_clients(tmp_path / "run")) == list(records.read_clients(tmp_path / "shorter"))
    assert result["fingerprint"] == shorter.fingerprint
    for name in (records.SHARED, records.PERSONAL):
        assert same_bits(load_file(tmp_path / "run" / name), load_file(tmp_path / "shorter" / name))


# What is sent; elsewhere LG-FedAvg was the wrong way round, and FedPer sent the head and averaged it


def test_lg_fedavg_sends_the_upper_layers_and_keeps_the_lower_ones():
    layers = {"image": nn.Unflatten(1, (1, 2, 2)), "lower": nn.Conv2d(1, 3, 2), "flat": nn.Flatten()}
    layers |= {"middle": nn.Linear(3, 3), "upper": nn.Linear(3, 4)}
    wire = Noting()
    result = run(lg_fedavg(), built().federation, nn.Sequential(OrderedDict(layers)), rounds=2, wire=wire)

    assert wire.up == wire.down == {"middle.weight", "middle.bias", "upper.weight", "upper.bias"}
    kept = [result.store.get(client) for client in range(CLIENTS)]
    assert all(state.keys() == {"lower.weight", "lower.bias"} for state in kept)
    assert len({tuple(state["lower.weight"].flatten().tolist()) for state in kept}) == CLIENTS


def bent() -> nn.Module:
    """A network without units that give nothing, whose zeros would be left out of an upload."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(OrderedDict(body=nn.Linear(4, 5), bend=nn.Tanh(), head=nn.Linear(5, 4)))


def ran_fedper(start="uniform", cohort=2, **others):
    return run(fedper(start=start, lr=0.5), built().federation, bent(), rounds=1, cohort=cohort, **others)


def test_fedper_sends_the_body_alone_and_counts_nothing_else():
    """4 inputs and 5 hidden units: 4 * 5 + 5 = 25 values, from each of 2 clients; the head has 5 * 4 + 4 = 24."""
    wire = Noting()
    (noted,) = ran_fedper(wire=wire).history
    assert wire.up == wire.down == {"body.weight", "body.bias"}
    assert noted["values_up"] == noted["values_down"] == 2 * 25
    assert noted["bytes_up"] == noted["bytes_down"] == 2 * 25 * 4

    (encoded,) = ran_fedper().history
    message = Message(Parcel({"body.weight": torch.ones(5, 4), "body.bias": torch.ones(5)}))
    assert encoded["bytes_up"] == encoded["bytes_down"] == 2 * len(encode(message))


@pytest.mark.parametrize("start", ["common", "uniform"])
def test_a_client_that_was_never_sampled_is_evaluated_with_the_head_it_began_with(start):
    result, network = ran_fedper(start, cohort=1), bent()

    (visited,) = result.history[0]["cohort"]
    trained, common = result.store.get(visited), dict(network.named_parameters())
    assert [score.client for score in result.scores("personal")] == list(range(CLIENTS))
    for score in result.scores("personal"):
        inputs, targets = result.federation.client(score.client).test
        began = result.program.initial_state(score.client)
        assert (start == "common") == all(torch.equal(value, common[name]) for name, value in began.items())

        def loss(head, inputs=inputs, targets=targets) -> float:
            return float(F.cross_entropy(functional_call(network, result.server.shared | head, inputs), targets))

        assert score.loss == pytest.approx(loss(trained if score.client == visited else began), rel=1e-5)
        assert (score.loss == pytest.approx(loss(trained), rel=1e-3)) == (score.client == visited)
