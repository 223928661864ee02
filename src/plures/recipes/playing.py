"""The rounds of a run, from the first or from a checkpoint: trained, evaluated, recorded, kept."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from plures.core.context import Conduct, RoundReport, Server
from plures.core.errors import RunFolderError
from plures.core.loop import Committed, start, train
from plures.core.roles import Engine
from plures.participation import Sampler
from plures.recipes.checkpointing import Checkpointer
from plures.recipes.checkpoints import forget_checkpoints
from plures.recipes.recorder import Recorder
from plures.recipes.results import RunResult, status_of
from plures.recipes.resuming import Resumed, restore
from plures.recipes.states import closed, retired
from plures.recipes.threads import one_thread
from plures.recipes.tracking import Tracking
from plures.recipes.watching import ShowsResumed, Watcher


@dataclass
class Play:
    """One run while it goes on."""

    recorder: Recorder
    sampler: Sampler
    engine: Engine
    watcher: Watcher
    tracking: Tracking
    conduct: Conduct
    checkpointer: Checkpointer
    seconds: float = field(default=0.0, init=False)
    began: float = field(default=0.0, init=False)

    @one_thread()
    def run(self, resumed: Resumed | None, *, keep_checkpoint: bool = False) -> RunResult:
        """Train to the end; whatever stops it earlier, the last whole round is kept first."""
        recorder = self.recorder
        self.server: Server = start(recorder.program)
        self.untaken: RoundReport | None = None
        if resumed is not None:
            self.take_up(resumed)
        recorder.looker.share_with(self.engine)
        recorder.begin()
        self.watcher.started(recorder.title, recorder.rounds, recorder.federation.num_clients, recorder.shown)
        try:
            if resumed is not None:
                self.go_on()
            self.rounds()
        except BaseException as trouble:
            self.end_early(trouble)
            raise
        if self.server.round == 0:  # nothing to train: the start is what there is to look at
            recorder.look(self.server)
        self.watcher.ended()
        if keep_checkpoint:
            self.checkpointer.save(self.server, self.seconds)
        result = self.finished(None, resumable=keep_checkpoint)
        self.tracking.ended("finished", result)
        return result

    def take_up(self, resumed: Resumed) -> None:
        """As it was at the checkpoint; where that fails there is nothing new to keep, and the checkpoint stays."""
        try:
            self.server, self.seconds = resumed.server(self.recorder.program.device), resumed.manifest.seconds
            restore(self.recorder, resumed.manifest)
        except BaseException as trouble:
            self.tracking.ended(status_of(trouble), None)
            raise

    def go_on(self) -> None:
        """A round that was interrupted before it was evaluated is evaluated first."""
        if isinstance(self.watcher, ShowsResumed):
            self.watcher.resumed(self.server.round)
        if self.recorder.half is not None:
            self.recorder.complete(self.server)
            self.tracking.round_done(self.recorder.history[-1])

    def rounds(self) -> None:
        recorder = self.recorder
        rounds = train(
            recorder.program,
            recorder.federation,
            rounds=recorder.rounds,
            sampler=self.sampler,
            engine=self.engine,
            store=recorder.store,
            server=self.server,
            on_result=recorder.on_result,
            conduct=self.conduct,
            on_commit=self.commit,
        )
        self.began = time.perf_counter()
        for server, report in rounds:
            self.take()
            metrics = recorder.complete(server)
            self.checkpointer.after_round(server, self.seconds)
            self.watcher.round_done(report, metrics)
            self.tracking.round_done(recorder.history[-1])
            self.began = time.perf_counter()

    def commit(self, committed: Committed) -> None:
        """A round is in force, here as in the store."""
        self.server, self.untaken = committed.server, committed.report

    def take(self) -> None:
        """Note what is known of the last round, once."""
        if self.untaken is not None:
            self.seconds += time.perf_counter() - self.began
            self.recorder.take(self.untaken, self.seconds)
            self.untaken = None

    def end_early(self, trouble: BaseException) -> None:
        """Keep the last whole round as far as the disk allows."""
        self.watcher.ended()
        result = None
        try:
            with suppress(RunFolderError):
                self.recorder.store.discard()
                self.take()
                self.checkpointer.save(self.server, self.seconds)
            with suppress(RunFolderError):
                self.recorder.give_up_half()
            with suppress(RunFolderError):
                result = self.finished(trouble, resumable=True)
        finally:
            closed(self.recorder.store)
            self.recorder.leave()
            self.tracking.ended(status_of(trouble), result)

    def finished(self, trouble: BaseException | None, *, resumable: bool) -> RunResult:
        result = self.recorder.finish(self.server, self.seconds, trouble)
        store = retired(self.recorder.store, self.server.round)
        if not resumable and result.folder is not None:
            forget_checkpoints(result.folder)
        return replace(result, store=store)
