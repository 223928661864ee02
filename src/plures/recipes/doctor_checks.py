"""What is said of each file of a run, and what would be done about it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from plures.core.errors import RunFolderError
from plures.recipes.doctor_findings import Finding, named
from plures.recipes.doctor_records import rounds_finding, table_finding
from plures.recipes.doctor_repairs import noted_repairs, removed, set_aside
from plures.recipes.doctor_seen import Checkpoint, Seen
from plures.recipes.folder_reading import Kept, check_state, is_tuned, read, read_states, read_tensors
from plures.recipes.states import StoredStates, read_only_store
from plures.report import records
from plures.report.running import read_running

ANEW = "plures resume writes it anew"


def short(text: str, folder: Path) -> str:
    """Without the folder, which is known, and the advice, which a table has its own column for."""
    told = text.replace(f"{folder}/", "").replace(f"{records.CHECKPOINTS}/", "")
    for end in (" Take it from a copy", " 'plures doctor"):
        told = told.partition(end)[0]
    return told.rstrip(".")


def left_over(seen: Seen) -> Iterator[Finding]:
    """Files that a process which was killed had begun to write."""
    for folder in (seen.folder, seen.folder / records.CHECKPOINTS):
        for path in sorted(folder.glob(".*.partial")):
            yield useless(seen, path, "was being written when the process was killed")
    for path in sorted((seen.folder / records.CHECKPOINTS).glob("[0-9]*.safetensors")):
        if not path.with_suffix(".json").exists():
            yield useless(seen, path, "of a checkpoint that was never whole")


def useless(seen: Seen, path: Path, meaning: str) -> Finding:
    name = str(path.relative_to(seen.folder))
    return Finding(file=name, state="left over", meaning=meaning, remedy="remove it", repair=partial(removed, path))


def running(seen: Seen) -> Iterator[Finding]:
    path = seen.folder / records.RUNNING
    if not path.is_file():
        return
    told = read_running(seen.folder)
    if told is None:
        meaning, repair = "does not tell any more which process had the run", partial(set_aside, path)
        yield Finding(file=path.name, state="damaged", meaning=meaning, remedy="set it aside", repair=repair)
    elif seen.is_finished:
        yield useless(seen, path, f"process {told.process.pid} was killed right after the run had finished")
    else:
        yield Finding(file=path.name, state="left over", meaning=f"process {told.process.pid} was killed")


def repaired(seen: Seen) -> Iterator[Finding]:
    """What was done here before."""
    if not seen.has(records.DOCTOR):
        return
    try:
        told = noted_repairs(seen.folder)
    except RunFolderError as error:
        yield Finding(file=records.DOCTOR, state="damaged", meaning=short(str(error), seen.folder))
        return
    forgotten = sorted({client for one in told for client in one.get("clients", ())})
    anew = f"; {named(forgotten)} began anew" if forgotten else ""
    yield Finding(file=records.DOCTOR, state="fine", meaning=f"{len(told)} repair{'s' * (len(told) != 1)} before{anew}")


def experiment(seen: Seen) -> Iterator[Finding]:
    if seen.experiment_problem:
        yield Finding(file=records.EXPERIMENT, state="damaged", meaning=short(seen.experiment_problem, seen.folder))
    elif seen.experiment is not None:
        method, rounds = seen.experiment.method, seen.experiment.rounds
        yield Finding(file=records.EXPERIMENT, state="fine", meaning=f"{method}, {rounds} rounds")


def appended(seen: Seen) -> Iterator[Finding]:
    """rounds.jsonl and the tables."""
    for name in records.GROWING:
        path = seen.folder / name
        if not path.is_file():
            if is_expected(seen, name):
                yield Finding(file=name, state="missing", meaning="the run wrote it, and it is gone")
            continue
        try:
            yield rounds_finding(path, seen.rounds_done) if name == records.ROUNDS else table_finding(path)
        except OSError as error:
            yield Finding(file=name, state="damaged", meaning=f"cannot be read: {error.strerror}")


def is_expected(seen: Seen, name: str) -> bool:
    result: Any = seen.result or {}
    told = {
        records.ROUNDS: seen.has(records.RESULT),
        records.VISITS: result.get("rounds_done", 0) > 0,
        records.CLIENTS: result.get("metrics_round") is not None,
        records.FEDERATION: result.get("metrics_round") is not None and not result.get(records.DEPLOYED),
        records.CHOICES: bool(result.get("guard")),
    }
    return told[name] or any(one.manifest is not None and name in one.manifest.files for one in seen.checkpoints)


def checkpoints(seen: Seen, *, settled: bool) -> Iterator[Finding]:
    """`settled`: the run has finished, and its models can be read."""
    for one in seen.checkpoints:
        if settled:
            gone = partial(removed, *one.files)
            told = "the run has finished, and needs it no more"
            yield Finding(file=one.name, state="left over", meaning=told, remedy="remove it", repair=gone)
        elif not one.problem:
            yield Finding(file=one.name, state="fine", meaning=f"the run after {one.round} rounds")
        else:
            yield damaged_checkpoint(seen, one)


def damaged_checkpoint(seen: Seen, one: Checkpoint) -> Finding:
    meaning = short(one.problem, seen.folder)
    if seen.usable is None:
        return Finding(file=one.name, state="damaged", meaning=f"{meaning}; there is no other to go on from")
    gone, remedy = partial(removed, *one.files), f"remove it: round {seen.usable.round} is whole"
    return Finding(file=one.name, state="damaged", meaning=meaning, remedy=remedy, repair=gone)


# The end of a run


def ending(seen: Seen) -> Iterator[Finding]:
    """result.json and the models."""
    problem = short(seen.result_problem, seen.folder) or other_round(seen)
    if problem:
        yield for_anew(seen, records.RESULT, "damaged", problem)
    elif seen.result is not None:
        status = f"{seen.result['status']} after {seen.rounds_done} rounds"
        yield Finding(file=records.RESULT, state="fine", meaning=status)
    problems = {name: problem_of(seen, name) for name in models_of(seen)}
    if seen.result is not None and not any(problems.values()):
        problems[records.SHARED] = disagreement(seen)
    for name, problem in problems.items():
        if problem:
            yield for_anew(seen, name, "damaged" if seen.has(name) else "missing", problem)
        elif seen.result_problem:
            yield Finding(file=name, state="fine", meaning=f"can be read; {records.RESULT} cannot tell what it is")
        elif seen.result is None:
            yield Finding(file=name, state="left over", meaning=f"written before the run could end; {ANEW}")
        else:
            yield Finding(file=name, state="fine", meaning="as result.json tells")


def other_round(seen: Seen) -> str:
    """Of a result whose clients' states are in the store, where that was taken back to an earlier round."""
    if not (seen.keeps_in_store and seen.store_is_whole) or seen.states.lost.get(seen.rounds_done or 0) is not None:
        return ""
    return f"{records.STATES} has no states of its round {seen.rounds_done}"


