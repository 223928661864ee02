"""The API pages: every public name of a package, from its __all__, for mkdocstrings to describe."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

PLACE = re.compile(r"<!-- public names of ([\w.]+) -->")
"""Where the names of a package go in a page."""
TOP = "plures"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """An event of MkDocs: a page that asks for the names of a package gets them."""
    return PLACE.sub(lambda match: entries(match[1]), markdown)


def entries(package: str) -> str:
    return "\n".join(entry(package, name) for name in public_names(package))


def public_names(package: str) -> list[str]:
    """Functions, then classes, then the rest; what the top package has too is on its page alone."""
    module, top = importlib.import_module(package), importlib.import_module(TOP)
    things = {name: getattr(module, name) for name in module.__all__}
    elsewhere = [] if package == TOP else [getattr(top, name) for name in top.__all__]
    names = [name for name, thing in things.items() if is_told(thing) and not any(thing is one for one in elsewhere)]
    return sorted(names, key=lambda name: (kind(getattr(module, name)), name.lower()))


def is_told(thing: Any) -> bool:
    """Packages have pages of their own, errors are on that of the core, and the version is no more than a word."""
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    return not is_error and not inspect.ismodule(thing) and not isinstance(thing, str)


def kind(thing: Any) -> int:
    return 0 if inspect.isfunction(thing) else 1 if inspect.isclass(thing) else 2


def entry(package: str, name: str) -> str:
    """What mkdocstrings reads. A function may have the name of its module, so that its own path is given."""
    options = f'{{show_root_heading: true, heading: "{name}", toc_label: "{name}"}}'
    return f"::: {path_of(package, name)}\n    options: {options}\n{page_of(package, name)}"


def page_of(package: str, name: str) -> str:
    """A method has a page that says more than its docstring."""
    is_method = package == "plures.methods" and name in importlib.import_module(package).METHODS
    return (
        f"\nIdea, options, deviations from the paper and evidence: [{name}](../methods/{name}.md).\n"
        if is_method
        else ""
    )


def path_of(package: str, name: str) -> str:
    thing = getattr(importlib.import_module(package), name)
    if kind(thing) == 2 or not thing.__module__.startswith(f"{TOP}."):
        return f"{package}.{name}"
    return f"{thing.__module__}.{thing.__qualname__}"
