"""Local and FedAvg beside what is compared: found among the runs that lie near, or told how to make them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plures.report import records
from plures.report.conditions import conditions_of, not_alike, same_local_work
from plures.report.nearby import free_folder, left_out_of, runs_near, shown
from plures.report.studies import RecordedRun, Series, configuration_of, is_finished

USUAL_BESIDE = ("local", "fedavg", "finetune")
"""What runs beside every study, and comes first in every table."""
LOOKED_FOR = ("local", "fedavg")
"""Without these a comparison says little: what clients have alone, and what they have together."""
WIDTH = 80
MOST_FOLDERS = 2
"""Of those that were found, so many are named."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What was found beside the runs given."""

    added: tuple[Series, ...] = ()
    missing: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """What is said of both."""
    command: tuple[str, ...] = ()
    """Makes what is missing: the words of a shell, and the options each apart."""

    def command_lines(self) -> list[str]:
        """With a margin, for a terminal of 80 columns; a shell takes it as it is."""
        if not self.command:
            return []
        line = f"  {' '.join(self.command)}"
        return [line] if len(line) <= WIDTH else ("  " + " \\\n      ".join(self.command)).split("\n")

    def as_json(self) -> dict[str, Any]:
        added = {one.label: [str(run.folder) for run in one.runs.values()] for one in self.added}
        return {
            "added": added,
            "missing": list(self.missing),
            "words": list(self.words),
            "command": " ".join(self.command) or None,
        }


def baselines_first(series: Sequence[Series]) -> list[Series]:
    """Local, FedAvg and FedAvg with fine-tuning, then the others as they come."""
    known = [one for method in USUAL_BESIDE for one in series if method_of(one.first) == method]
    return [*known, *(one for one in series if method_of(one.first) not in USUAL_BESIDE)]


def look_beside(paths: Sequence[Path], given: Sequence[Series]) -> Beside:
    """Runs of Local and FedAvg under the same conditions and seeds, where they are not among those given."""
    runs = runs_in(given)
    have, left_out = {method_of(run) for run in runs}, left_out_of(paths)
    wanted = [method for method in LOOKED_FOR if method not in have | left_out.keys()]
    words = [f"{method} was left out: {reason}" for method, reason in left_out.items()]
    if not wanted or not all(map(is_finished, runs)):
        return Beside(words=tuple(words))
    conditions = [conditions_of(run) for run in runs]
    unlike = not_alike(conditions)
    if unlike:
        why = f"not looked for, as the runs given differ in {' and '.join(unlike)}. Name the runs to take."
        return Beside(missing=tuple(wanted), words=(*words, f"{' and '.join(wanted)}: {why}"))
    return chosen_from(runs_near(paths, runs, conditions[0]), wanted, paths, given, words)


def chosen_from(
    found: Sequence[RecordedRun],
    wanted: Sequence[str],
    paths: Sequence[Path],
    given: Sequence[Series],
    words: Sequence[str],
) -> Beside:
    """Of each method the configuration that fits best; where several fit as well, none."""
    groups = {method: best_groups([run for run in found if method_of(run) == method], given) for method in wanted}
    added = [as_added(method, alike[0], given) for method, alike in groups.items() if len(alike) == 1]
    nowhere = [method for method, alike in groups.items() if not alike]
    command = command_for(paths, given) if nowhere else ()
    told = [*words, *(several_text(method, alike) for method, alike in groups.items() if len(alike) > 1)]
    told += [f"Added, as found beside: {', '.join(map(added_text, added))}."] if added else []
    told += [missing_text(nowhere, command)] if nowhere else []
    missing = [method for method, alike in groups.items() if len(alike) != 1]
    return Beside(added=tuple(added), missing=tuple(missing), words=tuple(told), command=command)


def best_groups(runs: Sequence[RecordedRun], given: Sequence[Series]) -> list[list[RecordedRun]]:
    """Of one method: runs of like configuration, with the local work of most labels, then with most seeds."""
    groups: list[tuple[Any, dict[int, RecordedRun]]] = []
    for run in runs:
        configuration = configuration_of(run.folder)
        alike = next((seeds for known, seeds in groups if known == configuration), None)
        if alike is None:
            groups.append((configuration, {run.seed: run}))
        elif configuration is not None or run.seed not in alike:
            alike.setdefault(run.seed, run)  # the same run once more has the same bits
        else:
            groups.append((object(), {run.seed: run}))  # from Python: nobody knows whether it is the same
    ranks = [
        (sum(same_local_work(next(iter(seeds.values())), one.first) for one in given), len(seeds))
        for _, seeds in groups
    ]
    return [list(seeds.values()) for (_, seeds), rank in zip(groups, ranks, strict=True) if rank == max(ranks)]


def as_added(method: str, runs: Sequence[RecordedRun], given: Sequence[Series]) -> Series:
    label = f"{method}:{runs[0].folder}" if method in [one.label for one in given] else method
    return Series(label=label, runs={run.seed: run for run in sorted(runs, key=lambda run: run.seed)})


def added_text(series: Series) -> str:
    folders = [str(run.folder) for run in series.runs.values()]
    more = len(folders) - MOST_FOLDERS
    return f"{series.label} ({', '.join(folders[:MOST_FOLDERS])}{f' and {more} more' if more > 0 else ''})"


def several_text(method: str, groups: Sequence[Sequence[RecordedRun]]) -> str:
    folders = ", ".join(str(runs[0].folder) for runs in groups)
    return f"{method}: {len(groups)} configurations lie beside that fit as well ({folders}). Name the one to take."


def missing_text(methods: Sequence[str], command: Sequence[str]) -> str:
    what = f"No {' and no '.join(methods)} with the same data, rounds, cohorts, network and seeds lies beside."
    if command:
        return f"{what} This makes what is missing:"
    calls = " and ".join(f"plures.methods.{method}()" for method in methods)
    return f"{what} These runs are from Python: run {calls} likewise, with out= a folder beside theirs."


def command_for(paths: Sequence[Path], given: Sequence[Series]) -> tuple[str, ...]:
    """Runs the first label that has a configuration, with what is missing beside it; nothing if none has."""
    runs = [run for run in runs_in(given) if (run.folder / records.EXPERIMENT).is_file()]
    if not runs:
        return ()
    seeds = sorted({run.seed for run in runs_in(given)})
    wanted = "1" if seeds == [runs[0].seed] else ",".join(map(str, seeds))
    file, out = shown(runs[0].folder.resolve()) / records.EXPERIMENT, free_folder(paths[0])
    return f"plures run {shlex.quote(str(file))}", f"--seeds {wanted}", f"--out {shlex.quote(str(out))}"


def runs_in(series: Sequence[Series]) -> list[RecordedRun]:
    return [run for one in series for run in one.runs.values()]


def method_of(run: RecordedRun) -> str:
    return str(run.result["method"])
