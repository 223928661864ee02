"""The clients of one label as a table, and what it comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from plures.report.clients import ClientReport, ClientRow, Order, Overview
from plures.report.pairing import ClientDeltas
from plures.report.scales import SMALLER_IS_BETTER, Digits, digits_of, in_percent
from plures.report.sheets import Cell, Column, Sheet

MOST_ROWS = 30
"""Without a wish: half of them the worst, half the best."""
SHORT = {"seen_accuracy": "seen", "unseen_accuracy": "unseen", "unseen_share": "share"}


def shown_rows(order: Order, worst: int | None) -> tuple[list[ClientRow], list[ClientRow]]:
    """The first and the last rows that are shown; those between are not."""
    rows, half = [*order.known, *order.unknown], MOST_ROWS // 2
    if worst is not None:
        return rows[:worst], []
    if len(rows) <= MOST_ROWS:
        return rows, []
    if len(order.known) <= MOST_ROWS:
        return rows[:MOST_ROWS], []
    return rows[:half], order.known[-half:]


def clients_sheet(report: ClientReport, first: Sequence[ClientRow], last: Sequence[ClientRow] = ()) -> Sheet:
    """Two groups of rows, with a gap where rows are left out."""
    recorded, digits = any(row.member is not None for row in report.rows), digits_by_metric(report)
    columns = columns_of(report, recorded)
    above, below = ([client_cells(report, row, digits, recorded) for row in rows] for rows in (first, last))
    gap = [tuple(Cell(text="" if place else "...") for place in range(len(columns)))] if last else []
    return Sheet(columns=columns, rows=(*above, *gap, *below))


def columns_of(report: ClientReport, recorded: bool) -> tuple[Column, ...]:
    """Of clients that are recorded it is known who they are."""
    facts = ("train", "test", "classes") if recorded else (f"{report.split} items",)
    return (
        Column(heading="client", names=("name",), words=True, least=6),
        Column(names=("client", "label", "model", "split", "examples")),
        *(Column(heading=fact, names=(fact.replace(" ", "_"),)) for fact in facts),
        *(Column(heading=SHORT.get(name, name), names=(name,)) for name in report.rows[0].values),
        *([] if report.reference is None else [Column(heading="delta", names=("delta", "sign_changes", "reference"))]),
    )


def digits_by_metric(report: ClientReport) -> dict[str, Digits]:
    return {name: digits_of(name, [row.values[name] for row in report.rows]) for name in report.rows[0].values}


def client_cells(
    report: ClientReport, row: ClientRow, digits: Mapping[str, Digits], recorded: bool
) -> tuple[Cell, ...]:
    facts = member_facts(row) if recorded else (row.examples,)
    delta = Cell(text=digits[report.metric].signed(row.delta), values=(row.delta, row.sign_changes, report.reference))
    return (
        Cell(text=row.name, values=(row.name,)),
        Cell(values=(row.client, report.label, report.model, report.split, row.examples)),
        *(Cell(text="-" if fact is None else str(fact), values=(fact,)) for fact in facts),
        *(Cell(text=digits[name].plain(value), values=(value,)) for name, value in row.values.items()),
        *([] if report.reference is None else [delta]),
    )


def member_facts(row: ClientRow) -> tuple[int | None, ...]:
    return (None, None, None) if row.member is None else (row.member.train, row.member.test, row.member.classes)


def summary_lines(report: ClientReport) -> list[str]:
    """What the table comes to, over all clients."""
    lines, digits = [title(report)], digits_by_metric(report)[report.metric]
    if report.overview is not None:
        lines.append(overview_line(report.overview, digits))
    lines += [deltas_line(report, split, deltas, digits) for split, deltas in report.deltas.items()]
    unknown = sum(math.isnan(row.values[report.metric]) for row in report.rows)
    if unknown:
        lines.append(f"Without {report.metric}, and so not counted: {unknown}")
    if report.without:
        lines.append(f"Not in the table, without {report.split} examples: {report.without}")
    return lines


def overview_line(found: Overview, digits: Digits) -> str:
    show = digits.plain
    quartiles = " ".join(map(show, (found.lower_quartile, found.median, found.upper_quartile)))
    return (
        f"{found.clients} clients: worst {show(found.worst)}, bottom decile {show(found.bottom_decile)}, quartiles "
        f"{quartiles}, best {show(found.best)}; mean {show(found.mean)}, std {show(found.std)} (ddof 0)"
    )


def title(report: ClientReport) -> str:
    seeds = f"mean of {len(report.seeds)} seeds" if len(report.seeds) > 1 else f"seed {report.seeds[0]}"
    better = ", smaller is better" if report.metric in SMALLER_IS_BETTER else ""
    scale = ", percent" if in_percent(report.metric) else ""
    whose, _, model = report.model.rpartition("/")
    what = f"{report.metric} of the {model} model{f' of {whose}' if whose else ''} on {report.split} examples"
    return f"{report.label}: {what}, {seeds}{scale}{better}"


def deltas_line(report: ClientReport, split: str, deltas: ClientDeltas, digits: Digits) -> str:
    quartiles = (deltas.min, deltas.lower_quartile, deltas.median, deltas.upper_quartile, deltas.max)
    mixed = f" ({deltas.sign_changes} change with the seed)" if len(report.paired_seeds) > 1 else ""
    left_out = f"; left out, as they lack a value: {deltas.left_out}" if deltas.left_out else ""
    return (
        f"{split} against {report.reference}: {deltas.helped} helped, {deltas.hurt} hurt, {deltas.same} same{mixed}; "
        f"min, quartiles, max of delta {' '.join(map(digits.signed, quartiles))}{left_out}"
    )
