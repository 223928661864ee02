"""A comparison of labels for a terminal of 80 columns."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from plures.report.comparison import Difference, OverSeeds, StudyComparison
from plures.report.milestones import SHARE
from plures.report.pairing import ClientDeltas
from plures.report.references import STAGE_A
from plures.report.scales import SMALLER_IS_BETTER, Digits, digits_of, in_percent
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
    """Mean and std."""
    if found is None or len(found.values) == 1:
        return digits.plain(mean_of(found))
    return f"{digits.plain(found.mean)}{'' if is_percent(digits) else NEW_LINE}±{digits.plain(found.std)}"


def difference_text(found: Difference | None, digits: Digits) -> str:
    """The mean difference and its interval."""
    if found is None:
        return "-"
    ends = f"[{digits.signed(found.interval.low)} {digits.signed(found.interval.high)}]"
    return f"{digits.signed(found.per_seed.mean)}{' ' if is_percent(digits) else NEW_LINE}{ends}"


def is_percent(digits: Digits) -> bool:
    """Such numbers are short; two others do not stand in one line of a narrow table."""
    return digits.factor == 100


def counts_text(found: ClientDeltas) -> str:
    return f"{found.helped}/{found.hurt}"


def legend(found: StudyComparison) -> str:
    """What the columns are."""
    better = ", smaller is better" if found.metric in SMALLER_IS_BETTER else ""
    scale = ", percent" if in_percent(found.metric) else ""
    who = "newcomers" if found.rows[0].model.startswith("newcomers/") else "clients"
    rounds = "" if found.reference == STAGE_A else f"rounds: to {SHARE:g} of the end, over {found.reference}'s. "
    return (
        f"{found.metric}: {found.split} examples of all {who}, last round{scale}{better}; mean±std of n seeds (ddof "
        f"0). chosen: in the round best on validation. low 10%: bottom decile of {who}. {difference_legend(found)}"
        f"{rounds}sent: bytes. {models_text(found)}"
    )


def difference_legend(found: StudyComparison) -> str:
    if all(row.label == found.reference for row in found.rows):
        return ""
    return (
        f"difference: minus {found.reference}, {pairs_text(found)} [95% bootstrap over {over_what(found)}]. "
        "+/-: clients helped/hurt. "
    )


def over_what(found: StudyComparison) -> str:
    most = max((len(row.difference.seeds) for row in found.rows if row.difference is not None), default=0)
    return "seeds and clients" if most > 1 else "clients only: one seed"


def pairs_text(found: StudyComparison) -> str:
    """On how many seeds both sides are; label by label where it differs."""
    pairs = {
        row.label: 0 if row.difference is None else len(row.difference.seeds)
        for row in found.rows
        if row.label != found.reference
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


def deltas_legend(found: StudyComparison) -> str:
    scale = ", in percentage points" if in_percent(found.metric) else ""
    return (
        f"Each client's {found.metric} minus that with {found.reference}{scale}, averaged over seeds; all clients "
        "count the same. +/-/=: helped/hurt/same. mixed: helped under one seed, hurt under another."
    )
