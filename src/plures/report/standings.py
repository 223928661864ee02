"""How runs stand in one round, from result.json and, where a model overflows, from the file of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from plures.report.bootstrap import pooled
from plures.report.client_scores import read_scores
from plures.report.clients import overview_of
from plures.report.comparison import OverSeeds, Standing
from plures.report.pairing import aligned
from plures.report.scales import SMALLER_IS_BETTER, power
from plures.report.studies import RecordedRun

Summary = Mapping[str, float | None]
"""The numbers of one metric over clients."""


def last_summary(run: RecordedRun, name: str) -> Summary:
    """Of a model and split, such as personal/test, in the last evaluated round."""
    return summary_of(run, run.result["metrics"], None, name)


def selected_summary(run: RecordedRun, name: str) -> Summary:
    """In the round that is best on validation data."""
    return summary_of(run, run.result["selected"]["metrics"], run.result["selected"]["round"], name)


def summary_of(run: RecordedRun, metrics: Mapping[str, Summary], round: int | None, name: str) -> Summary:
    """What was recorded; JSON has no infinite numbers, so that those of an error that has none are looked up."""
    told = metrics.get(f"{name}/{run.metric}", {})
    if run.metric not in SMALLER_IS_BETTER or None not in told.values():
        return told
    found = looked_up(run, name, round)
    return {key: found.get(key) if value is None else value for key, value in told.items()}


def looked_up(run: RecordedRun, name: str, round: int | None) -> dict[str, float]:
    """The same numbers from the clients' own, of a round or of the last; nothing if no client has any."""
    model, split = name.rsplit("/", 1)
    until = np.inf if round is None else round
    scores = read_scores(run.folder, model, [split], [run.metric], until=until).get(split)
    if scores is None:
        return {}
    values = aligned(scores, run.metric, scores.clients)
    known, found = ~np.isnan(values), overview_of(values, run.metric)
    if found is None:
        return {}
    weighted = pooled(values[known], scores.examples[known].astype(np.float64), power(run.metric))
    return {"weighted": float(weighted), "bottom_decile": found.bottom_decile, "worst": found.worst}


def standing(metrics: Sequence[Summary]) -> Standing:
    return Standing(
        weighted=over_seeds([numbers.get("weighted") for numbers in metrics]),
        bottom_decile=over_seeds([numbers.get("bottom_decile") for numbers in metrics]),
        worst=over_seeds([numbers.get("worst") for numbers in metrics]),
    )


def over_seeds(values: Sequence[float | None]) -> OverSeeds | None:
    """None as soon as one run has none: a mean of some seeds is not the mean of all."""
    known = [value for value in values if value is not None]
    return OverSeeds(values=tuple(known)) if known and len(known) == len(values) else None
