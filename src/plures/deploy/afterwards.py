"""What a deployment can be asked for when its run has finished: metrics of all nodes, and the shared part."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from plures.core.context import Server
from plures.core.errors import RunFolderError, TooFewClients
from plures.core.types import Params
from plures.deploy.asking import COUNTED, Asking
from plures.deploy.described import table_of
from plures.deploy.desk import Desk
from plures.deploy.giving import give_for
from plures.deploy.looking import RemoteEvaluator
from plures.deploy.roster import Roster, Run
from plures.deploy.serving import Connect, noted
from plures.deploy.sides import Side, experiment_token, make_side
from plures.deploy.telling import Telling, silent
from plures.evaluate import Evaluation, Evaluator, ModelKind, SplitName
from plures.recipes.checks import check_plan
from plures.recipes.experiment import Experiment
from plures.recipes.looking import models_of
from plures.recipes.plan import EvaluationPlan
from plures.report import records
from plures.wire import Codec

RUN = "run"


@dataclass(frozen=True)
class Counted:
    """A store that knows of each client the last round that counted, and nothing else."""

    rounds: Sequence[int | None]

    def get(self, client: int) -> Params | None:
        round = self.rounds[client]
        return None if round is None else {COUNTED: torch.tensor(round)}


class Finished:
    """A deployment whose run has ended, and its nodes as far as they are there."""

    def __init__(
        self, experiment: Experiment, connect: Connect, out: Path, *, keyed: bool, tell: Telling = silent
    ) -> None:
        told = noted(out)
        if told is None or "finished" not in told or not (out / RUN / records.SHARED).is_file():
            raise RunFolderError(
                f"{out} has no deployment that has finished. Go on with it by 'plures deploy server ... --resume'."
            )
        token = experiment_token(experiment)
        if token != told["experiment"]:
            raise RunFolderError(f"{out} is of another experiment: give the file that it was begun with.")
        self.table = table_of(experiment)
        self.shared, self.round = load_file(out / RUN / records.SHARED), told["finished"]["round"]
        self.counted = Counted(told["finished"]["counted"])
        self.transport = connect()
        start = max(int(time.time()), told["start"] + 1)
        desk = Desk(self.transport)
        self.roster = Roster(desk, Run(token, told["run"], start), self.table.clients, keyed=keyed, tell=tell)
        self.roster.resume(told["members"])
        self.asking = Asking(desk, self.roster, deadline=self.table.deadline, tell=tell)
        self.side: Side = make_side(experiment, self.roster.members, Codec())

    def evaluate(
        self, splits: Sequence[SplitName], models: Sequence[ModelKind] | None = None, *, wait: float | None = None
    ) -> list[Evaluation]:
        """Scores of everybody that is there within some seconds; all, if all come."""
        check_plan(
            EvaluationPlan(splits=tuple(splits), models=None if not models else tuple(models)), self.side.federation
        )
        until = time.monotonic() + (self.table.wait if wait is None else wait)
        while len(self.roster.present()) < len(self.roster.seats) and time.monotonic() < until:
            self.roster.refresh()
            time.sleep(self.asking.desk.poll_seconds)
        if not self.roster.present():
            raise TooFewClients("No node is there to be evaluated. Start them, or wait longer with --wait.")
        program, federation = self.side.program, self.side.federation
        chosen = models or models_of(program, self.side.built.plan, None)
        bare = Evaluator(program, federation, self.counted, federation.goal)  # type: ignore[arg-type]
        server = Server(round=self.round, shared=self.shared, optimizer={})
        return RemoteEvaluator(bare, self.asking).evaluate(server, chosen, splits)

    def give(self, seconds: float) -> int:
        """The shared part to every newcomer that comes in so many seconds; how many came."""
        return give_for(self.asking, self.shared, self.round, seconds)

    def close(self, trouble: BaseException | None = None) -> None:
        self.transport.close(trouble)
