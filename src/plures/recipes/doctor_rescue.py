"""What is said of clients.sqlite: a state that is lost is never replaced by an older one of the same client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from plures.recipes.doctor_checks import disagreement, problem_of
from plures.recipes.doctor_findings import Done, Finding, Repair, named
from plures.recipes.doctor_repairs import removed, replaced
from plures.recipes.doctor_seen import Checkpoint, Seen
from plures.recipes.doctor_states import JOURNAL, Lost, rescue, take_back
from plures.recipes.folder import state_fingerprint
from plures.recipes.folder_reading import read, read_result, read_states, read_tensors
from plures.recipes.states import StoredStates
from plures.report import records
from plures.report.json_text import as_json_text
from plures.stores.disk import DiskStore
from plures.stores.rescue import Damage


def kept_states(seen: Seen, *, settled: bool) -> Iterator[Finding]:
    damage, name = seen.states.damage, records.STATES
    if damage is None:
        if any(one.has_states for one in seen.whole):
            yield to_be_saved(seen, Finding(file=name, state="missing", meaning="the run wrote it, and it is gone"))
    elif settled and seen.has(records.PERSONAL):
        gone = partial(removed, seen.folder / JOURNAL, seen.folder / name)
        told = f"the run has finished, and {records.PERSONAL} has all of it"
        yield Finding(file=name, state="left over", meaning=told, remedy="remove it", repair=gone)
    elif seen.never_kept:
        yield Finding(file=name, state="left over", meaning="of a run that never came to its first checkpoint")
    elif damage.is_whole:
        yield Finding(file=name, state="fine", meaning=f"{damage.num_states} states, saved after round {damage.round}")
        yield from journal(seen)
    else:
        yield to_be_saved(seen, Finding(file=name, state="damaged", meaning=damage_told(damage)))


def journal(seen: Seen) -> Iterator[Finding]:
    if seen.states.was_cut:
        meaning, repair = f"{records.STATES} was being written at a kill", partial(take_back, seen.folder)
        yield Finding(file=JOURNAL, state="left over", meaning=meaning, remedy="take that back", repair=repair)


def damage_told(damage: Damage) -> str:
    unreadable = sorted({one.client for one in damage.unreadable})
    if damage.unopened:
        return "nobody's state can be read"
    return f"what was kept of {named(unreadable)} is damaged" if unreadable else "its order is damaged, no state is"


def to_be_saved(seen: Seen, fate: Finding) -> Finding:
    """What can be done, by how little is lost by it."""
    if not seen.whole:
        return of_ended(seen, fate)
    newest, usable = seen.whole[0], seen.usable
    lost = seen.states.lost.get(newest.round)
    if lost == ():
        return replace(fate, remedy="save all of it", repair=partial(go_back, seen, newest))
    if has_spare(seen, newest):
        remedy = f"take {'all clients' if lost is None else named(lost)} from {records.PERSONAL}"
        return replace(fate, remedy=remedy, repair=partial(go_back, seen, newest, spare=True))
    if usable is not None:
        remedy = f"save the rest: the run goes back to round {usable.round}, where nobody is lost"
        return replace(fate, remedy=remedy, repair=partial(go_back, seen, usable))
    return forgetting(fate, lost, partial(go_back, seen, newest))


def of_ended(seen: Seen, fate: Finding) -> Finding:
    """Where a run has ended and keeps its clients' states there."""
    round = seen.rounds_done if seen.keeps_in_store else None
    if round is None or (lost := seen.states.lost[round]) is None:
        return fate
    repair = partial(save_ended, seen.folder, round, lost)
    return forgetting(fate, lost, repair) if lost else replace(fate, remedy="save all of it", repair=repair)


def forgetting(fate: Finding, lost: Lost, repair: Repair) -> Finding:
    what = "all clients begin anew" if lost is None else f"save the rest; {begin_anew(lost)}"
    return replace(fate, remedy=f"with --forget-clients: {what}", repair=repair, forgets=lost or ())


def begin_anew(clients: tuple[int, ...]) -> str:
    return f"{named(clients)} begin{'s' if len(clients) == 1 else ''} anew"


def has_spare(seen: Seen, one: Checkpoint) -> bool:
    """Whether a run that was interrupted has left its clients' states of the same round in another file as well."""
    if seen.rounds_done != one.round or not seen.has(records.PERSONAL):
        return False
    return not (problem_of(seen, records.PERSONAL) or problem_of(seen, records.SHARED) or disagreement(seen))


# Repairs


def go_back(seen: Seen, one: Checkpoint, *, spare: bool = False) -> Done:
    """A file of what everybody held at a checkpoint; it has nothing of other rounds, so that others are useless."""
    others = read(seen.folder / records.PERSONAL, read_states) if spare else None
    may_lose = seen.states.lost.get(one.round)
    lost = rescue(seen.folder, one.round, may_lose=may_lose, spare=others)
    for other in seen.checkpoints:
        if other is not one:
            removed(*other.files)
    how = f", with states from {records.PERSONAL}" if spare else f"; {begin_anew(lost)}" if lost else ""
    how = "; all clients begin anew" if may_lose is None and not spare else how
    what = f"the run goes on from round {one.round}{how}"
    return Done(file=records.STATES, what=what, round=one.round, clients=lost)


def save_ended(folder: Path, round: int, lost: tuple[int, ...]) -> Done:
    """Of a run that has ended; its result tells of the states that are left before they take their place."""

    def tell(fresh: Path) -> None:
        if lost:
            tell_of_rest(folder, fresh, lost)

    rescue(folder, round, may_lose=lost, look_at=tell)
    return Done(file=records.STATES, what=f"saved the rest; {begin_anew(lost)}" if lost else "saved", clients=lost)


def tell_of_rest(folder: Path, fresh: Path, lost: tuple[int, ...]) -> None:
    result, shared = read_result(folder), read(folder / records.SHARED, read_tensors)
    with DiskStore(fresh, read_only=True) as store:
        left = state_fingerprint(shared, StoredStates(store).items())
    told = result | {"fingerprint": result["fingerprint"] | {"final_state": left}, "forgotten_clients": list(lost)}
    replaced(folder / records.RESULT, (as_json_text(told, indent=2) + "\n").encode())
