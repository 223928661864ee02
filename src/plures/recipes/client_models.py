"""One client's model out of a run: which it is, and the network with its values put in."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from plures.core.adapting import adapted, last_round
from plures.core.client import arrival
from plures.core.context import lone_facts, make_visit
from plures.core.errors import InvalidConfig, InvalidModel, did_you_mean
from plures.core.method import View, own_parameters
from plures.core.program import Binding, Program
from plures.core.types import Params
from plures.data import Federation
from plures.data.joining import Everyone, everyone
from plures.evaluate import Evaluator, ModelKind
from plures.recipes.threads import one_thread

if TYPE_CHECKING:
    from plures.recipes.results import RunResult

FEW = 30
"""Clients whose names are told one by one."""
SHARED = "shared"
"""What a client chose that keeps to the shared model."""


@dataclass(frozen=True, kw_only=True)
class PickedModel:
    """A client's model as it predicts, apart from the preparation of its inputs."""

    client: int
    kind: ModelKind
    """As it was asked for."""
    chosen: str | None
    """Under a guard, what the client chose: its own kind of model, or "shared"."""
    program: Program
    """Of the network: that of the run, or that of the model the guard falls back on."""
    module: nn.Module
    """In evaluation mode; nobody else's."""


def number_of(result: RunResult, client: int | str) -> int:
    """The number of a client, by its number or name; newcomers come after the others."""
    clients = everyone(result.federation, result.newcomers)
    if isinstance(client, int):
        if not 0 <= client < clients.num_clients:
            raise InvalidConfig(f"There is no client {client}: clients are numbered 0 to {clients.num_clients - 1}.")
        return client
    names = [clients.name(number) for number in range(clients.num_clients)]
    if client in names:
        return names.index(client)
    if client.isdecimal() and int(client) < clients.num_clients:
        return int(client)
    near = did_you_mean(client, names) if len(names) <= FEW or did_you_mean(client, names).startswith("Did") else ""
    raise InvalidConfig(f"There is no client '{client}'. {near or f'They are numbered 0 to {len(names) - 1}.'}")


def clients_of(result: RunResult, number: int) -> Federation | Everyone:
    """Those among whom a client was scored: participants, or for a newcomer all."""
    return everyone(result.federation, result.newcomers) if is_newcomer(result, number) else result.federation


def is_newcomer(result: RunResult, number: int) -> bool:
    return number >= result.federation.num_clients


def model_of(result: RunResult, client: int | str, kind: ModelKind | None = None) -> PickedModel:
    """A client's model: of the kind asked for, else what it chose under a guard, else what the method is judged by."""
    number = number_of(result, client)
    kind = kind or usual_kind(result, number)
    check_kind(result, number, kind)
    chosen = result.choices[number] if kind == "guarded" else None
    if chosen == SHARED and result.fallback is not None:
        program = result.fallback.program
        scorer = Evaluator(program, clients_of(result, number), result.store, result.federation.goal).scorer
        seen = scorer.shared_model(number, result.fallback.shared)
    else:
        program = result.program
        seen = seen_by_network(result, number, inner_kind(kind, chosen))
    module = filled(program.binding(number), seen)
    return PickedModel(client=number, kind=kind, chosen=chosen, program=program, module=module)


def inner_kind(kind: ModelKind, chosen: str | None) -> ModelKind:
    if kind != "guarded":
        return kind
    return "global" if chosen == SHARED else cast(ModelKind, chosen)


def usual_kind(result: RunResult, number: int) -> ModelKind:
    if is_newcomer(result, number):
        return "global" if result.headline == "global" else "finetuned"
    return "guarded" if result.choices else result.headline


def check_kind(result: RunResult, number: int, kind: ModelKind) -> None:
    """Refuse a model that this client has not."""
    name = result.program.method.name
    if kind == "global" and not result.program.has_global_model():
        raise InvalidConfig(f"{name} has no global model: some of it is personal. Ask for another, such as personal.")
    if kind == "guarded" and number not in result.choices:
        what = "is a newcomer, who is" if is_newcomer(result, number) and result.choices else "of this run was"
        raise InvalidConfig(f"Client {number} {what} not asked by a guard. Ask for personal, finetuned or global.")
    if is_newcomer(result, number) and kind not in ("finetuned", "global"):
        raise InvalidConfig(
            f"Client {number} is a newcomer: its own model is what the method makes for newcomers. Ask for finetuned."
        )


@one_thread()
def seen_by_network(result: RunResult, number: int, kind: ModelKind) -> Params:
    """What the network is given when the model is scored: parameters and statistics."""
    clients, program = clients_of(result, number), result.program
    newcomers = [number] if is_newcomer(result, number) else None
    evaluator = Evaluator(program, clients, result.store, result.federation.goal, newcomers=newcomers)
    if kind == "global":
        return evaluator.scorer.shared_model(number, result.server.shared)
    binding, view = program.binding(number), program.method.predict
    if kind == "finetuned" and number in result.tuned:
        params = tuned_model(result, number)
    else:
        params = evaluator.own_model(result.server, number, kind)
    params = evaluator.scorer.whole(number, params, view)
    inputs = binding.task.place(clients.client(number).train).inputs
    check_view(program, view, params, inputs)
    return view(params, inputs)


def tuned_model(result: RunResult, number: int) -> Params:
    """Stage (c) of a pipeline as it was kept; running statistics, which are not, are found again by tuning again."""
    facts = lone_facts(result.federation, number)
    visit = make_visit(
        result.program, result.federation, result.store, result.server, number, last_round(result.server), facts
    )
    binding = result.program.binding(number)
    before = adapted(result.program, visit) if binding.statistics else arrival(binding, visit)
    return before | result.tuned[number]


def check_view(program: Program, view: View, params: Params, inputs: torch.Tensor) -> None:
    """A model whose parameters follow its inputs is more than a network with values."""
    if view is own_parameters or len(inputs) < 2:
        return
    all_of_them, first = view(params, inputs), view(params, inputs[:1])
    if any(not torch.equal(value, first[name]) for name, value in all_of_them.items()):
        raise InvalidModel(
            f"{program.method.name} shows its network other parameters for other inputs (Method.predict), which no "
            "file of parameters can do. Put that into the network itself (Method.wrap)."
        )


def filled(binding: Binding, seen: Params) -> nn.Module:
    """The network as an ordinary module with these values; its own is left as it is."""
    module = copy.deepcopy(binding.task.module)
    put_in(module, {name: seen[name] for name in binding.task.names})
    return module.eval().requires_grad_(False)


def put_in(module: nn.Module, values: Params) -> None:
    """Values by name into parameters and buffers, whether or not these are in the state dict."""
    places = dict(module.named_parameters()) | dict(module.named_buffers())
    with torch.no_grad():
        for name, value in values.items():
            places[name].copy_(value)
