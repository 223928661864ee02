"""The same experiment in one process and between a server and nodes: the same bits at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import plures
from plures.methods import METHODS
from plures.recipes import RunResult, run_experiment
from tests.deploy.helpers import Deployment, counted, small
from tests.recipes.other_data import image_run, table_run, token_run

NOT_DEPLOYED = {"pfedhn": "its server changes what clients keep"}


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(NOT_DEPLOYED)))
def test_nodes_end_where_clients_of_one_process_end(method: str, tmp_path: Path) -> None:
    experiment = small(method)
    alone = run_experiment(experiment)
    deployment = Deployment.of(experiment, tmp_path)
    result = deployment.serve()
    assert result.server.round == alone.server.round
    for name, value in alone.server.shared.items():
        assert torch.equal(result.server.shared[name], value), name
    for client in range(3):
        mine, theirs = alone.store.get(client), deployment.kept(client, counted(result, client))
        assert (mine is None) == (theirs is None)
        for name, value in (mine or {}).items():
            assert torch.equal((theirs or {})[name], value), name
    assert {k: v.weighted for k, v in result.metrics.items()} == pytest.approx(
        {k: v.weighted for k, v in alone.metrics.items()}
    )
    assert result.cost["bytes_up"] == alone.cost["bytes_up"]
    assert result.cost["flops"] == alone.cost["flops"]


@pytest.mark.parametrize("method", sorted(NOT_DEPLOYED))
def test_what_cannot_be_deployed_is_refused_with_the_reason(method: str, tmp_path: Path) -> None:
    with pytest.raises(plures.PluresError, match=NOT_DEPLOYED[method]):
        Deployment.of(small(method), tmp_path).serve()


VARIANTS = {
    "wire": ("fedper", {"wire": {"upload": "int8", "download": "int8"}}),
    "half": ("fedalt", {"wire": {"upload": "float16", "download": "bfloat16"}}),
    "local labels": (
        "fedper",
        {"data": {"source": "digits", "clients": 3, "classes_per_client": 4, "label_space": "local"}},
    ),
    "capacities": ("heterofl", {"capacity": {"width": [1.0, 0.5, 0.25]}, "cohort": "all"}),
    "densities": ("fedspa", {"capacity": {"density": [0.5, 0.3, 0.2]}, "cohort": "all"}),
    "batch norm": ("fedavg", {"model": {"name": "tests.deploy.helpers:bn_net"}, "split": {"buffers": "shared"}}),
    "fast steps": ("fedper", {"engine": "cached"}),
    "robust": ("fedavg", {"server": {"robust": "median"}, "cohort": "all"}),
    "all models": ("fedalt", {"evaluation": {"every": 2, "models": "all", "metrics": ["macro_f1", "forgetting"]}}),
}


def assert_same(deployment: Deployment, result: RunResult, alone: RunResult) -> None:
    for name, value in alone.server.shared.items():
        assert torch.equal(result.server.shared[name], value), name
    for client in range(alone.federation.num_clients):
        mine, theirs = alone.store.get(client), deployment.kept(client, counted(result, client))
        assert all(torch.equal((theirs or {})[name], value) for name, value in (mine or {}).items())
    found = {name: summary.weighted for name, summary in result.metrics.items()}
    assert found == pytest.approx({name: summary.weighted for name, summary in alone.metrics.items()}, nan_ok=True)
    for key in ("bytes_up", "bytes_down", "values_up", "values_down", "peak_bytes"):
        assert result.cost[key] == alone.cost[key], key


@pytest.mark.parametrize("variant", VARIANTS)
def test_whatever_an_experiment_asks_for_is_the_same_on_nodes(variant: str, tmp_path: Path) -> None:
    method, more = VARIANTS[variant]
    experiment = small(method, **more)
    deployment = Deployment.of(experiment, tmp_path)
    assert_same(deployment, deployment.serve(), run_experiment(experiment))


@pytest.mark.parametrize("kind", ["bytes", "table", "tokens"])
def test_nodes_have_examples_of_every_kind(kind: str, tmp_path: Path) -> None:
    runs = {"bytes": lambda: image_run(tmp_path), "table": lambda: table_run(tmp_path), "tokens": token_run}
    alone = runs[kind]()
    assert alone.experiment is not None
    deployment = Deployment.of(alone.experiment, tmp_path)
    assert_same(deployment, deployment.serve(), alone)
