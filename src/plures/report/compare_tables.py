"""A comparison of labels for a terminal of 80 columns."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from plures.report.comparison import Difference, OverSeeds, StudyComparison
from plures.report.pairing import ClientDeltas
from plures.report.scales import Digits, digits_of
from plures.report.tables import readable_bytes

NEW_LINE = "\n"
SHORT = {"validation": "val."}


def labels_table(found: StudyComparison) -> Table:
    """One label under the other; the best, and those whose std overlaps with its, in bold."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("label", overflow="fold", min_width=8)
    for heading in ("n", found.metric, "chosen", "low 10%", "difference", "+/-", "rounds", "sent"):
        table.add_column(heading, justify="right", no_wrap=True)
    best, digits = found.best(), digits_in(found)
    for row in found.rows:
        table.add_row(
            Text(row.label),
            str(len(row.seeds)),
            Text(spread_text(row.last.weighted, digits), style="bold" if row.label in best else ""),
            digits.plain(mean_of(row.selected.weighted)),
            digits.plain(mean_of(row.last.bottom_decile)),
            Text("reference" if row.label == found.reference else difference_text(row.difference, digits)),
            "-" if row.difference is None else counts_text(row.difference.deltas[found.split]),
            "-" if row.relative_rounds is None else f"{row.relative_rounds:.2f}",
            readable_bytes(row.num_bytes),
        )
    return table


def digits_in(found: StudyComparison) -> Digits:
    return digits_of(found.metric, [mean_of(row.last.weighted) for row in found.rows])


def mean_of(found: OverSeeds | None) -> float | None:
    return None if found is None else found.mean


def spread_text(found: OverSeeds | None, digits: Digits) -> str:
    """Mean and std; of infinite numbers there is no std."""
    if found is None or len(found.values) == 1 or math.isinf(found.mean):
        return digits.plain(mean_of(found))
    return f"{digits.plain(found.mean)}{'' if is_percent(digits) else NEW_LINE}±{digits.plain(found.std)}"


def difference_text(found: Difference | None, digits: Digits) -> str:
    """The mean difference and its interval; where a model overflows there is none."""
    if found is None:
        return "-"
    if found.interval is None:
        return f"{digits.signed(found.per_seed.mean)} [-]"
    ends = f"[{digits.signed(found.interval.low)} {digits.signed(found.interval.high)}]"
    return f"{digits.signed(found.per_seed.mean)}{' ' if is_percent(digits) else NEW_LINE}{ends}"


def is_percent(digits: Digits) -> bool:
    """Such numbers are short; two others do not stand in one line of a narrow table."""
    return digits.factor == 100


def counts_text(found: ClientDeltas) -> str:
    return f"{found.helped}/{found.hurt}"


def deltas_table(found: StudyComparison) -> Table:
    """What becomes of clients, by label and split."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("label", overflow="fold", min_width=8)
    table.add_column("split", no_wrap=True)
    for heading in ("+/-/=", "mixed", "min", "25%", "50%", "75%", "max", "mean"):
        table.add_column(heading, justify="right", no_wrap=True)
    digits = digits_in(found)
    for row in found.rows:
        for split, one in (row.difference.deltas if row.difference is not None else {}).items():
            numbers = (one.min, one.lower_quartile, one.median, one.upper_quartile, one.max, one.mean)
            counts = (f"{counts_text(one)}/{one.same}", str(one.sign_changes))
            table.add_row(Text(row.label), SHORT.get(split, split), *counts, *map(digits.signed, numbers))
    return table
