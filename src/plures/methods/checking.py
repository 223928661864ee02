"""What options of methods may be, from the types in their signatures; refused before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Method, Weight


def check_words(make: Callable[..., Method], options: Mapping[str, object]) -> None:
    """Refuse a word that an option does not know."""
    hints = get_type_hints(make)
    for name, value in options.items():
        choices = [word for kind in (hints.get(name), *get_args(hints.get(name))) for word in words_of(kind)]
        if choices and isinstance(value, str) and value not in choices:
            raise InvalidConfig(f"{name} of {make.__name__} is {value!r}. {did_you_mean(value, choices)}")
        if only_words(hints.get(name)) and value not in allowed_words(hints.get(name)):
            raise InvalidConfig(f"{name} of {make.__name__} is {value!r}. {did_you_mean(str(value), choices)}")


def only_words(hint: object) -> bool:
    """Whether an option is one of some words, or of whole numbers, and nothing else."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return all(get_origin(kind) is Literal or kind is type(None) for kind in kinds)


def allowed_words(hint: object) -> list[object]:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [value for kind in kinds for value in (get_args(kind) if get_origin(kind) is Literal else (None,))]


KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "rule": (
        lambda v: isinstance(v, int | float) or callable(v) or (hasattr(v, "update") and hasattr(v, "lr")),
        "a rate such as 0.1, a schedule such as plures.local.cosine(0.1, rounds=50), or an optimiser such as sgd(0.1)",
    ),
    "budget": (lambda v: hasattr(v, "batches"), "a budget such as plures.local.epochs(1, batch=32) or steps(50)"),
    "weight": (lambda v: isinstance(v, Weight), "a weight such as plures.server.samples or uniform"),
    "selector": (
        lambda v: isinstance(v, str | list | tuple) or hasattr(v, "in_file"),
        'a selector such as plures.parts.head(), a pattern such as "head.*", or a list of patterns',
    ),
}
"""By the word that an option's type carries for file readers: what fits, and how to say it."""


def check_kinds(make: Callable[..., Method], options: Mapping[str, object]) -> None:
    """Refuse a value that is not what an option is made of, before anything is trained."""
    hints = get_type_hints(make, include_extras=True)
    for name, value in options.items():
        fits, wanted = KINDS.get(marker_of(hints.get(name)) or "", (None, ""))
        if fits is not None and value is not None and (not fits(value) or isinstance(value, type)):
            raise InvalidConfig(f"{name} of {make.__name__} is {value!r}: give {wanted}.")


def marker_of(hint: object) -> str | None:
    """The word that a type carries for file readers, also inside `X | None`."""
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    if get_origin(hint) in (Union, UnionType):
        return next((marker for kind in get_args(hint) if (marker := marker_of(kind))), None)
    return None


def words_of(kind: object) -> list[str]:
    return [word for word in get_args(kind) if isinstance(word, str)] if get_origin(kind) is Literal else []
