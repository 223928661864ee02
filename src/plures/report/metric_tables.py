"""Every metric of one run for a terminal of 80 columns; models that are the same stand there once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from plures.report.tables import is_missing, score

Numbers = Mapping[str, float | None]
"""Of one metric over clients."""
SUMMARY = {"weighted": "weighted", "mean": "mean", "std": "std", "bottom_decile": "decile", "worst": "worst"}
"""As a result calls them, and their headings."""
MOST = 31
"""Characters of the first column, so that five numbers have room beside it."""


class Place(NamedTuple):
    """Where a metric was taken."""

    whose: str
    """ "newcomers", "sampled", or nothing for all participants."""
    model: str
    split: str


def metrics_table(metrics: Mapping[str, Numbers]) -> Table:
    """Every metric of one run with its numbers over clients, under the model and split that it is of."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("model, split and metric", overflow="fold", max_width=MOST)
    for heading in SUMMARY.values():
        table.add_column(heading, justify="right", no_wrap=True)
    places = by_place(metrics)
    twins = same_models(places)
    for place, found in places.items():
        names = twins[place.whose, place.model]
        known = {metric: numbers for metric, numbers in found.items() if not is_missing(numbers["weighted"])}
        if names[0] != place.model or not known:  # no client has it, such as an AUC where all have one class
            continue
        whose = f"{place.whose}/" if place.whose else ""
        table.add_row(Text(f"{whose}{' = '.join(names)}/{place.split}", style="bold"))
        for metric, numbers in known.items():
            table.add_row(f"  {metric}", *(score(numbers[key], metric) for key in SUMMARY))
    return table


def by_place(metrics: Mapping[str, Numbers]) -> dict[Place, dict[str, Numbers]]:
    found: dict[Place, dict[str, Numbers]] = {}
    for name, numbers in metrics.items():
        of, split, metric = name.rsplit("/", 2)
        whose, _, model = of.rpartition("/")
        found.setdefault(Place(whose, model, split), {})[metric] = numbers
    return found


def same_models(places: Mapping[Place, Mapping[str, Numbers]]) -> dict[tuple[str, str], list[str]]:
    """By whose and model: all models with the same numbers in every metric and split, itself among them, in order."""
    models: dict[tuple[str, str], dict[str, Mapping[str, Numbers]]] = {}
    for place, found in places.items():
        models.setdefault((place.whose, place.model), {})[place.split] = found
    return {
        (whose, model): [other for (theirs, other), numbers in models.items() if theirs == whose and same(own, numbers)]
        for (whose, model), own in models.items()
    }


def same(one: object, other: object) -> bool:
    """Number by number; two that are none are the same."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one == other
