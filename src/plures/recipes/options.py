"""Options of methods, optimisers and budgets as they stand in a file, to the values that code wants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Weight
from plures.core.rates import check_rate
from plures.local import OPTIMIZERS, SCHEDULES, epochs, steps
from plures.methods import MethodInfo
from plures.methods.checking import marker_of
from plures.recipes.loading import load_named
from plures.server import SERVER_OPTIMIZERS, WEIGHTS, batches

ALL_OPTIMIZERS: dict[str, Callable[..., Any]] = {**OPTIMIZERS, **SERVER_OPTIMIZERS}


def method_options(info: MethodInfo, given: Mapping[str, Any], *, rounds: int) -> dict[str, Any]:
    """The keyword arguments of a method's function; every problem is told at once."""
    hints = get_type_hints(info.make, include_extras=True)
    known = [name for name in inspect.signature(info.make).parameters if name in hints]
    problems: list[str] = []
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            problems.append(f"{info.name} has no option '{name}'. {did_you_mean(name, known)}")
            continue
        try:
            options[name] = convert(name, value, hints[name], rounds)
        except InvalidConfig as error:
            problems += error.problems
    if problems:
        raise InvalidConfig(problems)
    return options


def convert(name: str, value: Any, hint: Any, rounds: int) -> Any:
    """One value from a file to what the option's type asks for."""
    marker = marker_of(hint)
    if marker == "rule":
        return make_rule(name, value, rounds)
    if marker == "budget":
        return make_budget(name, value)
    if marker == "weight":
        return make_weight(value)
    if marker == "selector":
        hint = str | list[str]
    if isinstance(value, str) and ":" in value and takes_function(hint):
        return load_named(name, value)
    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        problems = [problem for problem in error.errors() if problem["type"] != "callable_type"] or error.errors()
        wanted = "; or ".join(dict.fromkeys(problem["msg"] for problem in problems))
        raise InvalidConfig(f"{name} = {value!r}: {wanted[0].lower()}{wanted[1:]}.") from None


def takes_function(hint: Any) -> bool:
    """Whether an option may be a function of the user's own, named in a file as "package.module:function"."""
    return any(get_origin(kind) is Callable for kind in (hint, *get_args(hint)))


def make_rule(name: str, value: Any, rounds: int) -> Any:
    """A rate, {schedule = "linear", ...} or {optimizer = "adam", lr = ...}."""
    if isinstance(value, Mapping) and "optimizer" in value:
        return make_optimizer({**value, "lr": make_rule(name, value.get("lr", 0.1), rounds)})
    if isinstance(value, Mapping):
        return make_schedule(name, value, rounds)
    if isinstance(value, bool) or not isinstance(value, int | float):
        forms = '0.1, {schedule = "cosine", start = 0.1} or {optimizer = "adam", lr = 0.01}'
        raise InvalidConfig(f"{name} = {value!r}: give a rate such as {forms}.")
    return check_rate(name, value)


def make_schedule(name: str, table: Mapping[str, Any], rounds: int) -> Any:
    """A schedule from its table; it ends with the run unless told otherwise."""
    kind = table.get("schedule")
    if kind is None:
        raise InvalidConfig(f"{name}: a table needs the key 'schedule' or 'optimizer'.")
    make = lookup("schedule", kind, SCHEDULES)
    options = {key: value for key, value in table.items() if key != "schedule"}
    if "rounds" in inspect.signature(make).parameters:
        options.setdefault("rounds", rounds)
    return called(f"schedule '{kind}'", make, options)


def make_optimizer(table: Mapping[str, Any]) -> Any:
    kind = table["optimizer"]
    options = {key: value for key, value in table.items() if key != "optimizer"}
    return called(f"optimizer '{kind}'", lookup("optimizer", kind, ALL_OPTIMIZERS), options)


def make_budget(name: str, value: Any) -> Any:
    """{epochs = 1, batch = 32} or {steps = 50, batch = "full"}."""
    if isinstance(value, Mapping) and ("epochs" in value) != ("steps" in value) and "count" not in value:
        make = epochs if "epochs" in value else steps
        count = value["epochs" if "epochs" in value else "steps"]
        rest = {key: item for key, item in value.items() if key not in ("epochs", "steps")}
        return called(name, make, {"count": count, **rest})
    raise InvalidConfig(f'{name} = {value!r}: give {{epochs = 1, batch = 32}} or {{steps = 50, batch = "full"}}.')


def make_weight(value: Any) -> Any:
    """ "samples", "uniform", "global_ht", "round_ht", or {batches = 32}."""
    if isinstance(value, Mapping) and set(value) == {"batches"}:
        return called("weight", batches, {"batch": value["batches"]})
    weight = lookup("weight", value, WEIGHTS)
    if not isinstance(weight, Weight):
        raise InvalidConfig(f"weight = {value!r} needs a batch size: weight = {{batches = 32}}.")
    return weight


def lookup(what: str, name: Any, table: Mapping[str, Any]) -> Any:
    if not isinstance(name, str):
        raise InvalidConfig(f"{what} = {name!r}: give one of {', '.join(sorted(table))}.")
    if name not in table:
        raise InvalidConfig(f"There is no {what} '{name}'. {did_you_mean(name, table)}")
    return table[name]


def called(what: str, make: Callable[..., Any], options: Mapping[str, Any], *, beside: Iterable[str] = ()) -> Any:
    """Call a maker with options from a file; `beside` are keys of the same table that are not options."""
    taken = inspect.signature(make).parameters
    parameters = {name: p for name, p in taken.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    any_name = len(parameters) < len(taken) and any(p.kind is p.VAR_KEYWORD for p in taken.values())
    for name in options:
        if name not in parameters and not any_name:
            raise InvalidConfig(f"{what} has no option '{name}'. {did_you_mean(name, [*parameters, *beside])}")
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in options]
    if missing:
        raise InvalidConfig(f"{what} needs {', '.join(missing)}.")
    try:
        return make(**options)
    except (TypeError, ValueError, ArithmeticError, MemoryError, RuntimeError) as error:  # torch's of sizes: the last
        given = ", ".join(f"{name} = {value!r}" for name, value in options.items())
        raise InvalidConfig(f"{what} cannot be made with {given}: {error}.") from error
