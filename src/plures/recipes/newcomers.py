"""A personal model for a client that a finished run has never seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.method import own_parameters
from plures.core.networks import NetworkPerClient, Networks
from plures.core.program import Program
from plures.core.seeds import generator
from plures.core.types import Batch, travels
from plures.data import Federation
from plures.data.client import make_client
from plures.data.joining import Everyone
from plures.data.populations import ReadyPopulation
from plures.evaluate import ClientScore, Evaluator
from plures.recipes.client_models import PickedModel, check_view, filled
from plures.recipes.deployed import ClientModel
from plures.recipes.exporting import Exported, check_free, deployable, write_model
from plures.recipes.formats import SUFFIXES, format_of
from plures.recipes.network_checks import check_binding
from plures.recipes.newcomer_examples import fitted, other_range
from plures.recipes.newcomer_ways import way_of
from plures.recipes.results import RunResult
from plures.recipes.threads import one_thread
from plures.stores.memory import MemoryStore

HOLD_OUT = 0.2
NAME = "newcomer"


@dataclass(frozen=True, kw_only=True, repr=False)
class Adapted:
    """A newcomer's model, and how it fares beside the shared one on examples that were kept out."""

    result: RunResult
    """Of the run that it comes from."""
    picked: PickedModel
    clients: Everyone
    """The run's participants, and the newcomer after them."""
    way: str
    """How the method makes a model for a newcomer."""
    train: int
    held_out: int
    """Examples."""
    begins: str
    """What `before` is of."""
    before: ClientScore | None
    after: ClientScore | None
    """On the examples that were kept out; None: none were."""
    notes: tuple[str, ...]

    @property
    def model(self) -> ClientModel:
        """The model, ready to predict."""
        return deployable(self.result, self.picked, self.clients)

    def save(
        self,
        path: str | Path | None = None,
        *,
        format: str | None = None,
        prepared: bool = False,
        overwrite: bool = False,
    ) -> Exported:
        """Write the model as `plures.export_client` does; by default to newcomer.safetensors."""
        asked = None if path is None else Path(path)
        chosen = format_of(format, asked)
        where = file_of(asked, format)
        check_free(where, overwrite=overwrite)
        return write_model(self.result, self.picked, self.clients, where, chosen, prepared)

    def as_json(self) -> dict[str, Any]:
        return {
            "way": self.way,
            "train": self.train,
            "held_out": self.held_out,
            "begins": self.begins,
            "before": None if self.before is None else dict(self.before.values),
            "after": None if self.after is None else dict(self.after.values),
            "notes": list(self.notes),
        }


def file_of(path: Path | None, format: str | None) -> Path:
    """Where a newcomer's model goes."""
    return path or Path(f"{NAME}{SUFFIXES[format_of(format, path)]}")


def adapt(
    result: RunResult,
    inputs: Any,
    targets: Any,
    *,
    hold_out: float = HOLD_OUT,
    capacity: float | None = None,
    seed: int | None = None,
) -> Adapted:
    """A model for a client that was never trained on, made as the run's method makes models for newcomers.

    `inputs` and `targets` are as the run's data have them (raw: bytes of images, rows of a table); targets may be
    names of classes. A share `hold_out` of the examples, drawn by `seed` (by default the run's), is kept out of
    training, and the shared model and the newcomer's are compared on it; with 0 all are trained on.
    """
    federation = result.federation
    examples = fitted(inputs, targets, federation)
    train, test = held_out(examples, hold_out, result.program.seed if seed is None else seed)
    clients = with_newcomer(federation, train, test)
    number = federation.num_clients
    program = for_newcomer(result, clients, capacity)
    program.binding(0)  # others hold what travels in common with it
    check_binding(program, clients, number)
    picked, before, after = welcomed(result, program, clients)
    note = other_range(examples.inputs, federation)
    return Adapted(
        result=result,
        picked=picked,
        clients=clients,
        way=way_of(program),
        train=train.num_examples,
        held_out=test.num_examples,
        begins=begins_with(program),
        before=before,
        after=after,
        notes=() if note is None else (note,),
    )


