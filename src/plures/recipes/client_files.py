"""Reads a client's model from a safetensors file that Plures exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel, RunFolderError
from plures.core.method import Method
from plures.core.networks import Bare
from plures.core.seeds import global_draws
from plures.core.types import Params
from plures.models import AnyModel, as_networks
from plures.recipes.build import named_method
from plures.recipes.client_models import put_in
from plures.recipes.deployed import ClientModel
from plures.recipes.experiment import Model
from plures.recipes.networks import build_started
from plures.recipes.options import called, method_options
from plures.recipes.preparations import rebuilt

VERSION = 1
"""Of what the file says of the model."""


def load_client(path: str | Path, *, model: AnyModel | None = None, method: Method | None = None) -> ClientModel:
    """The model of a client, ready to predict, from a safetensors file of `plures export`; no run folder is needed.

    The network is built as the experiment named it. Where a run was made from code, give its `model`, and its `method`
    if that builds a network around the model (fedem, pfedgate).
    """
    facts, values = read_client_file(Path(path))
    shape = tuple(facts["network_inputs"]["shape"])
    example = torch.zeros(1, *shape, dtype=getattr(torch, facts["network_inputs"]["dtype"]))
    with global_draws(0, "load client"):
        network = rebuilt_network(facts, example, model, method, Path(path))
    check_fits(network, values, Path(path))
    put_in(network, values)
    raw = facts["inputs"]["takes"] == "raw"
    prepare = rebuilt(facts["preparation"]) if raw else None
    return ClientModel(network.requires_grad_(False), prepare, facts).eval()


def read_client_file(path: Path) -> tuple[dict[str, Any], Params]:
    """What the file says of the model, and its tensors."""
    try:
        with safe_open(path, "pt") as file:
            texts = file.metadata() or {}
            values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except FileNotFoundError as error:
        raise RunFolderError(f"There is no file {path}. Give one that plures export has written.") from error
    except (OSError, SafetensorError) as error:
        other = {".pt2": "torch.export.load(path).module()", ".onnx": "onnxruntime.InferenceSession(path)"}
        remedy = f"Read it by {other[path.suffix]}" if path.suffix in other else "Export the model again"
        raise RunFolderError(f"Cannot read {path} as safetensors: {error}. {remedy}.") from error
    if "format" not in texts or "client" not in texts:
        raise RunFolderError(f"{path} holds no model of a client: give a file that plures export has written.")
    facts = {name: json.loads(text) for name, text in texts.items()}
    if facts["format"] > VERSION:
        raise RunFolderError(f"{path} was written by a later version of Plures ({facts['plures']}): use that.")
    return facts, values


def rebuilt_network(
    facts: dict[str, Any], example: torch.Tensor, model: AnyModel | None, method: Method | None, path: Path
) -> nn.Module:
    """The network without its values, in what the method builds around it."""
    told = facts["network"]

    def build() -> nn.Module:
        if model is not None:
            networks = as_networks(model)
            return networks.build(networks.key(facts["client"]["number"]))
        if told is None:
            raise InvalidConfig(f"{path} is of a run from code: give its network, plures.load_client(path, model=...).")
        shape = tuple(facts["network_inputs"]["shape"])
        return build_started(Model.model_validate(told), None, shape, facts["outputs"])[0]

    module = build()
    if not facts["wrapped"]:
        return module
    wrap = (method or rebuilt_method(facts, path)).wrap
    if wrap is None:
        raise InvalidConfig(f"The method of {path} builds a network around the model, but the one given does not.")
    return wrap(Bare(module=module, another=lambda number: build(), example=lambda: example))


def rebuilt_method(facts: dict[str, Any], path: Path) -> Method:
    told = facts["method"]
    if told["options"] is None:
        raise InvalidConfig(f"{path} is of a run from code: give its method too, plures.load_client(path, method=...).")
    info = named_method(told["named"])
    made: Method = called(info.name, info.make, method_options(info, told["options"], rounds=max(facts["round"], 1)))
    return made


def check_fits(network: nn.Module, values: Params, path: Path) -> None:
    """The network has a place for every tensor, and a tensor for every place."""
    places = {name: tuple(value.shape) for name, value in (*network.named_parameters(), *network.named_buffers())}
    found = {name: tuple(value.shape) for name, value in values.items()}
    if places != found:
        name = sorted(set(places.items()) ^ set(found.items()))[0][0]
        raise InvalidModel(
            f"The tensors of {path} do not fit the network: they differ in '{name}'. Give the network of the run."
        )
