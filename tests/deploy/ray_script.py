"""Two deployments on actors of Ray, told as JSON; a process of its own, for Ray leaves much behind in one."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch

from plures.deploy.handler import Handler
from plures.deploy.messages import opened_order
from plures.deploy.node_data import read_folder
from plures.deploy.on_ray import Handle, OnRay
from plures.recipes import run_experiment
from plures.recipes.experiment import Experiment
from tests.deploy.helpers import FIRST_NODE, Deployment, counted, small

TOLERANT = {"tolerate": {"least_cohort": 1, "deadline": 60.0}}


def made(experiment: Experiment, folder: Path, states: Path, deadly: bool = False) -> Handle:
    handler = Handler(experiment, partial(read_folder, folder, experiment), states, folder.name)

    def dying(letter: bytes) -> bytes:
        order, _ = opened_order(letter)
        mark = states.with_name(f"{states.name}-died")
        if order.kind == "train" and order.round == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return handler.handle(letter)

    return dying if deadly else handler.handle


def transport(deployment: Deployment, deadly: int | None = None) -> OnRay:
    states = deployment.path / "states"
    return OnRay(
        {
            FIRST_NODE + client: partial(made, deployment.experiment, folder, states / folder.name, client == deadly)
            for client, folder in enumerate(deployment.folders)
        }
    )


def undisturbed(path: Path) -> dict[str, Any]:
    experiment = small("fedper", cohort="all")
    alone = run_experiment(experiment)
    deployment = Deployment.of(experiment, path)
    result = deployment.serve(transport(deployment))  # type: ignore[arg-type]
    pairs = [(alone.server.shared, result.server.shared)]
    pairs += [(alone.store.get(n) or {}, deployment.kept(n, counted(result, n)) or {}) for n in range(3)]
    return {"same": [all(torch.equal(mine[name], theirs[name]) for name in mine) for mine, theirs in pairs]}


def with_a_death(path: Path) -> dict[str, Any]:
    deployment = Deployment.of(small("fedper", cohort="all", rounds=4, **TOLERANT), path)
    result = deployment.serve(transport(deployment, deadly=1))  # type: ignore[arg-type]
    lost = [{one["client"]: one["kind"] for one in line.get("lost", ())} for line in result.history]
    return {"lost": lost, "counted": counted(result, 0), "said": deployment.said}


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    told = [undisturbed(Path(sys.argv[1]) / "one"), with_a_death(Path(sys.argv[1]) / "two")]
    sys.stdout.write(json.dumps(told) + "\n")
    ray.shutdown()
