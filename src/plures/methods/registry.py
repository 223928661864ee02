"""Every method by name, with what a reader wants to know before choosing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import ParamSpec

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method
from plures.methods.checking import check_kinds, check_words

Options = ParamSpec("Options")


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """One row of the table of methods."""

    name: str
    title: str
    paper: str
    shared: str
    personal: str
    sent: str
    make: Callable[..., Method]

    @property
    def file(self) -> str:
        return f"src/{self.make.__module__.replace('.', '/')}.py"


METHODS: dict[str, MethodInfo] = {}


def register(
    *, title: str, paper: str, shared: str, personal: str, sent: str
) -> Callable[[Callable[Options, Method]], Callable[Options, Method]]:
    """Put a method into the table under its function's name, which the methods it makes will carry."""

    def add(make: Callable[Options, Method]) -> Callable[Options, Method]:
        @wraps(make)
        def named(*args: Options.args, **options: Options.kwargs) -> Method:
            check_words(make, options)
            check_kinds(make, options)
            return replace(make(*args, **options), name=make.__name__)

        METHODS[make.__name__] = MethodInfo(
            name=make.__name__,
            title=title,
            paper=paper,
            shared=shared,
            personal=personal,
            sent=sent,
            make=named,
        )
        for name in sorted(METHODS):
            METHODS[name] = METHODS.pop(name)
        return named

    return add


def find_method(name: str) -> MethodInfo:
    """A registered method by its name; an unknown one is an error that tells near names."""
    if name not in METHODS:
        raise InvalidConfig(f"There is no method '{name}'. {did_you_mean(name, METHODS)}")
    return METHODS[name]
