"""Things named in a file as "package.module:name"."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from plures.core.errors import InvalidConfig

BROKEN = (ImportError, AttributeError, SyntaxError, TypeError, NameError, ArithmeticError, LookupError, ValueError)
"""What the user's own module may raise as it is imported."""


def load_named(what: str, path: str) -> Callable[..., Any]:
    """The function or class that "package.module:name" stands for."""
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (
        ImportError,
        AttributeError,
        SyntaxError,
        TypeError,
        NameError,
        ArithmeticError,
        LookupError,
        ValueError,
    ) as error:
        raise InvalidConfig(f"Cannot load the {what} '{path}': {error}. Give it as package.module:function.") from error
    if not callable(found):
        raise InvalidConfig(f"The {what} '{path}' is a {type(found).__name__}, not a function or class.")
    return cast(Callable[..., Any], found)
