"""What the columns of a comparison mean, and what its reader must know of these runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from plures.report.comparison import ComparedLabel, StudyComparison
from plures.report.milestones import SHARE
from plures.report.references import STAGE_A
from plures.report.scales import SMALLER_IS_BETTER, in_percent


def legend(found: StudyComparison, mark: str = "bold") -> str:
    """What the columns are, and how the best is marked."""
    better = ", smaller is better" if found.metric in SMALLER_IS_BETTER else ""
    scale = ", percent" if in_percent(found.metric) else ""
    who = "newcomers" if found.rows[0].model.startswith("newcomers/") else "clients"
    rounds = "" if found.reference == STAGE_A else f"rounds: to {SHARE:g} of the end, over {found.reference}'s. "
    return (
        f"{found.metric}: {found.split} examples of all {who}, last round{scale}{better}; mean±std of n seeds (ddof 0)"
        f"{best_text(found, mark)}. chosen: in the round best on validation. low 10%: bottom decile of {who}. "
        f"{difference_legend(found)}{rounds}sent: bytes. {models_text(found)}"
    )


def best_text(found: StudyComparison, mark: str) -> str:
    """What is marked, if anything is."""
    best = found.best()
    if not best:
        return ""
    several = any(row.last.weighted is not None and len(row.last.weighted.values) > 1 for row in found.rows)
    return f", {mark}: best{' and means within its std' if several else ''}"


def difference_legend(found: StudyComparison) -> str:
    if all(row.difference is None for row in found.rows):
        return ""
    return (
        f"difference: minus {found.reference}, {pairs_text(found)} [95% bootstrap over {over_what(found)}]. "
        "+/-: clients helped/hurt. "
    )


def over_what(found: StudyComparison) -> str:
    most = max(len(row.difference.seeds) for row in found.rows if row.difference is not None)
    return "seeds and clients" if most > 1 else "clients only: one seed"


def pairs_text(found: StudyComparison) -> str:
    """On how many seeds both sides are; label by label where it differs."""
    pairs = {
        row.label: 0 if row.difference is None else len(row.difference.seeds)
        for row in found.rows
        if row.reference_model is not None
    }
    if len(set(pairs.values())) > 1:
        return "pairs of like seed: " + ", ".join(f"{label} {count}" for label, count in pairs.items())
    count = next(iter(pairs.values()))
    return f"{count} {'pair' if count == 1 else 'pairs'} of like seed"


def models_text(found: StudyComparison) -> str:
    """Which model is judged; of labels that differ, which is whose."""
    models: dict[str, list[str]] = {}
    for row in found.rows:
        models.setdefault(row.model, []).append(row.label)
    if len(models) == 1:
        return f"Model: {next(iter(models))}."
    return "Models: " + "; ".join(f"{model} ({', '.join(labels)})" for model, labels in models.items()) + "."


def notes(found: StudyComparison) -> list[str]:
    """What is out of the ordinary; of most comparisons nothing."""
    everything = (
        no_difference_note(found),
        other_model_note(found),
        no_stage_a_note(found),
        left_out_note(found),
        overflow_note(found),
        not_counted_note(found),
        scored_once_note(found),
    )
    return [note for note in everything if note]


def no_difference_note(found: StudyComparison) -> str:
    """Why no label has a difference, though there is something to compare with."""
    compared = [row for row in found.rows if row.reference_model is not None]
    if not compared or any(row.difference is not None for row in compared):
        return ""
    before = {seed for row in found.rows if row.label == found.reference for seed in row.seeds}
    if before and not any(before & set(row.seeds) for row in compared):
        return f"No differences: no label has a seed in common with {found.reference}."
    return f"No differences: {found.reference} has no {found.split} scores of the same clients and seeds."


def other_model_note(found: StudyComparison) -> str:
    asked = (found.asked_model or "").removeprefix("newcomers/")
    others = [row for row in found.rows if row.label == found.reference]
    if not asked or all(row.model.removeprefix("newcomers/") == asked for row in others):
        return ""
    return f"{found.reference} has no {asked} model and stands with the one that it is judged by, {others[0].model}."


def no_stage_a_note(found: StudyComparison) -> str:
    if found.reference != STAGE_A:
        return ""
    return listed("No stage (a), and so no difference", (row for row in found.rows if row.reference_model is None))


def left_out_note(found: StudyComparison) -> str:
    counts = {row.label: row.difference.left_out for row in found.rows if row.difference is not None}
    told = [f"{label} {count}" for label, count in counts.items() if count]
    return f"Clients left out of differences, as they lack a value: {', '.join(told)}." if told else ""


def overflow_note(found: StudyComparison) -> str:
    if not any(overflows(row) for row in found.rows):
        return ""
    return (
        "inf: on some client a model overflows. A difference then has no interval, and where both sides overflow no "
        "value either."
    )


def overflows(row: ComparedLabel) -> bool:
    infinite = row.last.weighted is not None and math.isinf(row.last.weighted.mean)
    return infinite or (row.difference is not None and row.difference.interval is None)


def not_counted_note(found: StudyComparison) -> str:
    rows = (row for row in found.rows if row.not_counted)
    return listed("sent leaves out stage (a), whose folder cannot be read", rows)


def scored_once_note(found: StudyComparison) -> str:
    rows = (row for row in found.rows if row.scored_once)
    return listed("No chosen round and no rounds, as the fine-tuned model is scored in the last round alone", rows)


def listed(what: str, rows: Iterable[ComparedLabel]) -> str:
    """The labels for which something holds; nothing if there are none."""
    labels = ", ".join(row.label for row in rows)
    return f"{what}: {labels}." if labels else ""


def deltas_legend(found: StudyComparison) -> str:
    scale = ", in percentage points" if in_percent(found.metric) else ""
    return (
        f"Each client's {found.metric} minus that with {found.reference}{scale}, averaged over seeds; all clients "
        "count the same. +/-/=: helped/hurt/same. mixed: helped under one seed, hurt under another."
        f"{left_out_by_split(found)}"
    )


def left_out_by_split(found: StudyComparison) -> str:
    differences = [(row.label, row.difference) for row in found.rows if row.difference is not None]
    told = [
        f"{label} {split} {deltas.left_out}"
        for label, one in differences
        for split, deltas in one.deltas.items()
        if deltas.left_out
    ]
    return f" Left out, as they lack a value: {', '.join(told)}." if told else ""
