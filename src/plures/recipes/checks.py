"""Everything that can be wrong with a run, found before round 1 and told at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import get_args

import torch

from plures.core.context import Server, lone_facts, make_visit
from plures.core.errors import InvalidConfig, InvalidInput, InvalidModel, InvalidSplit, did_you_mean
from plures.core.method import Optimizer, Phase
from plures.core.problem import Problem
from plures.core.program import Binding, Program
from plures.core.rates import check_count, check_rate
from plures.core.types import Batch, travels
from plures.data import Federation, check_federation
from plures.evaluate import SplitName
from plures.participation import Sampler
from plures.recipes.plan import EvaluationPlan
from plures.stores.memory import MemoryStore

SPLITS: tuple[str, ...] = get_args(SplitName)
MODELS = ("global", "personal", "finetuned")
CLIENTS_TRIED = 1000
"""Most clients whose own architectures are built and tried before a run."""


def check_run(program: Program, federation: Federation, sampler: Sampler, rounds: int, plan: EvaluationPlan) -> None:
    """Raise one error that lists every problem of data, cohort, split, method and network."""
    problems: list[str] = []
    first: InvalidInput | None = None
    for check in (
        lambda: check_rounds(rounds),
        lambda: check_federation(federation),
        lambda: sampler.check(federation.num_clients),
        lambda: check_rates(program, rounds if isinstance(rounds, int) else 0),
        lambda: check_plan(plan),
        lambda: check_networks(program, federation),
        lambda: check_global_model(program, plan),
    ):
        error = caught(check)
        if error is not None:
            first = first or error
            problems += error.problems
    if first is not None:
        raise type(first)(problems) if len(problems) == len(first.problems) else InvalidInput(problems)


def caught(check: Callable[[], None]) -> InvalidInput | None:
    try:
        check()
    except InvalidInput as error:
        return error
    return None


def check_rounds(rounds: int) -> None:
    check_count("rounds", rounds, least=1)


def check_device(device: str) -> None:
    """Try the device once: torch names it in many ways, and may have been built without it."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidConfig(
            f"The device '{device}' cannot be used: {reason} Use 'cpu', or 'cuda' where there is one."
        ) from error


def check_plan(plan: EvaluationPlan) -> None:
    check_count("every of the evaluation", plan.every, least=1)
    for what, given, known in (("splits", plan.splits, SPLITS), ("models", plan.models or (), MODELS)):
        if isinstance(given, str):
            raise InvalidConfig(f"{what} of the evaluation is a list of words, not the word '{given}'.")
        for word in given:
            if word not in known:
                raise InvalidConfig(f"There is no '{word}' among the {what} to evaluate. {did_you_mean(word, known)}")


def check_global_model(program: Program, plan: EvaluationPlan) -> None:
    if "global" in (plan.models or ()) and not program.has_global_model():
        raise InvalidConfig(
            f"{program.method.name} has no global model to evaluate: some of its parameters are personal. "
            "Leave 'global' out of the evaluation's models."
        )


def check_rates(program: Program, rounds: int) -> None:
    """A schedule, perhaps the user's own, gives a usable rate in every round."""
    for rule in rules_of(program):
        for round in range(1, rounds + 1):
            try:
                check_rate(f"the learning rate in round {round}", rule.lr(round))
            except OverflowError as error:
                raise InvalidConfig(f"The learning rate in round {round} is too large for a number.") from error


def rules_of(program: Program) -> Iterator[Optimizer]:
    phases = (*program.method.local, *program.method.adapt)
    for chosen in (*(phase.optimizer for phase in phases), program.method.server):
        if isinstance(chosen, Mapping):
            yield from chosen.values()
        else:
            yield chosen


def check_networks(program: Program, federation: Federation) -> None:
    """Try each architecture once: does it take the data, give enough outputs, and fit the method?"""
    seen: set[Hashable] = set()
    for client in range(min(federation.num_clients, CLIENTS_TRIED)):
        key = program.networks.key(client)
        # In a local label space clients of one architecture may still need different numbers of outputs.
        fresh = (key, federation.num_classes(client))
        if fresh not in seen:
            seen.add(fresh)
            check_binding(program, federation, client)


def check_binding(program: Program, federation: Federation, client: int) -> None:
    binding = program.binding(client)
    check_method(program, binding)
    check_shared(program, binding, federation.name(client))
    batch = binding.task.place(first_examples(federation.client(client).train))
    output = check_forward(binding, batch, federation.name(client))
    wanted = federation.num_classes(client)
    if not batch.targets.is_floating_point() and (output.dim() < 2 or output.shape[1] < wanted):
        outputs = output.shape[1] if output.dim() > 1 else 1
        raise InvalidModel(
            f"{type(binding.task.module).__name__} has {outputs} outputs, but client {federation.name(client)} needs "
            f"{wanted} (classes). Build the network with classes={wanted}."
        )
    check_solvers(program, federation, client, binding)


def first_examples(batch: Batch) -> Batch:
    return Batch(batch.inputs[:2], batch.targets[:2])


def check_method(program: Program, binding: Binding) -> None:
    """Every part that a phase moves exists in the split or is allowed to be empty; none is unknown."""
    known = {"shared", "personal", *binding.parts.values()}
    for phase in (*program.method.local, *program.method.adapt):
        for part in phase.moves:
            if part not in known:
                raise InvalidSplit(f"A phase trains the part '{part}', but the split has only {sorted(known)}.")
    if program.method.run_round is None and not any(has_work(phase, binding) for phase in program.method.local):
        raise InvalidSplit("No phase of the method moves any parameter: nothing would be trained.")


def has_work(phase: Phase, binding: Binding) -> bool:
    return bool(binding.names(*phase.moves)) or phase.observe is not None


def check_shared(program: Program, binding: Binding, client: str) -> None:
    """The shared part must be the same for all clients, name by name."""
    reference = {name: value.shape for name, value in program.initial_shared().items()}
    mine = {name: value.shape for name, value in binding.picked(travels).items()}
    if mine != reference:
        names = sorted({*mine.items()} ^ {*reference.items()})
        raise InvalidModel(
            f"The shared part of client {client}'s network differs from the first client's (see '{names[0][0]}'). "
            "Clients may differ only in their personal part: make that parameter personal, or the networks equal."
        )


def check_forward(binding: Binding, batch: Batch, client: str) -> torch.Tensor:
    params = {name: value.clone() for name, value in binding.values.items()}
    binding.task.train(False)
    try:
        with torch.no_grad():
            output = binding.task.output(params, batch.inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InvalidModel(
            f"{type(binding.task.module).__name__} does not take client {client}'s inputs of shape "
            f"{tuple(batch.inputs.shape[1:])} ({batch.inputs.dtype}): {error}. Build it for that shape."
        ) from error
    if not isinstance(output, torch.Tensor):
        raise InvalidModel(
            f"{type(binding.task.module).__name__} gives a {type(output).__name__}, not one tensor. Wrap it so "
            "that it returns the tensor to be compared with the targets."
        )
    return output


def check_solvers(program: Program, federation: Federation, client: int, binding: Binding) -> None:
    """Solvers that work only on some networks say so here."""
    server = Server(round=0, shared=program.initial_shared(), optimizer={})
    for phase in (*program.method.local, *program.method.adapt):
        check = getattr(phase.solver, "check", None)
        if check is not None:
            visit = make_visit(program, federation, MemoryStore(), server, client, 1, lone_facts(federation, client))
            check(Problem(phase=phase, visit=visit, binding=binding, params=visit.received | visit.state))
