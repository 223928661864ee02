"""Keeps how far clients' masks are from each other, round by round."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from plures.core.context import Server
from plures.core.program import Program
from plures.core.roles import Store
from plures.core.types import Params
from plures.evaluate.masks import mask_distances, used_masks


class MaskBook:
    """Of a method without masks, nothing."""

    def __init__(self, program: Program, store: Store) -> None:
        self.program, self.store = program, store

    @cached_property
    def may_have_any(self) -> bool:
        """Masks are truth values; without any, nobody's state need be looked at."""
        begun = self.program.initial_shared() | self.program.initial_state(0)
        return any(value.dtype == torch.bool for value in begun.values())

    def distances(self, server: Server) -> dict[str, Any]:
        """For the record of a round that was evaluated."""
        if not self.may_have_any:
            return {}

        def masks_of(client: int) -> Params:
            return used_masks(server.shared | (self.store.get(client) or {}))

        found = mask_distances(self.store.clients(), masks_of)
        return {} if found is None else {"masks": found.as_json()}
