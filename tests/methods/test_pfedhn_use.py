"""pFedHN in use: facts and reports, running statistics, learning, defaults and refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import plures
from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.data import digits_federation
from plures.local import epochs, sgd, steps
from plures.methods import pfedhn
from plures.models import mlp
from plures.parts import head
from tests.helpers.methods import (
    Given,
    NormedNetwork,
    Product,
    assert_all_near,
    assert_near,
    assert_same_bits,
    federation,
    network,
    part_of,
    play,
)
from tests.methods.test_pfedhn import ALL, EMBEDDING, MEAN, SMALL, phi_of, tiny
from tests.oracles.common import client_loss, gradient, step

# What is told of the whole cohort


def test_the_facts_of_a_visit_are_of_the_whole_cohort_in_turn_too():
    """Clients 0, 1 and 3 have 3, 5 and 9 examples: 17 of 28."""
    in_turn, together = (tiny(1, [(0, 1, 3)], one_by_one=choice) for choice in (True, False))
    facts = [{visit.client: visit.facts for visit, _ in run.results} for run in (in_turn, together)]
    assert facts[0] == facts[1]
    assert {(one.cohort_clients, one.cohort_examples, one.all_examples) for one in facts[0].values()} == {(3, 17, 28)}
    assert {client: one.examples for client, one in facts[0].items()} == {0: 3, 1: 5, 3: 9}
    assert {one.inclusion for one in facts[0].values()} == {0.4}


def test_reports_are_of_the_whole_cohort():
    """Two full-batch steps of each client are two passes; losses go by examples, of which they have 3, 5, 7, 9, 4."""
    run = tiny(1)
    (report,) = run.reports
    assert (report.cohort, report.network_passes) == ((0, 1, 2, 3, 4), 5 * 2)
    (phase,) = report.losses
    total = sum(visit.facts.examples * float(result.losses[phase]) for visit, result in run.results)
    assert report.losses[phase] == pytest.approx(total / 28, rel=1e-12)
    assert set(run.store.clients()) == {0, 1, 2, 3, 4}


# Running statistics


@pytest.mark.parametrize("one_by_one", [True, False])
def test_shared_running_statistics_are_averaged_over_the_cohort_by_examples(one_by_one):
    """All clients of a round get the same ones; they have 3, 5 and 4 examples here. Three steps count three batches."""
    method = pfedhn(**SMALL, lr=0.3, budget=steps(3), buffers="shared", one_by_one=one_by_one)
    run = play(method, 1, Given([(0, 1, 4)], 0.6), module=network(NormedNetwork))
    before, names = run.servers[0].shared, ("norm.running_mean", "norm.running_var")
    for name in names:
        change = sum(visit.facts.examples * result.buffers[name] for visit, result in run.results) / 12
        assert_near({name: run.shared[name]}, {name: before[name] - change})
        assert change.any()
        assert all(torch.equal(visit.received[name], before[name]) for visit, _ in run.results)
    assert torch.equal(run.shared["norm.num_batches_tracked"], before["norm.num_batches_tracked"] + 3)
    assert not any("running" in name for name in phi_of(run.shared))


def test_the_mean_of_counters_of_batches_is_rounded():
    """3 examples are one batch of three and 5 are two: (3 * 1 + 5 * 2) / 8 = 1.625, which is 2 batches."""
    method = pfedhn(**SMALL, lr=0.3, budget=epochs(1, batch=3), buffers="shared")
    run = play(method, 1, Given([(0, 1)], 0.4), module=network(NormedNetwork))
    counter = "norm.num_batches_tracked"
    assert sorted(-int(result.buffers[counter]) for _, result in run.results) == [1, 2]
    assert torch.equal(run.shared[counter], run.servers[0].shared[counter] + 2)
    assert run.shared[counter].dtype == torch.int64


# Learning


def test_it_learns_digits_of_clients_with_two_classes_each():
    """From chance, which is about one in ten, to more than the one model for everybody can do."""
    clients = digits_federation(num_clients=10, classes_per_client=2, seed=0)
    method = pfedhn(hidden=32, lr=0.1, server=0.1, budget=epochs(2, batch=16))
    plan = plures.EvaluationPlan(every=12, models=("global", "personal"))
    first, last = (
        plures.run(method, clients, mlp(hidden=(16,)), rounds=rounds, cohort=5, evaluation=plan, least_rounds=0)
        for rounds in (0, 12)
    )
    before, after = (result.metrics["personal/test/accuracy"].weighted for result in (first, last))
    assert before < 0.3
    assert after > 0.7
    assert after > last.metrics["global/test/accuracy"].weighted > 0.3
    assert last.headline == "personal"


# Its start, its defaults, and what is refused


def test_the_hypernetwork_begins_by_the_seed_alike_in_either_precision():
    one, same, other = (play(pfedhn(**SMALL), 0, seed=seed) for seed in (1, 1, 2))
    assert_same_bits(one.shared, same.shared)
    assert_all_near(one.final, same.final, 0.0)
    assert all(not torch.equal(one.shared[name], other.shared[name]) for name in one.shared if name != MEAN)
    assert all(not torch.equal(one.final[i][EMBEDDING], other.final[i][EMBEDDING]) for i in range(5))
    single = play(pfedhn(**SMALL), 0, seed=1, module=network().float())
    for name in [name for name in one.shared if name.startswith("hyper.")]:
        assert torch.equal(single.shared[name], one.shared[name].float())
    assert all(torch.equal(single.final[i][EMBEDDING], one.final[i][EMBEDDING].float()) for i in range(5))


def test_the_defaults_are_those_promised():
    """Those of the paper's code: 50 batches of 64; on clients of 40 and 70 examples, so that both kinds come up."""
    told = pfedhn(
        personal="all_shared",
        hidden=100,
        layers=3,
        embedding=int(1 + 3 / 4),
        lr=sgd(5e-3, momentum=0.9, weight_decay=5e-5),
        budget=steps(50, batch=64),
        clip_norm=50.0,
        adapt=epochs(5, batch=32),
        server=sgd(1e-2, momentum=0.9, weight_decay=1e-3),
        server_clip=50.0,
        one_by_one=True,
    )
    runs = [play(method, 2, population=federation([40, 70, 33])) for method in (pfedhn(), told)]
    assert_same_bits(runs[0].shared, runs[1].shared)
    assert_all_near(runs[0].final, runs[1].final, 0.0)
    assert_same_bits(runs[0].adapted(1), runs[1].adapted(1))
    assert runs[0].reports == runs[1].reports


