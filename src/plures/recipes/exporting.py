"""One client's complete model as a file: what is written, what it says of itself, and a check that it is the model."""

from __future__ import annotations

import re
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plures.core.errors import InvalidConfig
from plures.core.types import Batch
from plures.data import Federation
from plures.data.client import AnyClientData, PreparedClient
from plures.data.joining import Everyone, everyone
from plures.evaluate import ModelKind
from plures.recipes.build import given_options, named_method
from plures.recipes.client_files import VERSION, load_client
from plures.recipes.client_models import SHARED, PickedModel, clients_of, is_newcomer, model_of
from plures.recipes.deployed import ClientModel, told_inputs
from plures.recipes.experiment import Experiment, load_experiment
from plures.recipes.formats import SUFFIXES, Format, encoded, farthest, format_of, write
from plures.recipes.preparations import OWN, described
from plures.recipes.pretraining import STAGE_A, pretraining
from plures.recipes.results import RunResult
from plures.recipes.threads import one_thread
from plures.report import records

CHECKED = 512
"""Most examples that a file is tried on."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written, and how it was checked."""

    path: Path
    format: Format
    bytes: int
    client: int
    name: str
    model: ModelKind
    chosen: str | None
    """Under a guard, what the client chose."""
    inputs: str
    """What the model takes."""
    metric: str
    examples: int
    """Test examples of the client."""
    value: float | None
    """What the written model has of the metric on these."""
    apart: float
    """By how much outputs of the file differ from the model's at most, relative to the largest."""
    recorded: float | None = None
    """What the run recorded of the metric in its last evaluated round."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


def export_client(
    result: RunResult,
    client: int | str,
    path: str | Path | None = None,
    *,
    format: str | None = None,
    model: ModelKind | None = None,
    prepared: bool = False,
    overwrite: bool = False,
) -> Exported:
    """Write one client's model to a file: safetensors (`plures.load_client`), a torch program or an ONNX program.

    The model is what the client chose under a guard, else the one that the method is judged by, unless `model` asks for
    another. It takes inputs as the data have them (bytes of images, rows of a table) and prepares them itself, unless
    `prepared` says that they will come prepared.
    """
    asked = None if path is None else Path(path)
    chosen = format_of(format, asked)
    where = asked or Path(f"client-{re.sub(r'[^A-Za-z0-9._-]+', '-', str(client))}{SUFFIXES[chosen]}")
    check_free(where, overwrite=overwrite)
    picked = model_of(result, client, model)
    clients = clients_of(result, picked.client)
    made = write_model(result, picked, clients, where, chosen, prepared)
    return replace(made, recorded=recorded_value(result, picked))


def check_free(path: Path, *, overwrite: bool) -> None:
    """Before any work is done for it."""
    if not path.parent.is_dir():
        raise InvalidConfig(f"There is no folder {path.parent} to write {path.name} to. Make it, or choose another.")
    if path.exists() and not overwrite:
        raise InvalidConfig(f"{path} exists already. Choose another name with --out, or overwrite it with --force.")


@one_thread()
def write_model(
    result: RunResult,
    picked: PickedModel,
    clients: Federation | Everyone,
    path: Path,
    format: Format,
    prepared: bool,
) -> Exported:
    """Write a model, but not before what is to be written has been found to predict as it does."""
    data = clients.client(picked.client)
    deployed = deployable(result, picked, clients, prepared=prepared)
    raw = deployed.prepare is not None
    test, train = (taken(data, split, raw) for split in ("test", "train"))
    tried = (test.inputs if test.num_examples else train.inputs)[:CHECKED]
    content, run = encoded(deployed, two_of(tried), format)
    if format == "safetensors" and deployed.facts["network"] is not None:
        run = loaded_back(content)
    gap = farthest(deployed, run, tried)
    write(path, content)
    goal = result.federation.goal
    return Exported(
        path=path,
        format=format,
        bytes=len(content),
        client=picked.client,
        name=clients.name(picked.client),
        model=picked.kind,
        chosen=picked.chosen,
        inputs=told_inputs(deployed.facts),
        metric=goal.judged_by,
        examples=goal.count(test.targets),
        value=metric_of(result, deployed, test),
        apart=gap,
    )


def loaded_back(content: bytes) -> ClientModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.safetensors"
        path.write_bytes(content)
        return load_client(path)


def two_of(inputs: Tensor) -> Tensor:
    """Some inputs to follow a network with; of one, torch would take its number for a constant."""
    return inputs[:8] if len(inputs) > 1 else inputs.repeat(2, *[1] * (inputs.dim() - 1))


def taken(data: AnyClientData, split: str, raw: bool) -> Batch:
    """A client's examples as the model takes them, raw or prepared."""
    held = data.data if raw and isinstance(data, PreparedClient) else data
    return held.splits[split]


