"""Pipelines of methods that build their network themselves: mixtures, gates, hypernetworks, masks."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from plures import make_experiment, run_experiment
from plures.core.errors import InvalidInput
from plures.report import records
from tests.recipes.helpers import same_bits, table
from tests.recipes.test_pipeline import PRETRAIN, TUNE, kept, piped


def tuned_of(folder):
    found = {}
    for key, value in load_file(folder / records.TUNED).items():
        client, _, name = key.partition("/")
        found.setdefault(int(client), {})[name] = value
    return found


def test_shares_of_a_tuned_mixture_are_shares_and_its_networks_are_tuned_by_steps(tmp_path):
    tune = {"part": "all", "lr": 0.5, "budget": {"epochs": 10, "batch": 4}}
    result = run_experiment(piped(tmp_path, "fedem", pretrain=None, tune=tune), out=tmp_path / "run")
    tuned = tuned_of(tmp_path / "run")
    assert len(tuned) == result.federation.num_clients
    for own in tuned.values():
        assert own["mixing"].sum().item() == pytest.approx(1.0, rel=1e-6)
        assert (own["mixing"] >= 0).all()
        moved = [name for name in own if name != "mixing" and not torch.equal(own[name], result.server.shared[name])]
        assert len(moved) == len(result.server.shared)


@pytest.mark.parametrize(("part", "moves"), [("personal", {"gate"}), ("all", {"gate", "network"})])
def test_tuning_moves_the_gate_or_the_network_too(tmp_path, part, moves):
    tune = {**TUNE, "part": part}
    result = run_experiment(piped(tmp_path, "pfedgate", pretrain=None, tune=tune), out=tmp_path / "run")
    for client, own in tuned_of(tmp_path / "run").items():
        assert {name.partition(".")[0] for name in own} == moves
        before = {**result.program.initial_state(client), **(result.store.get(client) or {}), **result.server.shared}
        assert any(not torch.equal(value, before[name]) for name, value in own.items())


def test_a_gated_network_starts_from_the_model_of_the_first_stage(tmp_path):
    still = {"lr": 0.0, "gate_lr": 0.0}
    result = run_experiment(piped(tmp_path, "pfedgate", tune=None, method_options=still))
    first = run_experiment(make_experiment(table("fedavg", rounds=3, method_options={"lr": 0.2})))
    network = {name.removeprefix("network."): value for name, value in result.server.shared.items()}
    assert same_bits(network, first.server.shared)


def test_capacities_are_for_the_second_stage_alone(tmp_path):
    """FedMask begins with pretraining, as its page says, whatever clients can afford."""
    tiers = {"density": {"tiers": [[0.5, 1.0], [0.5, 0.5]]}}
    result = run_experiment(piped(tmp_path, "fedmask", tune=None, capacity=tiers), out=tmp_path / "run")
    assert result.status == "finished"
    capacities = {float(row["capacity"]) for row in records.read_visits(tmp_path / "run")}
    assert capacities <= {1.0, 0.5}


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("fedem", {}, "same values"),
        ("pfedhn", {}, "makes its whole model itself"),
        ("fedavg", {"tune": {**TUNE, "part": "personal"}}, "no personal part"),
        ("fedspa", {"capacity": {"density": 2.0}}, "density"),
        ("pfedhn", {"pretrain": None, "tune": {**TUNE, "part": "personal"}}, "no personal part"),
    ],
)
def test_what_is_wrong_with_later_stages_is_told_before_the_first_is_trained(tmp_path, method, changes, says):
    changes = {"tune": None, "pretrain": {**PRETRAIN, "rounds": 100_000}} | changes
    with pytest.raises(InvalidInput, match=says):
        run_experiment(piped(tmp_path, method, **changes), out=tmp_path / "run")
    assert kept(tmp_path) == []
    assert not (tmp_path / "run").exists()


def test_weights_of_a_file_that_would_change_nothing_are_refused(tmp_path):
    run_experiment(make_experiment(table("fedavg")), out=tmp_path / "first")
    weights = {"weights": str(tmp_path / "first" / records.SHARED)}
    with pytest.raises(InvalidInput, match="makes its whole model itself"):
        run_experiment(make_experiment(table("pfedhn", model=weights)))
    run_experiment(make_experiment(table("fedper", model=weights)))
