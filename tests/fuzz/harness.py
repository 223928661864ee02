"""How the fuzzers here are run, counted and stopped.

PLURES_FUZZ_EXAMPLES = 20 tries twenty times as many inputs; benchmarks/fuzz.py runs all of them for minutes.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from plures.core.errors import PluresError

TIMES = int(os.environ.get("PLURES_FUZZ_EXAMPLES", "1"))
LONGEST_SECONDS = 20
"""For one input, on a busy machine."""
TRIED = Counter[str]()
"""Inputs by fuzzer."""
REFUSED = Counter[str]()
"""Of these, inputs that were an error of ours."""


def fuzzed(examples: int) -> settings:
    """So many inputs, or so many times as many as was asked for."""
    return settings(
        max_examples=examples * TIMES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )


def refused(fuzzer: str, use: Callable[[], Any]) -> PluresError | None:
    """The error of ours that an input is answered with, if any; another error, or no answer in time, is a defect."""
    TRIED[fuzzer] += 1
    try:
        with in_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            use()
    except PluresError as error:
        REFUSED[fuzzer] += 1
        return error
    return None


class TookTooLong(AssertionError):
    pass


@contextmanager
def in_time(seconds: float = LONGEST_SECONDS) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise TookTooLong(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


texts = st.one_of(st.text(max_size=20), st.sampled_from(["", "\0", "\ud800", "a:b", "../..", "é" * 300, "nan", "all"]))
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**30), 1e308, 5e-324, True, False]),
)


def nested(leaf: Any, *, depth: int) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


hostile = st.recursive(
    st.one_of(st.none(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
) | st.builds(lambda depth: nested(1, depth=depth), st.sampled_from([10, 40, 120]))
"""Values that nobody asked for."""


@st.composite
def mutated_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """The same bytes, but for a few: changed, cut out, put in, or all from some place on."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        match draw(st.sampled_from(["flip", "replace", "cut", "end"])):
            case "flip" if changed:
                changed[place] ^= 1 << draw(st.integers(0, 7))
            case "replace":
                changed[place : place + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
            case "cut":
                del changed[place : place + draw(st.integers(1, 40))]
            case "end":
                del changed[place:]
    return bytes(changed)


@st.composite
def overwritten_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """As many bytes, some of them others."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place, new = draw(st.integers(0, len(changed) - 1)), draw(st.binary(min_size=1, max_size=16))
        changed[place : place + len(new)] = new[: len(changed) - place]
    return bytes(changed)


def paths_in(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every value in nested tables and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*above, key)
        yield from paths_in(inner, (*above, key))


@st.composite
def mutated_tables(draw: st.DrawFn, table: Any, values: st.SearchStrategy[Any] = hostile) -> Any:
    """The same table, but for one to three places: another value, one fewer, or one more."""
    table = copied(table)
    for _ in range(draw(st.integers(1, 3))):
        paths = list(paths_in(table))
        if not paths:
            break
        *above, last = draw(st.sampled_from(paths))
        place = table
        for key in above:
            place = place[key]
        match draw(st.sampled_from(["value", "value", "value", "gone", "more"])):
            case "value":
                place[last] = draw(values)
            case "gone":
                del place[last]
            case "more" if isinstance(place, dict):
                place[draw(texts)] = draw(values)
    return table


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value