def metric_of(result: RunResult, model: ClientModel, test: Batch) -> float | None:
    goal = result.federation.goal
    if test.num_examples == 0 or goal.count(test.targets) == 0:
        return None
    with torch.inference_mode():
        outputs = torch.cat([model(some) for some in torch.split(test.inputs, CHECKED)])
    return goal.metrics[goal.judged_by](outputs, test.targets)


def recorded_value(result: RunResult, picked: PickedModel) -> float | None:
    """Of the same model on the same examples, as of the last evaluated round; None: not recorded, or since trained."""
    if result.metrics_round != result.server.round:
        return None
    scores = result.scores(picked.kind, newcomers=is_newcomer(result, picked.client))
    found = [score.values.get(result.metric) for score in scores if score.client == picked.client]
    return found[0] if found else None


def deployable(
    result: RunResult, picked: PickedModel, clients: Federation | Everyone, *, prepared: bool = False
) -> ClientModel:
    """A picked model with the preparation of its inputs, and all that is to be known of it."""
    preparation = described(result.federation.prepare)
    own = preparation is not None and preparation["kind"] == OWN
    raw = preparation is not None and not prepared and not own
    facts = facts_of(result, picked, clients, raw=raw)
    return ClientModel(picked.module.cpu(), result.federation.prepare if raw else None, facts).eval()


def facts_of(result: RunResult, picked: PickedModel, clients: Federation | Everyone, *, raw: bool) -> dict[str, Any]:
    """What a file says of its model; all of it is JSON."""
    experiment = experiment_of(result, picked)
    data, number = clients.client(picked.client), picked.client
    shown, seen = taken(data, "train", raw).inputs, data.train.inputs
    wrapped = picked.program.method.wrap is not None
    return {
        "format": VERSION,
        "plures": version("plures"),
        "method": method_told(picked, experiment),
        "run": {"fingerprint": result.fingerprint, "seed": result.facts.get("seed")},
        "round": result.server.round,
        "client": {"number": number, "name": clients.name(number)},
        "model": {"kind": picked.kind, "chosen": picked.chosen},
        "goal": result.federation.goal.name,
        "network": None if experiment is None else experiment.model.model_dump(exclude={"weights"}, exclude_none=True),
        "wrapped": wrapped,
        "outputs": outputs_of(result, picked),
        "network_inputs": {"shape": list(seen.shape[1:]), "dtype": name_of(seen)},
        "inputs": {
            "takes": "prepared" if result.federation.prepare is not None and not raw else "raw",
            "shape": list(shown.shape[1:]),
            "dtype": name_of(shown),
        },
        "preparation": described(result.federation.prepare),
        "labels": labels_of(result, data),
    }


def name_of(inputs: Tensor) -> str:
    return str(inputs.dtype).removeprefix("torch.")


def experiment_of(result: RunResult, picked: PickedModel) -> Experiment | None:
    """The file that names the picked network: of the run, or of the model that a guard falls back on."""
    if picked.chosen != SHARED or result.fallback is None or result.experiment is None:
        return result.experiment
    if result.fallback.name == STAGE_A:
        pipeline = result.experiment.pipeline
        assert pipeline is not None
        assert pipeline.pretrain is not None
        return pretraining(result.experiment, pipeline.pretrain)
    file = Path(result.fallback.name) / records.EXPERIMENT
    return load_experiment(file) if file.is_file() else None


def method_told(picked: PickedModel, experiment: Experiment | None) -> dict[str, Any]:
    name = picked.program.method.name
    if experiment is None:
        return {"name": name, "named": None, "options": None}
    info = named_method(experiment.method)
    return {"name": info.name, "named": experiment.method, "options": given_options(experiment, info)}


def outputs_of(result: RunResult, picked: PickedModel) -> int:
    """How many outputs the network was built with: of all classes, or where clients have own heads, of theirs."""
    networks = picked.program.networks
    key = networks.key(picked.client)
    if isinstance(key, int) and not getattr(networks, "alike", True):
        return key
    clients = everyone(result.federation, result.newcomers)
    return max(clients.num_classes(client) for client in range(clients.num_clients))


def labels_of(result: RunResult, data: AnyClientData) -> list[str] | None:
    """What each output stands for; in a local label space, the client's own classes in their order."""
    federation = result.federation
    if federation.goal.name == "regression":
        return None
    names = list(federation.class_names) or [str(number) for number in range(federation.classes)]
    return [names[number] for number in data.classes] if federation.label_space == "local" else names
