"""Replies that come in part keep nobody else waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "plures[flower]"')

from plures.deploy.flower.arriving import Arriving, Fetch
from plures.deploy.transport import Answer


def test_one_that_does_not_come_keeps_nobody_waiting() -> None:
    never, asked = threading.Event(), list[list[str]]()

    def stuck() -> Answer:
        never.wait(30)
        return Answer("slow", b"late")

    def announced(tickets: list[str]) -> Iterator[tuple[str, Fetch]]:
        asked.append(tickets)
        for ticket in tickets:
            yield ticket, stuck if ticket == "slow" else lambda ticket=ticket: Answer(ticket, b"here")

    arriving, began = Arriving(announced), time.monotonic()
    assert arriving.pull(["slow", "one", "two"]) == [Answer("one", b"here"), Answer("two", b"here")]
    assert time.monotonic() - began < 5
    assert arriving.pull(["slow"]) == []
    assert asked == [["slow", "one", "two"]]  # what is on its way is not asked for again
    never.set()
    found: list[Answer] = []
    while not found:
        found = arriving.pull(["slow"])
    assert found == [Answer("slow", b"late")]
    arriving.pull(["slow"])
    assert asked[-1] == ["slow"]
    never.set()


def test_what_cannot_be_fetched_is_a_node_that_is_gone() -> None:
    def broken() -> Answer:
        raise httpx.ReadTimeout("no")

    arriving = Arriving(lambda tickets: iter([(ticket, broken) for ticket in tickets]))
    (answer,) = arriving.pull(["one"])
    assert answer.failure is not None
    assert answer.failure.kind == "gone"
    assert "ReadTimeout" in answer.failure.reason
