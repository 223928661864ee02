"""When a run has finished: metrics from the nodes, the shared part for a newcomer, and each node's model as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import plures
from plures.core.errors import InvalidConfig, RunFolderError
from plures.deploy.afterwards import Finished
from plures.deploy.exporting import export_node
from plures.deploy.fetching import Newcomer
from plures.recipes import run_experiment
from tests.deploy.helpers import FIRST_NODE, Deployment, small


def test_nodes_are_evaluated_again_and_tell_the_same(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedper", cohort="all"), tmp_path)
    result = deployment.serve()
    finished = Finished(deployment.experiment, deployment.transport, tmp_path / "out", keyed=False)
    found = finished.evaluate(("test",), wait=5.0)
    with pytest.raises(InvalidConfig, match="no 'tset' among the splits"):
        finished.evaluate(("tset",))  # type: ignore[arg-type]
    finished.close()
    now = {name: summary for one in found for name, summary in one.summaries().items()}
    assert now
    for name, summary in now.items():
        assert summary == result.metrics[name]


def test_without_a_finished_run_there_is_nothing_to_evaluate(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedper"), tmp_path)
    with pytest.raises(RunFolderError, match="has no deployment that has finished"):
        Finished(deployment.experiment, deployment.transport, tmp_path / "out", keyed=False)
    deployment.serve()
    other = deployment.experiment.model_copy(update={"seed": 9})
    with pytest.raises(RunFolderError, match="another experiment"):
        Finished(other, deployment.transport, tmp_path / "out", keyed=False)


@pytest.mark.parametrize("while_running", [True, False])
def test_a_newcomer_is_given_the_shared_part(while_running: bool, tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedalt", rounds=4), tmp_path)
    done: list[bool] = []
    newcomer = Newcomer(deployment.experiment, tmp_path / "shared.safetensors", "new", done=lambda: done.append(True))
    transport = deployment.transport()
    if while_running:
        transport.handlers[999] = newcomer.handle
        result = deployment.serve(transport)
    else:
        result = deployment.serve(transport)
        transport.handlers[999] = newcomer.handle
        finished = Finished(deployment.experiment, lambda: transport, tmp_path / "out", keyed=False)
        assert finished.give(1.0) >= 1
    assert done
    fetched = load_file(tmp_path / "shared.safetensors")
    assert fetched.keys() == result.server.shared.keys()
    if not while_running:
        assert all(torch.equal(fetched[name], value) for name, value in result.server.shared.items())
    table = {**small("fedalt").model_dump(exclude_unset=True), "rounds": 1}
    table["model"] = {**table["model"], "weights": str(tmp_path / "shared.safetensors"), "match": "loose"}
    assert run_experiment(plures.make_experiment(table)).server.round == 1


def test_a_node_exports_the_model_that_it_ended_with(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedper", cohort="all"), tmp_path)
    result = deployment.serve()
    name = deployment.folders[1].name
    done = export_node(
        deployment.experiment, deployment.folders[1], tmp_path / "states" / name, name, tmp_path / "mine.safetensors"
    )
    told = next(score for score in result.scores("personal") if score.client == 1)
    assert done.value == pytest.approx(told.values["accuracy"])
    model = plures.load_client(tmp_path / "mine.safetensors")
    assert model.facts["client"]["name"] == name
    with pytest.raises(InvalidConfig, match="no run that has finished"):
        export_node(deployment.experiment, deployment.folders[1], tmp_path / "none", name, tmp_path / "x.safetensors")


def test_nobody_else_is_seated_in_the_place_of_a_node_with_a_key(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg"), tmp_path)
    deployment.serve(keyed=True)
    transport = deployment.transport()
    transport.handlers[555] = transport.handlers.pop(FIRST_NODE)  # the same name under another key
    finished = Finished(
        deployment.experiment, lambda: transport, tmp_path / "out", keyed=True, tell=deployment.said.append
    )
    found = finished.evaluate(("test",), wait=1.0)
    assert {score.client for one in found for score in one.scores} == {1, 2}
    assert any("another key" in text for text in deployment.said)
