"""When a run makes checkpoints, and what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from plures.core.context import Server
from plures.core.rates import check_count, check_positive
from plures.evaluate import ClientScore
from plures.recipes.checkpoints import keep_newest, write_checkpoint
from plures.recipes.recorder import Recorder
from plures.stores.disk import DiskStore


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """How much of a run may be lost to a crash, and how much disk and memory that may take."""

    every: int = 10
    """Rounds between two checkpoints."""
    seconds: float = 60.0
    """After so many seconds there is one at the next whole round, however few rounds that were."""
    keep: int = 2
    """So many are kept: should the last be damaged, the run goes on from the one before."""
    cache_mb: int = 256
    """Memory for what clients keep; the rest is on disk."""

    def __post_init__(self) -> None:
        check_count("every of a checkpoint", self.every, least=1)
        check_positive("seconds of a checkpoint", self.seconds)
        check_count("keep of a checkpoint", self.keep, least=1)
        check_count("cache_mb of a checkpoint", self.cache_mb, least=1)


class Checkpointer:
    """Makes the checkpoints of one run; without a folder, none."""

    def __init__(
        self,
        recorder: Recorder,
        plan: CheckpointPlan,
        identity: Mapping[str, Any],
        tracker_keys: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.recorder, self.plan, self.identity, self.tracker_keys = recorder, plan, identity, tracker_keys
        self.last = time.monotonic()

    def after_round(self, server: Server, seconds: float) -> None:
        late = time.monotonic() - self.last >= self.plan.seconds
        is_last = server.round >= self.recorder.rounds  # the result comes next
        if (late or server.round % self.plan.every == 0) and not is_last:
            self.save(server, seconds)

    def save(self, server: Server, seconds: float) -> None:
        """Clients' states and records are on the disk before the checkpoint that tells of them."""
        folder, store, half = self.recorder.folder, self.recorder.store, self.recorder.half
        if folder is None:
            return
        has_states = next(store.clients(), None) is not None
        if isinstance(store, DiskStore):
            store.save(server.round)
        folder.flush()
        marks = folder.marks if half is None else half.marks
        write_checkpoint(
            folder.path,
            server,
            seconds=seconds,
            files={name: tuple(mark) for name, mark in marks.items()},
            has_states=has_states,
            identity=dict(self.identity),
            recorder=self.recorder.told() if half is None else half.before | {"half": self._half()},
            trackers=self.tracker_keys(),
        )
        oldest = keep_newest(folder.path, self.plan.keep)
        if isinstance(store, DiskStore) and oldest is not None:
            store.forget_before(oldest)
        self.last = time.monotonic()

    def _half(self) -> dict[str, Any]:
        """A round that an interrupt came into before it was evaluated: that is done when the run goes on."""
        half = self.recorder.half
        assert half is not None
        return {"line": half.line, "visits": half.visits, "after_training": told_scores(self.recorder.after_training)}


def told_scores(scores: Mapping[Any, list[ClientScore]]) -> dict[str, list[dict[str, Any]]]:
    return {
        split: [{"client": one.client, "examples": one.examples, "values": dict(one.values)} for one in found]
        for split, found in scores.items()
    }
