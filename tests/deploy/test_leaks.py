"""What is personal is in no message: every letter of a run is searched for the bytes of what nodes keep."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plures.core.types import is_known
from plures.deploy.messages import opened_order, opened_reply
from plures.methods import METHODS
from tests.deploy.helpers import Deployment, small
from tests.deploy.test_in_process import NOT_DEPLOYED

WINDOW = 16
"""Four numbers in a row: more than chance has in common, little enough to find a part of a layer."""


TELLS = {"scaffold": "a control starts at 0, and what is uploaded is its change: the paper's server can add them up"}


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(NOT_DEPLOYED) - set(TELLS)))
def test_no_letter_has_what_stays_on_a_node(method: str, tmp_path: Path) -> None:
    deployment = Deployment.of(small(method, cohort="all"), tmp_path)
    result = deployment.serve()
    parts = result.program.binding(0).parts
    personal: set[bytes] = set()
    for client in range(3):
        # of every round, as the node has kept it
        for round in (1, 2, 3):
            state = states_of(deployment, client, round)
            for name, value in state.items():
                if not is_known(parts[name]) and value.is_floating_point():
                    personal |= windows(value)
    sent = b"\x00".join(part for letter in deployment.letters for part in letter)
    found = [window for window in personal if window in sent]
    assert not found, f"{len(found)} of {len(personal)} pieces of personal parameters were sent"
    # The search finds what is there: the shared part, which is sent, is found by the same means.
    assert any(window in sent for value in result.server.shared.values() for window in windows(value)) or not any(
        value.is_floating_point() for value in result.server.shared.values()
    )
    assert {opened_order(order)[0].kind for order, _ in deployment.letters} == {"hello", "train", "evaluate", "finish"}
    assert all(opened_reply(reply).reply.kind != "failed" for _, reply in deployment.letters)


def states_of(deployment: Deployment, client: int, round: int) -> dict[str, torch.Tensor]:
    if not any(deployment.path.glob("states/*/*/state.sqlite")):  # a method that keeps nothing
        return {}
    return deployment.kept(client, round) or {}


def windows(value: torch.Tensor) -> set[bytes]:
    """Pieces of a tensor's bytes that are not all the same number."""
    data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    pieces = {data[place : place + WINDOW] for place in range(0, len(data) - WINDOW + 1, WINDOW)}
    return {piece for piece in pieces if len({piece[place : place + 4] for place in range(0, WINDOW, 4)}) > 2}
