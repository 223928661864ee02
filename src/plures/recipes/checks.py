"""Everything that can be wrong with a run, found before round 1 and told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import torch

from plures.core.errors import InvalidConfig, InvalidInput, did_you_mean
from plures.core.method import Method, Optimizer
from plures.core.program import Program
from plures.core.rates import check_count, check_rate
from plures.data import Federation, check_federation
from plures.data.joining import everyone
from plures.evaluate import SplitName
from plures.evaluate.forgetting import FORGETTING
from plures.evaluate.metrics import MORE_METRICS
from plures.participation import Sampler
from plures.recipes.capacities import affordable
from plures.recipes.network_checks import check_networks
from plures.recipes.plan import EvaluationPlan

SPLITS: tuple[str, ...] = get_args(SplitName)
MODELS = ("global", "personal", "post_local", "finetuned")
MANY, LOOKED_AT = 10_000, 1_000
"""Of a population that is too large to read, so many clients are looked at before a run."""


def check_run(
    program: Program,
    federation: Federation,
    sampler: Sampler,
    rounds: int,
    plan: EvaluationPlan,
    *,
    least_rounds: int = 1,
    capacity: Any = None,
    newcomers: Federation | None = None,
) -> None:
    """Raise one error that lists every problem of data, cohort, split, method and network."""
    clients = everyone(federation, newcomers)
    problems: list[str] = []
    first: InvalidInput | None = None
    for check in (
        lambda: check_rounds(rounds, least_rounds),
        lambda: check_data(federation),
        lambda: None if newcomers is None else check_newcomers(newcomers, federation),
        lambda: sampler.check(federation.num_clients),
        lambda: check_rates(program, rounds if isinstance(rounds, int) else 0),
        lambda: check_plan(plan, federation),
        lambda: check_networks(program, clients),
        lambda: check_global_model(program, plan),
        lambda: check_capacity(program, clients.num_clients, capacity),
    ):
        error = caught(check)
        if error is not None:
            first = first or error
            problems += [problem for problem in error.problems if problem not in problems]
    if first is not None:
        raise type(first)(problems) if len(problems) == len(first.problems) else InvalidInput(problems)


def caught(check: Callable[[], None]) -> InvalidInput | None:
    try:
        check()
    except InvalidInput as error:
        return error
    return None


def check_arguments(method: object, federation: object, newcomers: object, evaluation: object, seed: object) -> None:
    """What Python lets through: things of another kind than they should be."""
    wanted = (
        (method, Method, "method", "a method, such as plures.methods.fedavg() with its brackets, or its name"),
        (federation, Federation, "federation", "a federation, as plures.data.partition or federate make one"),
        (newcomers, Federation | None, "newcomers", "a federation of those that take no part, as hold_out makes one"),
        (evaluation, EvaluationPlan | None, "evaluation", "a plan, such as plures.EvaluationPlan(every=5)"),
    )
    for value, kind, what, remedy in wanted:
        if not isinstance(value, kind):
            raise InvalidConfig(f"{what} is {value!r:.80}, a {type(value).__name__}: give {remedy}.")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InvalidConfig(f"seed is {seed!r}: give a whole number.")


def check_data(federation: Federation) -> None:
    check_federation(federation, LOOKED_AT if federation.num_clients > MANY else None)


def check_newcomers(newcomers: Federation, federation: Federation) -> None:
    """They are a federation of the same kind."""
    check_data(newcomers)
    for what in ("input_shape", "classes", "label_space"):
        theirs, ours = getattr(newcomers, what), getattr(federation, what)
        if theirs != ours:
            raise InvalidConfig(f"The newcomers have {what} {theirs}, but the participants {ours}. Give the same kind.")


def check_rounds(rounds: int, least: int) -> None:
    check_count("rounds", rounds, least=least)


def check_device(device: str) -> None:
    """Try the device once: torch names it in many ways, and may have been built without it."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidConfig(
            f"The device '{device}' cannot be used: {reason} Use 'cpu', or 'cuda' where there is one."
        ) from error


def check_plan(plan: EvaluationPlan, federation: Federation) -> None:
    check_count("every of the evaluation", plan.every, least=1)
    for target in plan.targets:
        check_rate("a target of the evaluation", target)
        if target > 1 and federation.goal.judged_by == "accuracy":
            raise InvalidConfig(
                f"targets of the evaluation has {target:g}: an accuracy is a share, at most 1. Give 0.8."
            )
    more = (*MORE_METRICS[federation.goal.name], *([FORGETTING] if federation.goal.name == "classification" else []))
    for what, given, known in (
        ("splits", plan.splits, SPLITS),
        ("models", () if plan.models == "all" else plan.models or (), MODELS),
        ("metrics", plan.metrics, more),
    ):
        if isinstance(given, str):
            raise InvalidConfig(f"{what} of the evaluation is a list of words, not the word '{given}'.")
        for word in given:
            if word not in known:
                told = did_you_mean(word, known) if known else f"There are none for {federation.goal.name}."
                raise InvalidConfig(f"There is no '{word}' among the {what} to evaluate. {told}")


def check_capacity(program: Program, num_clients: int, capacity: Any) -> None:
    if capacity is not None:
        affordable(program, capacity, num_clients)
    elif program.method.capacity is not None:
        program.sizes(0)


def check_global_model(program: Program, plan: EvaluationPlan) -> None:
    if plan.models != "all" and "global" in (plan.models or ()) and not program.has_global_model():
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


def check_weights_matter(program: Program, where: str) -> None:
    """Refuse weights to start from where a method makes its whole model itself."""
    binding = program.binding(0)
    if not any(torch.equal(binding.values[name], value) for name, value in binding.task.parameters.items()):
        raise InvalidConfig(
            f"{where} gives weights to start from, but {program.method.name} makes its whole model itself: they would "
            "change nothing. Remove them, or keep some layers personal."
        )
