"""Looks at every file of a run or a study, says how each stands, and repairs what can be repaired."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from plures.core.errors import RunFolderError
from plures.recipes.doctor_checks import appended, checkpoints, ending, experiment, left_over, repaired, running
from plures.recipes.doctor_findings import Diagnosis, Done, Finding
from plures.recipes.doctor_repairs import note_repairs
from plures.recipes.doctor_rescue import kept_states
from plures.recipes.doctor_seen import Seen, look
from plures.recipes.folder_reading import read, runs_in
from plures.recipes.resuming import check_nobody_runs, is_begun
from plures.report import records
from plures.report.finding import find_runs, is_run
from plures.report.processes import this_process
from plures.report.running import read_running

PASSES = 4
"""A repair may leave something for the next: a file that was set aside is missing then."""
LOADED = (
    *(records.EXPERIMENT, records.RESULT, records.ROUNDS, records.CLIENTS),
    *(records.SHARED, records.PERSONAL, records.TUNED),
)
"""What must be whole for a run to be loaded."""


def examine(folder: Path) -> list[Diagnosis]:
    """A run, or a study and every run in it; nothing is changed."""
    if not folder.is_dir():
        raise RunFolderError(f"There is no folder {folder}. Give the folder of a run; `plures runs` lists runs.")
    if is_run(folder) or is_begun(folder) or (folder / records.CHECKPOINTS).is_dir():
        return [examine_run(folder)]
    runs = [examine_run(path) for path in find_runs(folder)]
    study = [examine_study(folder)] if (folder / records.STUDY).is_file() else []
    if not runs and not study:
        raise RunFolderError(f"{folder} is no run, and has none below it. `plures runs` lists runs.")
    return [*study, *runs]


def examine_run(folder: Path) -> Diagnosis:
    live = who_runs(folder)
    if live:
        finding = Finding(file=records.RUNNING, state="fine", meaning=live)
        verdict = f"The run goes on ({live}): look again when it has ended."
        return Diagnosis(folder=folder, findings=(finding,), verdict=verdict, goes_on=True)
    seen = look(folder)
    ends = list(ending(seen))
    settled = seen.is_finished and all(finding.state == "fine" for finding in ends)
    settled = settled and (seen.store_is_whole or not seen.keeps_in_store)
    findings = (
        *experiment(seen),
        *appended(seen),
        *ends,
        *kept_states(seen, settled=settled),
        *checkpoints(seen, settled=settled),
        *running(seen),
        *left_over(seen),
        *repaired(seen),
    )
    return judged(seen, findings)


def who_runs(folder: Path) -> str:
    """The process that has a folder, as far as anybody knows; nobody: nothing."""
    told = read_running(folder)
    if told is None or told.is_dead() or told.process == this_process():
        return ""
    return f"process {told.process.pid} on {told.process.host}"


# The verdict


def judged(seen: Seen, findings: tuple[Finding, ...]) -> Diagnosis:
    from_round, is_loadable = resumable_from(seen), loadable(seen, findings)
    return Diagnosis(
        folder=seen.folder,
        findings=findings,
        verdict=" ".join(sentences(seen, findings, from_round, is_loadable)),
        resumable_from=from_round,
        is_finished=seen.is_finished and is_loadable,
        is_loadable=is_loadable,
    )


def resumable_from(seen: Seen) -> int | None:
    """As the folder is now; where some clients' states are lost, the run would fail when it calls them."""
    if seen.is_finished and not seen.checkpoints:
        return None
    if seen.never_kept:
        return 0
    first = seen.whole[0] if seen.whole else None
    if first is None or (first.has_states and not seen.store_is_whole):
        return None
    return first.round


def loadable(seen: Seen, findings: tuple[Finding, ...]) -> bool:
    wrong = {finding.file for finding in findings if finding.state in ("damaged", "cut", "missing")}
    needed = {*LOADED, *([records.STATES] if seen.keeps_in_store else [])}
    if seen.result is not None and seen.result.get("guard"):
        needed.add(records.CHOICES)
    return seen.result is not None and not wrong & needed


def sentences(seen: Seen, findings: tuple[Finding, ...], from_round: int | None, is_loadable: bool) -> Iterator[str]:
    """Whether the run can go on or be loaded, in plain words."""
    if seen.is_finished and is_loadable:
        yield "The run has finished, and can be loaded."
        return
    how = f"plures resume {seen.folder}" if seen.experiment is not None else "plures.run(..., resume=True) in Python"
    if from_round == 0:
        yield f"The run has no checkpoint of a round yet: {how} begins it anew."
    elif from_round is not None:
        yield f"The run can be resumed from round {from_round}: {how}."
    elif any(finding.repair for finding in findings if finding.file == records.STATES):
        yield "The run cannot be resumed before clients.sqlite is repaired."
    else:
        yield f"The run cannot be resumed: {'no checkpoint is whole' if seen.checkpoints else 'it has no checkpoint'}."
    if is_loadable:
        yield f"Its models after round {seen.rounds_done} can be loaded."
    elif from_round is None:
        yield "Nor can it be loaded. Take what is damaged from a copy, or run the experiment again in another folder."


# Studies


def examine_study(folder: Path) -> Diagnosis:
    """The list of its runs; they are looked at by themselves."""
    live = who_runs(folder)
    path = folder / records.STUDY
    findings: list[Finding] = []
    try:
        runs = read(path, runs_in)
        gone = [run for run in runs if not is_run(run)]
        findings.append(Finding(file=path.name, state="fine", meaning=f"{len(runs)} runs have finished"))
        findings += [
            Finding(file=str(run.relative_to(folder)), state="missing", meaning="a run that the study names")
            for run in gone
        ]
    except RunFolderError as error:
        findings.append(Finding(file=path.name, state="damaged", meaning=str(error).replace(f"{folder}/", "")))
    if (folder / records.RUNNING).is_file() and not live:
        findings.append(Finding(file=records.RUNNING, state="left over", meaning="its process was killed"))
    verdict = f"The study goes on ({live})." if live else f"The study: plures resume {folder} runs what is left of it."
    if any(finding.state == "damaged" for finding in findings):
        verdict = f"The study cannot be resumed: {path.name} is damaged. Its runs can be, one by one."
    elif not live and is_complete(path):
        verdict = "All runs that the study planned have finished."
    return Diagnosis(folder=folder, findings=tuple(findings), verdict=verdict, goes_on=bool(live))


def is_complete(path: Path) -> bool:
    told = json.loads(path.read_text(encoding="utf-8"))
    planned = told.get("planned", [])
    return isinstance(planned, list) and len(told["runs"]) >= len(planned)


# Repairs


def repair(folder: Path, *, forget_clients: bool = False) -> list[tuple[Path, Done]]:
    """Repair a run, or all of a study; what was changed is returned, and told in doctor.json of each run."""
    for found in examine(folder):
        if found.goes_on:
            check_nobody_runs(found.folder)
    changed: list[tuple[Path, Done]] = []
    for _ in range(PASSES):
        todo = {found.folder: wanted(found, forget_clients=forget_clients) for found in examine(folder)}
        for place, findings in todo.items():
            done = [made for finding in findings if finding.repair is not None and (made := finding.repair())]
            note_repairs(place, done)
            changed += [(place, one) for one in done]
        if not any(todo.values()):
            break
    return changed


def wanted(found: Diagnosis, *, forget_clients: bool) -> list[Finding]:
    return [one for one in found.findings if one.repair is not None and (one.forgets is None or forget_clients)]
