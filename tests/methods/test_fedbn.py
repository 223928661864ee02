"""FedBN (Li et al. 2021)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig, InvalidSplit
from plures.core.types import PERSONAL, PERSONAL_BUFFERS, SHARED
from plures.local import epochs, steps
from plures.methods import fedbn
from plures.models import mlp
from plures.participation import uniform
from tests.helpers.methods import (
    HEAD,
    INPUTS,
    NormedNetwork,
    assert_near,
    assert_same_bits,
    network,
    part_of,
    play,
)

SHARED_NAMES = ("body.weight", *HEAD)
NORM = ("norm.weight", "norm.bias")
STATISTICS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")


def normed(rounds=3, sampler=None, **options):
    method = fedbn(**{"lr": 0.3, "budget": epochs(2, batch=5)} | options)
    return play(method, rounds, sampler, module=network(NormedNetwork))


# Whose is what


def test_the_norms_and_their_statistics_are_personal_and_all_else_is_shared():
    parts = fedbn().split.resolve(network(NormedNetwork))
    assert {name for name, part in parts.items() if part == PERSONAL} == set(NORM)
    assert {name for name, part in parts.items() if part == PERSONAL_BUFFERS} == set(STATISTICS)
    assert {name for name, part in parts.items() if part == SHARED} == set(SHARED_NAMES)


def test_every_norm_of_a_deep_network_is_personal():
    module = mlp(shape=(4,), hidden=(3, 2), classes=2, batch_norm=True)
    parts = fedbn().split.resolve(module)
    assert {name.rsplit(".", 1)[0] for name, part in parts.items() if part == PERSONAL} == {"body.2", "body.5"}


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.RMSNorm(6)], ids=lambda norm: str(norm))
def test_norms_without_statistics_are_personal_too(norm):
    module = nn.Sequential(nn.Linear(INPUTS, 6), norm, nn.Tanh(), nn.Linear(6, 3)).double()
    run = play(fedbn(lr=0.3, budget=steps(2)), 2, module=module)
    assert set(run.final[0]) == {f"1.{name}" for name, _ in norm.named_parameters()}
    assert set(run.shared) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert not torch.equal(run.final[0]["1.weight"], run.final[1]["1.weight"])


def test_a_network_without_norms_is_refused():
    with pytest.raises(InvalidSplit, match="no normalisation layer"):
        play(fedbn(budget=steps(1)), 1)


def test_there_is_no_global_model():
    assert not normed(1).program.has_global_model()


# Rounds


def test_norms_and_statistics_are_never_sent():
    """Each of 2 clients sends 4 * 3 values of the body and 3 * 3 + 3 of the head, of 8 bytes."""
    run = normed(2, uniform(2))
    for visit, result in run.results:
        assert set(visit.received) == set(result.upload.values) == set(SHARED_NAMES)
        assert result.buffers == {}
        assert set(result.state) == {*NORM, *STATISTICS}
    assert [(report.bytes_up, report.bytes_down) for report in run.reports] == [(2 * 24 * 8, 2 * 24 * 8)] * 2


def test_norms_and_statistics_differ_between_clients_and_survive_the_servers_step():
    run = normed()
    for visit, result in run.results:
        if visit.round == 3:
            assert_same_bits(part_of(run.model(visit.client), NORM + STATISTICS), result.state)
    for name in (*NORM, "norm.running_mean", "norm.running_var"):
        assert len({tuple(run.final[client][name].tolist()) for client in range(5)}) == 5


def test_statistics_follow_the_clients_own_batches():
    """After one step on all examples x: a tenth of the mean of h = x A^T, and 0.9 + a tenth of its variance."""
    run = normed(1, budget=steps(1))
    for client, batch in enumerate(run.population.batches):
        hidden = batch.inputs @ run.servers[0].shared["body.weight"].T
        expected = {"norm.running_mean": 0.1 * hidden.mean(dim=0), "norm.running_var": 0.9 + 0.1 * hidden.var(dim=0)}
        assert_near(part_of(run.final[client], tuple(expected)), expected)
        assert int(run.final[client]["norm.num_batches_tracked"]) == 1


def test_a_client_goes_on_with_the_norms_and_statistics_of_its_last_visit():
    run = normed(2)
    for visit, _ in run.results[5:]:
        assert visit.round == 2
        assert_same_bits(visit.state, run.states[1][visit.client])


def test_a_single_example_left_over_is_passed_by():
    """Clients of 7 and 4 examples, in batches of 3, have one left over: 2 and 1 batches of 3 and not 3 and 2."""
    run = normed(1, budget=epochs(1, batch=3))
    counts = [int(run.final[client]["norm.num_batches_tracked"]) for client in range(5)]
    assert counts == [1, 2, 2, 3, 1]


def test_adaptation_moves_norms_and_statistics_alone():
    run = normed(2, adapt=steps(3))
    own = run.adapted(2)
    assert_same_bits(part_of(own, SHARED_NAMES), run.shared)
    assert all(not torch.equal(own[name], run.final[2][name]) for name in NORM + STATISTICS)


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"clip_norm": 0.0}, {"server": float("inf")}], ids=str)
def test_an_option_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidConfig, match=r"rate|clip_norm"):
        fedbn(**wrong)
