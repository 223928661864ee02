"""Every method by name, with what a reader wants to know before choosing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal, ParamSpec

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method

Headline = Literal["global", "personal", "finetuned"]
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
    headline: Headline
    """The model its paper judges it by: the shared one, the client's own, or the client's after fine-tuning."""
    make: Callable[..., Method]

    @property
    def file(self) -> str:
        return f"src/{self.make.__module__.replace('.', '/')}.py"


METHODS: dict[str, MethodInfo] = {}


def register(
    *, title: str, paper: str, shared: str, personal: str, sent: str, headline: Headline = "personal"
) -> Callable[[Callable[Options, Method]], Callable[Options, Method]]:
    """Put a method into the table under its function's name, which the methods it makes will carry."""

    def add(make: Callable[Options, Method]) -> Callable[Options, Method]:
        @wraps(make)
        def named(*args: Options.args, **options: Options.kwargs) -> Method:
            return replace(make(*args, **options), name=make.__name__)

        METHODS[make.__name__] = MethodInfo(
            name=make.__name__,
            title=title,
            paper=paper,
            shared=shared,
            personal=personal,
            sent=sent,
            headline=headline,
            make=named,
        )
        return named

    return add


def find_method(name: str) -> MethodInfo:
    if name not in METHODS:
        raise InvalidConfig(f"There is no method '{name}'. {did_you_mean(name, METHODS)}")
    return METHODS[name]
