"""A run whose clients are nodes: an ordinary run folder, from the same loop, with another engine."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from plures.core.context import Conduct
from plures.core.errors import RunFolderError, TooFewClients
from plures.deploy.asking import Asking, counted_of
from plures.deploy.described import table_of
from plures.deploy.desk import Desk
from plures.deploy.giving import give
from plures.deploy.looking import finish
from plures.deploy.posting import Posting
from plures.deploy.remote import Remote
from plures.deploy.roster import Roster, Run
from plures.deploy.sides import experiment_token, make_side
from plures.deploy.telling import Telling, silent
from plures.deploy.transport import Transport
from plures.recipes import is_plain_cohort
from plures.recipes.build import build_conduct, build_wire
from plures.recipes.checkpointing import CheckpointPlan
from plures.recipes.experiment import Experiment
from plures.recipes.loading import load_named
from plures.recipes.results import RunResult
from plures.recipes.running import run
from plures.recipes.track_tables import make_trackers
from plures.recipes.watching import Watcher
from plures.report import records
from plures.report.writing import replace_whole

DEPLOYMENT = "deployment.json"
"""In the folder of the run: its token, its clients, and when the server was last started."""
AFTER_THE_RUN = 60.0
"""Seconds for nodes to take the last shared part."""

Connect = Callable[[], Transport]


def serve(
    experiment: Experiment,
    connect: Connect,
    out: Path,
    *,
    keyed: bool,
    resume: bool = False,
    title: str | None = None,
    watcher: Watcher | None = None,
    tell: Telling = silent,
) -> RunResult:
    """Wait for the nodes, play the rounds, and give everybody the last shared part."""
    table = table_of(experiment)
    make_trackers(experiment.track)
    told = noted(out) if resume else None
    if not resume and (out / DEPLOYMENT).exists():
        raise RunFolderError(f"{out} has a deployment already. Go on with it by --resume, or choose another --out.")
    now = int(time.time())
    token = secrets.token_hex(8) if told is None else told["run"]
    start = now if told is None else max(now, told["start"] + 1)
    transport = connect()
    try:
        desk = Desk(transport)
        roster = Roster(desk, Run(experiment_token(experiment), token, start), table.clients, keyed=keyed, tell=tell)
        if told is not None:
            roster.resume(told["members"])
        gather(roster, table.wait, tell)
        note(out, {"run": token, "start": start, "experiment": roster.run.experiment, "members": roster.told()})
        result = played(experiment, desk, roster, out, resume=told is not None, title=title, watcher=watcher, tell=tell)
    except BaseException as trouble:
        transport.close(trouble)
        raise
    transport.close()
    return result


def played(
    experiment: Experiment,
    desk: Desk,
    roster: Roster,
    out: Path,
    *,
    resume: bool,
    title: str | None,
    watcher: Watcher | None,
    tell: Telling,
) -> RunResult:
    table, conduct = table_of(experiment), real_conduct(experiment)
    code = build_wire(experiment)
    wire = Posting(upload=code.upload, download=code.download)
    side = make_side(experiment, roster.members, wire)
    asking = Asking(desk, roster, deadline=table.deadline, tell=tell)
    engine = Remote(asking, conduct.tolerance, patience=table.wait)
    result = run(
        side.built.method,
        side.federation,
        side.built.networks,
        rounds=experiment.rounds,
        cohort=experiment.cohort if is_plain_cohort(experiment) else side.built.sampler,
        seed=experiment.seed,
        engine=engine,
        device=experiment.device,
        loss=None if experiment.loss is None else load_named("loss", experiment.loss),
        evaluation=side.built.plan,
        capacity=experiment.capacity,
        wire=wire,
        out=out / "run",
        title=title,
        configuration=side.built.configuration,
        watcher=watcher,
        trackers=make_trackers(experiment.track),
        notes={records.DEPLOYED: True},
        conduct=conduct,
        checkpoint=replace(CheckpointPlan(**experiment.checkpoint.model_dump()), every=1),
        resume=resume,
    )
    asking.deadline = min(asking.deadline, AFTER_THE_RUN)  # the run is in force, whoever hears of its end
    heard = finish(asking, result.program, result.store, result.server)
    give(asking, result.server.shared, result.server.round)
    counted = [counted_of(result.store.get(client)) for client in range(len(roster.seats))]
    note(out, (noted(out) or {}) | {"finished": {"round": result.server.round, "counted": counted}})
    tell(f"{len(heard)} of {len(roster.seats)} nodes have the last shared part")
    return result


def real_conduct(experiment: Experiment) -> Conduct:
    """What rounds bear, in real seconds; clients that are late or not needed show in the course of a round."""
    bare = experiment.model_copy(update={"faults": None, "tolerate": None})
    conduct = build_conduct(bare)
    given = experiment.tolerate
    if given is None:
        return replace(conduct, is_real=True)
    tolerance = replace(
        conduct.tolerance,
        least_cohort=given.least_cohort,
        deadline=given.deadline,
        largest_norm=given.largest_norm,
    )
    return replace(conduct, tolerance=tolerance, is_real=True)


def gather(roster: Roster, seconds: float, tell: Telling) -> None:
    """Wait until everybody's sizes are known; they are weights, and rounds cannot begin without."""
    until, said = time.monotonic() + seconds, -1
    while True:
        roster.refresh()
        if roster.is_complete:
            return
        missing = [seat.name for seat in roster.seats if not seat.examples]
        wanted = len(roster.seats) if roster.is_closed else roster.wanted or 0
        here = len(roster.seats) - len(missing)
        if here != said:
            said = here
            tell(f"{here} of {wanted} nodes are here" + (f"; waiting for {', '.join(missing[:10])}" if missing else ""))
        if time.monotonic() >= until:
            raise TooFewClients(
                f"After {seconds:g} s, {here} of {wanted} nodes are here"
                + (f"; missing: {', '.join(missing[:20])}" if missing else "")
                + ". Start the others, or raise [deploy] wait."
            )
        time.sleep(roster.desk.poll_seconds)


def has_finished(out: Path) -> bool:
    """Whether there is nothing left to go on with."""
    return "finished" in (noted(out) or {})


def note(out: Path, told: dict[str, Any]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        replace_whole(out / DEPLOYMENT, json.dumps(told, indent=1).encode())
    except OSError as error:
        raise RunFolderError(f"Cannot write {out / DEPLOYMENT}: {error.strerror or error}.") from error


def noted(out: Path) -> dict[str, Any] | None:
    """What was written when the deployment began; None where it has not begun."""
    path = out / DEPLOYMENT
    if not path.is_file():
        return None
    try:
        told: dict[str, Any] = json.loads(path.read_bytes())
        return {key: told[key] for key in ("run", "start", "experiment", "members")} | {
            key: told[key] for key in ("finished",) if key in told
        }
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}. Bring it back from a copy.") from error