def models_of(seen: Seen) -> list[str]:
    """That are there, or should be."""
    wanted = {records.SHARED: seen.result is not None}
    wanted[records.PERSONAL] = seen.result is not None and not seen.has(records.STATES)
    wanted[records.TUNED] = seen.result is not None and is_tuned(seen.result)
    return [name for name, needed in wanted.items() if needed or seen.has(name)]


def problem_of(seen: Seen, name: str) -> str:
    """Of a file of models, if it cannot be read."""
    if not seen.has(name):
        return "the run wrote it, and it is gone"
    try:
        read(seen.folder / name, read_tensors if name == records.SHARED else read_states)
    except RunFolderError as error:
        return short(str(error), seen.folder)
    return ""


def disagreement(seen: Seen) -> str:
    """Of the models with the fingerprint in the result; where states cannot be read, that is told of their file."""
    assert seen.result is not None
    assert seen.rounds_done is not None
    if seen.keeps_in_store and (seen.states.was_cut or not seen.states.serve(seen.rounds_done)):
        return ""
    store = read_only_store(seen.folder, seen.rounds_done) if seen.keeps_in_store else None
    states = read(seen.folder / records.PERSONAL, read_states) if store is None else StoredStates(store)
    shared = read(seen.folder / records.SHARED, read_tensors)
    kept = Kept(folder=seen.folder, result=seen.result, history=[], shared=shared, states=states, tuned={}, choices={})
    try:
        check_state(kept)
    except RunFolderError:
        return f"it and the clients' states are not what {records.RESULT} tells of"
    finally:
        if store is not None:
            store.close()
    return ""


def for_anew(seen: Seen, name: str, state: Any, meaning: str) -> Finding:
    """What a run that goes on makes again can be set aside; without a checkpoint it is lost."""
    if seen.usable is None:
        return Finding(file=name, state=state, meaning=meaning)
    aside = records.RESULT if state == "missing" else name
    repair = partial(set_aside, seen.folder / aside)
    return Finding(file=name, state=state, meaning=meaning, remedy=f"set {aside} aside: {ANEW}", repair=repair)
