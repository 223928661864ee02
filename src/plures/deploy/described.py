"""A federation that is known by its description: sizes and shapes of all clients, examples of none or of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.goals import goal_named
from plures.core.types import Batch
from plures.data import ClientData, Federation
from plures.recipes.deploy_tables import DeployTable
from plures.recipes.experiment import Experiment
from plures.recipes.federations import build_augment
from plures.recipes.preparations import rebuilt


@dataclass(frozen=True, kw_only=True)
class Member:
    """A client as others know it."""

    name: str
    examples: int = 1
    """To train on."""


def table_of(experiment: Experiment) -> DeployTable:
    """The table [deploy]; an error where there is none, or where the experiment asks for what nodes cannot do."""
    table, problems = experiment.deploy, list[str]()
    if table is None:
        raise InvalidConfig(
            "The experiment has no table [deploy]: it says who takes part and what examples look like. "
            "'plures deploy split' writes one for data at hand; docs/deployment.md has an example."
        )
    if isinstance(table.clients, list) and (not table.clients or len(set(table.clients)) < len(table.clients)):
        problems.append("[deploy] clients has no names, or one of them twice: give each node a name of its own.")
    if table.goal != "regression" and not table.classes:
        problems.append(f"[deploy] classes is missing: say how many there are for {table.goal}.")
    if (experiment.data.label_space == "local") != (table.own_classes is not None):
        problems.append('[deploy] own_classes belongs to [data] label_space = "local": give both or neither.')
    if table.own_classes is not None and len(table.own_classes) != num_clients(table):
        problems.append(f"[deploy] has {num_clients(table)} clients, but own_classes of {len(table.own_classes)}.")
    problems += [
        f"{what} is of no use here: {why}."
        for what, why, is_given in (
            ("[pipeline]", "nodes run one stage; start from [model] weights instead", experiment.pipeline is not None),
            ("[faults]", "real clients need no simulated faults", experiment.faults is not None),
            ("[data] newcomers", "give newcomers the shared model", experiment.data.newcomers is not None),
            ("[evaluation] guard", "the server cannot see clients choose", bool(experiment.evaluation.guard)),
            ("[evaluation] diagnostics", "they need clients' gradients", experiment.evaluation.diagnostics),
            ("[evaluation] post_local", "evaluate the model 'post_local'", experiment.evaluation.post_local),
        )
        if is_given
    ]
    if problems:
        raise InvalidConfig(problems)
    return table


def num_clients(table: DeployTable) -> int:
    return table.clients if isinstance(table.clients, int) else len(table.clients)


def described_federation(
    experiment: Experiment, members: Sequence[Member], own: Mapping[int, ClientData] | None = None
) -> Federation:
    """Clients by number; those whose examples are not here have empty ones of the right form."""
    table, here = table_of(experiment), own or {}
    own_classes = table.own_classes
    federation = Federation.from_function(
        len(members),
        lambda client: here[client] if client in here else stand_in(table, members[client].examples, client),
        lambda client: here[client].train.num_examples if client in here else members[client].examples,
        table.classes,
        label_space=experiment.data.label_space,
        client_classes=None if own_classes is None else lambda client: own_classes[client],
        name=lambda client: members[client].name,
        cache_bytes=0,
        goal=goal_named(table.goal),
        prepare=rebuilt(table.preparation),
        augment=None if experiment.data.augment is None else build_augment(experiment.data.augment),
    )
    federation.class_names = tuple(table.class_names)
    return federation


def stand_in(table: DeployTable, examples: int, client: int | None = None) -> ClientData:
    """So many examples that are nothing; they take no memory."""
    inputs = torch.zeros(1, *table.shape, dtype=getattr(torch, table.dtype)).expand(examples, *table.shape)
    kind = torch.float32 if table.goal == "regression" else torch.int64
    targets = torch.zeros(1, *table.target_shape, dtype=kind).expand(examples, *table.target_shape)
    classes = tuple(range(most_classes(table, client))) if table.goal == "classification" else ()
    if classes:
        targets = torch.arange(examples) % len(classes)
    train = Batch(inputs, targets)
    return ClientData(train=train, validation=train, test=train, classes=classes)


def most_classes(table: DeployTable, client: int | None) -> int:
    """Of all clients, or where label spaces are local, of one."""
    return table.classes if table.own_classes is None or client is None else table.own_classes[client]


def check_fits(data: ClientData, table: DeployTable, client: int | None = None) -> None:
    """A node's own examples have the form that the experiment says; every problem is told at once."""
    problems: list[str] = []
    for split, batch in data.splits.items():
        like = stand_in(table, 1).train
        if batch.inputs.shape[1:] != like.inputs.shape[1:] or batch.inputs.dtype != like.inputs.dtype:
            problems.append(
                f"{split}: inputs are {batch.inputs.dtype} of shape {tuple(batch.inputs.shape[1:])}, but [deploy] says "
                f"{like.inputs.dtype} of {tuple(like.inputs.shape[1:])}."
            )
        if batch.targets.shape[1:] != like.targets.shape[1:]:
            problems.append(f"{split}: a target has shape {tuple(batch.targets.shape[1:])}, not {table.target_shape}.")
        gaps_allowed = (table.preparation or {}).get("kind") == "features"
        if batch.inputs.is_floating_point() and not gaps_allowed and not bool(torch.isfinite(batch.inputs).all()):
            problems.append(f"{split}: some inputs are not finite numbers. Correct them, or drop these examples.")
    if not data.train.num_examples:
        problems.append("There are no examples to train on.")
    most = most_classes(table, client)
    largest = max((int(batch.targets.max()) for batch in data.splits.values() if batch.targets.numel()), default=0)
    if table.goal != "regression" and largest >= most:
        problems.append(f"Targets go up to {largest}, but [deploy] has {most} classes, from 0 on.")
    if problems:
        raise InvalidData(problems)
