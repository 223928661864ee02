"""How server and nodes say what goes on."""

from __future__ import annotations

from collections.abc import Callable

Telling = Callable[[str], None]


def silent(text: str) -> None:
    """Nobody wants to know."""
