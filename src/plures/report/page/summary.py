"""The top of a page: cards with the numbers that matter most, and all labels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plures.report.comparison import ComparedLabel, OverSeeds, StudyComparison
from plures.report.cost_tables import readable_count
from plures.report.page.axes import titled
from plures.report.page.costs import readable_seconds
from plures.report.page.finals import personal_parameters
from plures.report.page.gathered import Gathered, Labelled
from plures.report.scales import Digits, digits_of, in_percent
from plures.report.tables import readable_bytes


@dataclass(frozen=True, kw_only=True)
class Card:
    """One number, what it is, and what to know about it."""

    title: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One label in the table of all."""

    label: str
    is_best: bool
    cells: Sequence[str]


def cards_of(found: Gathered) -> list[Card]:
    best = best_label(found)
    return [*fortune_cards(found, best), *run_cards(found, best)]


def best_label(found: Gathered) -> Labelled:
    """The best by its mean over seeds; where nothing was scored, the first."""
    scored = [one for one in found.labels if one.row.last.weighted is not None]
    smaller = found.comparison.as_json()["smaller_is_better"]
    ranked = sorted(scored, key=lambda one: mean_of(one.row.last.weighted), reverse=not smaller)
    return ranked[0] if ranked else found.labels[0]


def mean_of(values: OverSeeds | None) -> float:
    return float("nan") if values is None else values.mean


def fortune_cards(found: Gathered, best: Labelled) -> list[Card]:
    """How the best label fares, and its clients."""
    several, row, digits = len(found.labels) > 1, best.row, digits_for(found.comparison)
    seeds = f"{len(row.seeds)} seeds" if len(row.seeds) > 1 else f"seed {row.seeds[0]}"
    head = f"{titled(found.metric)} on {found.asked.split} data"
    note = f"{row.label}, {row.model} model, {seeds}" + (f"; best of {len(found.labels)} labels" if several else "")
    low = (
        f"Where the worst tenth of {row.label}'s clients begins; its worst client has {shown(row.last.worst, digits)}."
    )
    cards = [
        Card(title=head, value=with_spread(row.last.weighted, digits) + unit(found.metric), note=note),
        Card(title="Bottom decile", value=shown(row.last.bottom_decile, digits) + unit(found.metric), note=low),
    ]
    deltas = None if row.difference is None else row.difference.deltas.get(found.asked.split)
    if deltas is not None:
        against = f"Clients of {row.label} against {found.reference}, of {deltas.clients:,} that both have."
        cards.append(Card(title="Helped / hurt", value=f"{deltas.helped:,} / {deltas.hurt:,}", note=against))
    return cards


def run_cards(found: Gathered, best: Labelled) -> list[Card]:
    result, runs = best.runs[0].result, sum(len(one.runs) for one in found.labels)
    done, planned = result.get("rounds_done", "?"), result.get("rounds", "?")
    state = "All finished." if found.comparison.finished else f"The first run is {result['status']}."
    clients = result.get("clients", len(found.population) or "?")
    seconds = [run.result["cost"].get("seconds") for run in best.runs]
    known = [value for value in seconds if value is not None]
    own = personal_parameters(best.runs[0])
    personal = (
        [Card(title="Personal parameters", value=readable_count(own), note=f"Kept by a client of {best.label}.")]
        if own is not None
        else []
    )
    return [
        Card(title="Clients", value=with_commas(clients), note=f"A round has {result.get('cohort', '?')} of them."),
        Card(title="Runs", value=f"{runs:,}", note=f"{best.label} made {done} of {planned} rounds. {state}"),
        Card(
            title="Sent", value=readable_bytes(best.row.num_bytes), note=f"Up and down in a run of {best.label}, mean."
        ),
        Card(
            title="Time",
            value=readable_seconds(float(np.mean(known))) if known else "-",
            note=f"Rounds of a run of {best.label}, without evaluation, mean.",
        ),
        *personal,
    ]


def with_commas(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def heading_of(found: Gathered) -> list[str]:
    percent = ", %" if in_percent(found.metric) else ""
    compared = [f"minus {found.reference}", "95 % interval", "helped / hurt"] if found.compared else []
    return ["label", "seeds", f"{found.metric}{percent}", "chosen round", "bottom decile", "worst", *compared, "sent"]


def lines_of(found: Gathered) -> list[Line]:
    digits, best = digits_for(found.comparison), found.comparison.best()
    several = len(found.labels) > 1
    return [
        Line(
            label=row.label,
            is_best=several and row.label in best,
            cells=[*own_cells(row, digits), *(difference_cells(row, digits) if found.compared else ()), sent(row)],
        )
        for row in found.comparison.rows
    ]


def sent(row: ComparedLabel) -> str:
    return readable_bytes(row.num_bytes)


def own_cells(row: ComparedLabel, digits: Digits) -> list[str]:
    return [
        str(len(row.seeds)),
        with_spread(row.last.weighted, digits),
        shown(row.selected.weighted, digits),
        shown(row.last.bottom_decile, digits),
        shown(row.last.worst, digits),
    ]


def difference_cells(row: ComparedLabel, digits: Digits) -> list[str]:
    """Of the reference itself, and of a label that has no pair, dashes."""
    if row.difference is None:
        return ["-", "-", "-"]
    interval, deltas = row.difference.interval, row.difference.deltas["test"]
    return [
        digits.signed(row.difference.per_seed.mean),
        "-" if interval is None else f"{digits.signed(interval.low)} to {digits.signed(interval.high)}",
        f"{deltas.helped:,} / {deltas.hurt:,}",
    ]


def digits_for(comparison: StudyComparison) -> Digits:
    means = [mean_of(row.last.weighted) for row in comparison.rows]
    return digits_of(comparison.metric, means)


def unit(metric: str) -> str:
    return " %" if in_percent(metric) else ""


def shown(values: OverSeeds | None, digits: Digits) -> str:
    return digits.plain(None if values is None else values.mean)


def with_spread(values: OverSeeds | None, digits: Digits) -> str:
    """With the std over seeds, where there are several."""
    if values is None or len(values.values) == 1:
        return shown(values, digits)
    return f"{shown(values, digits)} ± {digits.plain(values.std).lstrip('+')}"
