"""Whether the networks of a run take its data and fit its method, found by trying each once before round 1."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice

import torch

from plures.core.client import arrival
from plures.core.context import Server, lone_facts, make_visit
from plures.core.errors import InvalidConfig, InvalidModel, InvalidSplit
from plures.core.method import Phase
from plures.core.problem import Problem
from plures.core.program import Binding, Program
from plures.core.seeds import global_draws
from plures.core.types import CONSTANT_BUFFERS, Batch, travels
from plures.data import Federation
from plures.data.joining import Everyone
from plures.stores.memory import MemoryStore

CLIENTS_TRIED = 1000
"""Most clients whose own architectures are built and tried before a run."""


def check_networks(program: Program, federation: Federation | Everyone) -> None:
    """Try each architecture once: does it take the data, give enough outputs, and fit the method?"""
    seen: set[Hashable] = set()
    for client in range(min(federation.num_clients, CLIENTS_TRIED)):
        key = program.networks.key(client)
        # In a local label space clients of one architecture may still need different numbers of outputs.
        fresh = (key, federation.num_classes(client))
        if fresh not in seen:
            seen.add(fresh)
            check_binding(program, federation, client)
    check_pairs(program, federation)


def check_binding(program: Program, federation: Federation | Everyone, client: int) -> None:
    binding = program.binding(client)
    check_selected(program, binding)
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
    check_moving_buffers(binding, batch)


def check_moving_buffers(binding: Binding, batch: Batch) -> None:
    """A buffer that training changes must be known as a running statistic, or each visit would forget it."""
    if batch.num_examples < 2:
        return
    params = {name: value.clone() for name, value in binding.values.items()}
    with torch.no_grad(), global_draws(0, "check"):
        binding.task.train(True)
        binding.task.output(params, batch.inputs)
        binding.task.train(False)
    for name in binding.names(CONSTANT_BUFFERS):
        if not torch.equal(params[name], binding.values[name]):
            raise InvalidModel(
                f"The buffer '{name}' changes while the network trains, but it is no running statistic of a norm. Give "
                "its layer the attribute track_running_stats = True: the buffer policy then says whose it is."
            )


def check_pairs(program: Program, federation: Federation | Everyone) -> None:
    """Batch statistics need two examples: a phase whose every batch is one example would train nothing."""
    for client in range(min(federation.num_clients, CLIENTS_TRIED)):
        size = federation.num_examples(client)
        if size < 2 or not program.binding(client).task.needs_pairs:  # of one example there is nothing to learn
            continue
        for phase in program.method.local:
            if largest_batch(phase, size) == 1:
                raise InvalidConfig(
                    f"Batch norm needs batches of two examples or more, but phase '{phase.name}' would see one at a "
                    f"time on client {federation.name(client)}. Give a larger batch, or use group norm."
                )


def largest_batch(phase: Phase, size: int) -> int:
    """Of the first two batches: all but the last of an epoch are alike. None: 0."""
    batches = islice(phase.budget.batches(size, torch.Generator()), 2)
    return max((size if rows is None else len(rows) for rows in batches), default=0)


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


def check_selected(program: Program, binding: Binding) -> None:
    """A part whose every parameter its owner froze is empty, which nobody asks for."""
    for part, selector in getattr(program.method.split, "rules", {}).items():
        selected = selector(binding.task.module)
        if selected and not binding.names(part):
            raise InvalidSplit(
                f"All that '{selector}' selects is frozen (requires_grad is False), so '{part}' would be empty. "
                "Unfreeze some of it, or select something else."
            )


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


def check_solvers(program: Program, federation: Federation | Everyone, client: int, binding: Binding) -> None:
    """Solvers that work only on some networks say so here."""
    server = Server(round=0, shared=program.initial_shared(), optimizer={})
    for phase in (*program.method.local, *program.method.adapt):
        check = getattr(phase.solver, "check", None)
        if check is not None:
            visit = make_visit(program, federation, MemoryStore(), server, client, 1, lone_facts(federation, client))
            check(Problem(phase=phase, visit=visit, binding=binding, params=arrival(binding, visit)))
