"""Who is let in: by name, by number, with the same file and examples that can be read; and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from plures.core.errors import InvalidConfig, TooFewClients
from plures.deploy.handler import Handler
from plures.deploy.messages import opened_reply, sealed
from plures.deploy.node_data import read_folder
from plures.recipes.experiment import Experiment
from tests.deploy.helpers import FIRST_NODE, Deployment, small


def impatient(deployment: Deployment, **more: object) -> Experiment:
    table = deployment.experiment.deploy
    assert table is not None
    deployment.experiment = deployment.experiment.model_copy(
        update={"deploy": table.model_copy(update={"wait": 0.5, **more})}
    )
    return deployment.experiment


def test_of_a_number_of_nodes_the_first_are_taken_and_numbered_by_name(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedper", cohort="all"), tmp_path)
    named = deployment.serve()
    other = Deployment(tmp_path / "other", deployment.experiment, deployment.folders[::-1])
    impatient(other, clients=3)
    result = other.serve()  # they come in another order
    assert [seat["name"] for seat in members(other)] == ["0", "1", "2"]
    assert all(torch.equal(result.server.shared[name], value) for name, value in named.server.shared.items())


def members(deployment: Deployment) -> list[dict[str, object]]:
    from plures.deploy.serving import noted

    told = noted(deployment.path / "out")
    assert told is not None
    found: list[dict[str, object]] = told["members"]
    return found


def test_who_does_not_come_is_told_by_name(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg"), tmp_path)
    impatient(deployment)
    transport = deployment.transport()
    del transport.handlers[FIRST_NODE + 1]
    with pytest.raises(TooFewClients, match=r"2 of 3 nodes are here; missing: 1\. Start the others"):
        deployment.serve(transport)
    assert not (tmp_path / "out").exists()


def test_a_node_with_another_file_is_not_let_in(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg"), tmp_path)
    impatient(deployment)
    transport = deployment.transport()
    other = deployment.experiment.model_copy(update={"seed": 5})
    folder = deployment.folders[0]
    handler = Handler(other, lambda: read_folder(folder, other), tmp_path / "s", folder.name)
    transport.handlers[FIRST_NODE] = handler.handle
    with pytest.raises(TooFewClients):
        deployment.serve(transport)
    assert any("0 has another experiment file" in text for text in deployment.said)


def test_a_node_with_another_version_is_not_let_in(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg"), tmp_path)
    impatient(deployment)

    def older(order: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        opened = opened_reply(handle(order))
        return sealed(opened.reply.model_copy(update={"version": "0.0.1"}), opened.body)

    deployment.spoil[2] = older
    with pytest.raises(TooFewClients):
        deployment.serve()
    assert any("2 has Plures 0.0.1, and the server" in text for text in deployment.said)


@pytest.mark.parametrize("harm", ["nan", "shape", "labels", "gone", "empty"])
def test_a_node_with_broken_examples_says_so_and_stays_out(harm: str, tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg"), tmp_path)
    impatient(deployment)
    path = deployment.folders[0] / "train.safetensors"
    held = load_file(path)
    if harm == "nan":
        held["inputs"] = held["inputs"].float().fill_(torch.nan)
    elif harm == "shape":
        held["inputs"] = held["inputs"][..., :4].contiguous()
    elif harm == "labels":
        held["targets"] = held["targets"] + 90
    elif harm == "empty":
        held = {name: value[:0] for name, value in held.items()}
    if harm == "gone":
        path.unlink()
    else:
        save_file(held, path)
    with pytest.raises(TooFewClients, match="missing: 0"):
        deployment.serve()
    assert any("its data is broken" in text for text in deployment.said)


def test_examples_that_have_changed_are_not_let_in_again(tmp_path: Path) -> None:
    experiment = small("fedper", rounds=4, cohort="all", tolerate={"least_cohort": 3, "deadline": 5.0})
    deployment = Deployment.of(experiment, tmp_path)
    impatient(deployment)
    transport = deployment.transport()

    def dies(order: bytes, handle: object) -> bytes:
        raise KeyboardInterrupt

    deployment.spoil[1] = dies  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        deployment.serve(transport)
    deployment.spoil.clear()
    with pytest.raises(TooFewClients):
        deployment.serve(InOneRound(deployment).transport())
    path = deployment.folders[0] / "train.safetensors"
    save_file({name: value[:-5].contiguous() for name, value in load_file(path).items()}, path)
    with pytest.raises(TooFewClients):
        deployment.serve(resume=True)
    assert any("other examples than when the run began" in text for text in deployment.said)


class InOneRound:
    """A deployment whose client 2 is there for one round."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    def transport(self):
        from plures.deploy.messages import opened_order

        transport = self.deployment.transport()
        handle = transport.handlers[FIRST_NODE]

        def leaving(order: bytes) -> bytes:
            told, _ = opened_order(order)
            if told.kind == "train" and told.round == 2:
                transport.handlers.pop(FIRST_NODE + 2, None)
            return handle(order)

        transport.handlers[FIRST_NODE] = leaving
        return transport


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"deploy": None}, "has no table"),
        ({"evaluation": {"guard": True}}, "guard"),
        ({"faults": {"absent": 0.1}}, "faults"),
        ({"pipeline": {"tune": "method"}}, "pipeline"),
        ({"data": {"source": "digits", "newcomers": 2}}, "newcomers"),
    ],
)
def test_what_nodes_cannot_do_is_refused_before_anything_begins(
    change: dict[str, object], problem: str, tmp_path: Path
) -> None:
    from plures.deploy.described import table_of
    from plures.recipes import make_experiment

    table = small("fedavg").model_dump(exclude_unset=True)
    table["deploy"] = {"clients": 3, "shape": [1, 8, 8], "classes": 10}
    table |= change
    table = {name: value for name, value in table.items() if value is not None}
    with pytest.raises(InvalidConfig, match=problem):
        table_of(make_experiment(table))