def test_the_largest_norm_of_a_clients_gradient_does_not_count_personal_layers():
    """One step at rate 0.3 under a limit of 0.01 moves the body by 0.003, and the head as if there were none."""
    run, free = (tiny(1, [(2,)], budget=steps(1), personal=head(), clip_norm=limit) for limit in (0.01, None))
    (_, result), (_, unlimited) = run.results[0], free.results[0]
    length = sum(float((value**2).sum()) for value in result.upload.values.values()) ** 0.5
    assert length == pytest.approx(0.003, rel=1e-3)
    assert_same_bits(result.state, unlimited.state)
    assert not torch.allclose(unlimited.upload.values["body.weight"], result.upload.values["body.weight"])


def test_finetuning_trains_the_clients_own_model():
    """As local descent does, from the model that the hypernetwork makes and the client's head."""
    run = tiny(2, personal=head(), adapt=steps(3))
    weights = part_of(run.model(2), ALL)
    for _ in range(3):
        weights = step(weights, gradient(client_loss, weights, run.population.batches[2]), 0.3)
    assert_near(part_of(run.adapted(2), ALL), weights)


def test_without_the_number_of_clients_it_cannot_begin():
    program = Program(pfedhn(), OneNetwork(module=network()), loss=nn.functional.cross_entropy, seed=0)
    with pytest.raises(
        InvalidConfig, match=r"needs the number of clients: give Program\(\.\.\., num_clients=\.\.\.\), or"
    ):
        program.binding(0)
    told = Program(pfedhn(embedding=4), OneNetwork(module=network()), loss=nn.functional.cross_entropy, seed=0)
    assert told.initial_state(0)[EMBEDDING].shape == (4,)


def test_where_nothing_is_shared_there_is_nothing_to_make():
    with pytest.raises(InvalidModel, match=r"nothing to make: all parameters are personal or frozen\. Share some"):
        play(pfedhn(personal="all_personal"), 0)


def test_a_model_with_the_name_of_the_hypernetwork_is_told_to_rename_it():
    module = Product()
    module.hyper = nn.Linear(1, 1).double()
    with pytest.raises(InvalidModel, match=r"'hyper\.weight', but 'hyper\.' names the hypernetwork\. Rename"):
        play(pfedhn(), 0, population=federation([3]), module=module)


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": 0},
        {"hidden": 1.5},
        {"layers": -1},
        {"layers": True},
        {"embedding": 0},
        {"embedding": float("nan")},
        {"lr": -0.1},
        {"lr": "fast"},
        {"clip_norm": 0.0},
        {"clip_norm": float("nan")},
        {"server": float("nan")},
        {"server_clip": -1.0},
        {"server_clip": float("inf")},
        {"budget": 5},
        {"buffers": "mine"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        pfedhn(**options)
