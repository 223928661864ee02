"""The trials of a search for a terminal of 80 columns, from tuning.json alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import stdev
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from plures.report.scales import in_percent
from plures.report.tables import percent, score

MOST_SHOWN = 10
METHOD = "method_options."
ENDS = {"finished": "finished", "stopped": "stopped early", "diverged": "diverged", "failed": "failed"}


def metric_of(tuning: Mapping[str, Any]) -> str:
    """The metric alone, of text such as "personal/validation/loss, weighted"."""
    return str(tuning["judged_by"]).partition(",")[0].replace("/", " ").split()[-1]


def best_trials(tuning: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Finished ones, the best first."""
    finished = [trial for trial in tuning["trials"] if trial["status"] == "finished"]
    sign = -1 if tuning["larger_is_better"] else 1
    return sorted(finished, key=lambda trial: sign * trial["value"])


def trials_table(tuning: Mapping[str, Any]) -> Table:
    """The best trials with their options."""
    metric, shown = metric_of(tuning), best_trials(tuning)[:MOST_SHOWN]
    several = any(len(trial["values"]) > 1 for trial in shown)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("trial", metric, *(["over seeds"] if several else []), "rounds", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("options", overflow="fold")
    for place, trial in enumerate(shown):
        table.add_row(
            str(trial["number"]),
            Text(score(trial["value"], metric), style="bold" if place == 0 else ""),
            *([spread(trial["values"], metric)] if several else []),
            str(trial["rounds"]),
            duration(trial["seconds"]),
            escape(options_text(trial["options"])),
        )
    return table


def spread(values: Sequence[float], metric: str) -> str:
    """One standard deviation over seeds."""
    if len(values) < 2:
        return "-"
    return f"± {100 * stdev(values):.1f}" if in_percent(metric) else f"± {stdev(values):.3g}"


def counts_line(tuning: Mapping[str, Any]) -> str:
    """How trials ended."""
    found = Counter(trial["status"] for trial in tuning["trials"])
    told = ", ".join(f"{found[status]} {words}" for status, words in ENDS.items() if found[status])
    return f"{len(tuning['trials'])} of {tuning['planned']} trials: {told}. Judged by {tuning['judged_by']}."


def importance_line(tuning: Mapping[str, Any]) -> str:
    """What made trials differ, the most important first; nothing where that cannot be told."""
    shares, names = tuning["importance"], short_names(list(tuning["importance"]))
    return ", ".join(f"{names[key]} {percent(share)}" for key, share in shares.items())


def options_text(options: Mapping[str, Any]) -> str:
    """lr=0.0316 server.lr=1.5 method=fedsim"""
    names = short_names(list(options))
    return " ".join(f"{names[key]}={value_text(value)}" for key, value in options.items())


def value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Options of the method by their last words, as many as tell them from each other; other keys as they are."""
    words = {key: key.removeprefix(METHOD).split(".") for key in keys if key.startswith(METHOD)}
    found = {}
    for key in keys:
        own = words.get(key, [key])
        others = [other for name, other in words.items() if name != key]
        enough = (n for n in range(1, len(own) + 1) if all(other[-n:] != own[-n:] for other in others))
        found[key] = ".".join(own[-next(enough, len(own)) :])
    return found


def duration(seconds: float) -> str:
    """At most seven characters."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
