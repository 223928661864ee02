"""Letters between server and nodes: what was sealed is opened, and whatever else comes is refused without harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plures.core.errors import InvalidMessage
from plures.deploy.messages import Order, Reply, Score, opened_order, opened_reply, sealed
from tests.deploy.helpers import Deployment, small

MOMENT = {"run": "0123456789abcdef", "start": 1_700_000_000, "round": 3}


def test_what_was_sealed_is_opened() -> None:
    order = Order(kind="train", experiment="f" * 16, **MOMENT, client=2, clients=5, counted=2, facts={"examples": 4})
    found, body = opened_order(sealed(order, b"body"))
    assert found == order
    assert bytes(body) == b"body"


def test_numbers_that_are_none_are_told_as_they_are() -> None:
    reply = Reply(
        kind="scored", **MOMENT, scores=[Score(model="global", split="test", examples=3, values={"auc": float("nan")})]
    )
    (score,) = opened_reply(sealed(reply)).reply.scores
    assert score.values["auc"] != score.values["auc"]


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../../etc"},
        {"run": "0" * 17},
        {"start": -1},
        {"round": 2**60},
        {"kind": "sudo"},
        {"models": "global"},
        {"extra": 1},
    ],
)
def test_a_heading_that_means_something_else_is_refused(change: dict[str, object]) -> None:
    good = Order(kind="hello", experiment="f" * 16, **MOMENT)
    with pytest.raises(InvalidMessage):
        opened_order(sealed(Raw({**good.model_dump(), **change})))  # type: ignore[arg-type]


class Raw:
    """A heading of any content."""

    def __init__(self, table: dict[str, object]) -> None:
        self.table = table

    def model_dump_json(self, *, exclude_defaults: bool) -> str:
        return json.dumps(self.table)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    for opened in (opened_order, opened_reply):
        with pytest.raises(InvalidMessage):
            opened(data)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    made = Deployment.of(small("fedper", cohort="all"), tmp_path_factory.mktemp("deployment"))
    made.serve()
    return made


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.floats(0, 1, exclude_max=True),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_node_answers_every_letter_and_keeps_what_it_has(
    deployment: Deployment, which: float, changes: list[tuple[float, int]]
) -> None:
    handler = deployment.handler(0)
    letters = [order for order, _ in deployment.letters if opened_order(order)[0].client == 0]
    letter = bytearray(letters[int(which * len(letters))])
    for place, value in changes:
        letter[int(place * len(letter))] = value
    before = files(deployment.path / "states")
    reply = opened_reply(handler.handle(bytes(letter))).reply
    assert reply.kind in ("here", "scored", "finished", "trained", "failed")
    if reply.kind == "failed":
        assert files(deployment.path / "states") == before


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
