"""A comparison of labels as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable

from plures.report.comparison import ComparedLabel, Difference, OverSeeds, StudyComparison
from plures.report.pairing import ClientDeltas
from plures.report.scales import Digits, digits_of
from plures.report.sheets import Cell, Column, Sheet, Value
from plures.report.tables import readable_bytes

NEW_LINE = "\n"
SHORT = {"validation": "val."}
MOST_DIGITS = 6
"""Of numbers such as -100.0, six stand in one line of a narrow table."""
NARROW: dict[str, tuple[str, ...]] = {
    "min": ("min",),
    "25%": ("lower_quartile",),
    "50%": ("median",),
    "75%": ("upper_quartile",),
    "max": ("max",),
    "mean": ("mean",),
}
WIDE: dict[str, tuple[str, ...]] = {
    "min": ("min",),
    "quartiles": ("lower_quartile", "median", "upper_quartile"),
    "max": ("max",),
    "mean": ("mean",),
}
"""Which numbers over clients stand in a column, under its heading."""
LABEL = Column(heading="label", names=("label",), words=True, least=8)
WHAT = Column(names=("method", "model", "metric", "split", "reference", "pairs"))
"""What the numbers of a row are of; readers find it below the table."""


def labels_sheet(found: StudyComparison) -> Sheet:
    """One label under the other; the best, and those within one std of it, in bold."""
    columns = (
        LABEL,
        WHAT,
        Column(heading="n", names=("n",)),
        Column(heading=found.metric, names=("mean", "std", "best")),
        Column(heading="chosen", names=("chosen",)),
        Column(heading="low 10%", names=("bottom_decile",)),
        Column(heading="difference", names=("difference", "low", "high")),
        Column(heading="+/-", names=("helped", "hurt", "same")),
        Column(heading="rounds", names=("rounds",)),
        Column(heading="sent", names=("bytes",)),
    )
    best, digits = found.best(), digits_in(found)
    return Sheet(columns=columns, rows=tuple(label_cells(found, row, digits, row.label in best) for row in found.rows))


def label_cells(found: StudyComparison, row: ComparedLabel, digits: Digits, best: bool) -> tuple[Cell, ...]:
    return (
        Cell(text=row.label, values=(row.label,)),
        Cell(values=what_of(found, row)),
        Cell(text=str(len(row.seeds)), values=(len(row.seeds),)),
        Cell(
            text=spread_text(row.last.weighted, digits),
            values=(mean_of(row.last.weighted), std_of(row.last.weighted), best),
            bold=best,
        ),
        number_cell(mean_of(row.selected.weighted), digits),
        number_cell(mean_of(row.last.bottom_decile), digits),
        difference_cell(found, row, digits),
        counts_cell(None if row.difference is None else row.difference.deltas[found.split]),
        Cell(text="-" if row.relative_rounds is None else f"{row.relative_rounds:.2f}", values=(row.relative_rounds,)),
        Cell(text=readable_bytes(row.num_bytes), values=(row.num_bytes,)),
    )


def what_of(found: StudyComparison, row: ComparedLabel) -> tuple[Value, ...]:
    reference = found.reference if row.reference_model is not None else None
    pairs = None if row.difference is None else len(row.difference.seeds)
    return row.method, row.model, found.metric, found.split, reference, pairs


def number_cell(value: float | None, digits: Digits) -> Cell:
    return Cell(text=digits.plain(value), values=(value,))


def difference_cell(found: StudyComparison, row: ComparedLabel, digits: Digits) -> Cell:
    text = "reference" if row.label == found.reference else difference_text(row.difference, digits)
    if row.difference is None:
        return Cell(text=text, values=(None, None, None))
    ends = row.difference.interval
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    return Cell(text=text, values=(row.difference.per_seed.mean, low, high))


def counts_cell(found: ClientDeltas | None) -> Cell:
    if found is None:
        return Cell(text="-", values=(None, None, None))
    return Cell(text=counts_text(found), values=(found.helped, found.hurt, found.same))


def digits_in(found: StudyComparison) -> Digits:
    return digits_of(found.metric, [mean_of(row.last.weighted) for row in found.rows])


def mean_of(found: OverSeeds | None) -> float | None:
    return None if found is None else found.mean


def std_of(found: OverSeeds | None) -> float | None:
    """Of one seed it is not known."""
    return None if found is None or len(found.values) == 1 else found.std


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
    low, high = digits.signed(found.interval.low), digits.signed(found.interval.high)
    between = NEW_LINE if digits.decimals is None else " "
    ends = f"[{low}{between}{high}]"
    return f"{digits.signed(found.per_seed.mean)}{' ' if is_percent(digits) else NEW_LINE}{ends}"


def is_percent(digits: Digits) -> bool:
    """Such numbers are short; two others do not stand in one line of a narrow table."""
    return digits.factor == 100


def counts_text(found: ClientDeltas) -> str:
    return f"{found.helped}/{found.hurt}"


def deltas_sheet(found: StudyComparison) -> Sheet:
    """What becomes of clients, by label and split."""
    digits = digits_in(found)
    rows = [
        (row.label, split, one)
        for row in found.rows
        if row.difference is not None
        for split, one in row.difference.deltas.items()
    ]
    longest = max((len(digits.signed(value)) for *_, one in rows for value in (one.min, one.max)), default=0)
    groups = WIDE if longest > MOST_DIGITS else NARROW
    columns = (
        LABEL,
        Column(heading="split", names=("split",), words=True, least=5),
        Column(names=("metric", "reference", "clients", "left_out")),
        Column(heading="+/-/=", names=("helped", "hurt", "same")),
        Column(heading="mixed", names=("sign_changes",)),
        *(Column(heading=heading, names=names) for heading, names in groups.items()),
    )
    return Sheet(columns=columns, rows=tuple(deltas_cells(found, *row, digits, groups.values()) for row in rows))


def deltas_cells(
    found: StudyComparison,
    label: str,
    split: str,
    deltas: ClientDeltas,
    digits: Digits,
    groups: Iterable[tuple[str, ...]],
) -> tuple[Cell, ...]:
    numbers = [tuple(getattr(deltas, name) for name in names) for names in groups]
    return (
        Cell(text=label, values=(label,)),
        Cell(text=SHORT.get(split, split), values=(split,)),
        Cell(values=(found.metric, found.reference, deltas.clients, deltas.left_out)),
        Cell(text=f"{counts_text(deltas)}/{deltas.same}", values=(deltas.helped, deltas.hurt, deltas.same)),
        Cell(text=str(deltas.sign_changes), values=(deltas.sign_changes,)),
        *(Cell(text=NEW_LINE.join(map(digits.signed, values)), values=values) for values in numbers),
    )