def held_out(examples: Batch, share: float, seed: int) -> tuple[Batch, Batch]:
    """Examples to train on, and examples that are kept out; at least one of either, unless the share is 0."""
    if not 0 <= share < 1:
        raise InvalidConfig(f"hold_out is {share!r}: give a share of the examples, from 0 to less than 1.")
    size = examples.num_examples
    if share and size < 2:
        raise InvalidData(
            "There is one example: of that nothing can be kept out. Give more, or keep none out (hold_out=0, or "
            "--hold-out 0)."
        )
    count = min(max(1, round(share * size)), size - 1) if share else 0
    order = torch.randperm(size, generator=generator(seed, "hold out"))
    places = sorted(order[count:].tolist()), sorted(order[:count].tolist())
    train, test = (Batch(examples.inputs[some], examples.targets[some]) for some in places)
    return train, test


def with_newcomer(federation: Federation, train: Batch, test: Batch) -> Everyone:
    """The participants of a run and one client more."""
    client = make_client(train, None, test, federation.label_space)
    population = ReadyPopulation(
        clients=[client], names=[NAME], classes=federation.classes, label_space=federation.label_space
    )
    one = Federation(population, goal=federation.goal, prepare=federation.prepare, class_names=federation.class_names)
    return Everyone(participants=federation, newcomers=one)


def for_newcomer(result: RunResult, clients: Everyone, capacity: float | None) -> Program:
    """The run's program, which knows the network and the capacity of the newcomer too."""
    program, number = result.program, clients.participants.num_clients
    affords = capacity_of(result, capacity)

    def of_each(client: int) -> float:
        return program.capacity(client) if affords is None or client != number else affords

    made = Program(
        program.method,
        with_own_head(program.networks, clients),
        loss=program.loss,
        seed=program.seed,
        device=str(program.device),
        augment=program.augment,
        wire=program.wire,
        capacity_of=None
        if affords is None
        else lambda client: affords if client == number else program.capacity(client),
        example=program.example,
        num_clients=program.num_clients,
    )
    made.stepping = program.stepping
    return made


def with_own_head(networks: Networks, clients: Everyone) -> Networks:
    """Where clients have heads of their own number of classes, the newcomer has one too."""
    known, number = clients.participants, clients.participants.num_clients
    if clients.label_space != "local" or not isinstance(networks, NetworkPerClient) or networks.alike:
        return networks
    if any(networks.key(client) != known.num_classes(client) for client in range(number)):
        return networks
    return replace(networks, key_of=clients.num_classes)


def capacity_of(result: RunResult, asked: float | None) -> float | None:
    """What the newcomer can afford: as told, or what every client of the run has."""
    program, rule = result.program, result.program.method.capacity
    if rule is None:
        if asked is not None:
            raise InvalidConfig(f"{program.method.name} gives every client the whole model: leave the capacity out.")
        return None
    if asked is not None:
        if not 0 < asked <= 1:
            raise InvalidConfig(f"capacity is {asked!r}: a {rule.unit} is above 0 and at most 1.")
        rule.sizes(program.binding(0).network, asked)
        return asked
    known = {program.capacity(client) for client in range(result.federation.num_clients)}
    if len(known) > 1:
        raise InvalidConfig(
            f"Clients of this run have capacities from {min(known):.3g} to {max(known):.3g} ({rule.unit}): say what "
            "this one can afford (capacity, or --capacity)."
        )
    return known.pop()


@one_thread()
def welcomed(
    result: RunResult, program: Program, clients: Everyone
) -> tuple[PickedModel, ClientScore | None, ClientScore | None]:
    """The newcomer's model, and its scores beside those of what it began with."""
    number, server = clients.participants.num_clients, result.server
    evaluator = Evaluator(program, clients, MemoryStore(), result.federation.goal, newcomers=[number])
    scorer, view, binding = evaluator.scorer, program.method.predict, program.binding(number)
    params = scorer.whole(number, evaluator.own_model(server, number, "finetuned"), view)
    inputs = binding.task.place(clients.client(number).train).inputs
    check_view(program, view, params, inputs)
    if program.has_global_model():
        before = scorer.score(number, scorer.shared_model(number, server.shared), "test", own_parameters)
    else:
        first = scorer.whole(number, evaluator.own_model(server, number, "personal"), view)
        before = scorer.score(number, first, "test", view)
    module = filled(binding, view(params, inputs))
    picked = PickedModel(client=number, kind="finetuned", chosen=None, program=program, module=module)
    return picked, before, scorer.score(number, params, "test", view)


def begins_with(program: Program) -> str:
    """What the newcomer has before it has done anything."""
    if program.has_global_model():
        return "shared model"
    parts = {program.binding(0).parts[name] for name in program.binding(0).task.parameters}
    return "shared part, own part untrained" if any(map(travels, parts)) else "untrained model"
