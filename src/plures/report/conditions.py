"""Under which conditions runs were made, as far as their records tell: what must be alike for a fair comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from plures.report.spending import rounds_before
from plures.report.studies import RecordedRun, Series, configuration_of

LOCAL_WORK = ("lr", "budget", "clip_norm")
"""What local work is like, in words that mean the same for all methods that have them."""
OF_A_PART = ("adapters", "input_dropout")
"""Of a network: what belongs to methods about a part, and is left out for others."""


class Conditions(NamedTuple):
    """Beside method, options and seed. Their names are read by people."""

    data: Any
    metric: str
    rounds: int | None
    """With those of stage (a)."""
    cohorts: Any
    network: Any
    """None: not recorded, as of runs from Python."""


def conditions_of(run: RecordedRun) -> Conditions:
    result, configuration = run.result, configuration_of(run.folder)
    rounds = result.get("rounds")
    return Conditions(
        data=[result["fingerprint"].get(what) for what in ("data", "split")],
        metric=run.metric,
        rounds=None if rounds is None else int(rounds) + rounds_before(run),
        cohorts=result.get("cohort"),
        network=None if configuration is None else network_of(configuration),
    )


def network_of(configuration: Mapping[str, Any]) -> list[Any]:
    """The network and its loss."""
    model = configuration.get("model", {})
    return [{key: value for key, value in model.items() if key not in OF_A_PART}, configuration.get("loss")]


def not_alike(conditions: Sequence[Conditions]) -> list[str]:
    """In what they differ."""
    return [
        name
        for name in Conditions._fields
        if any(getattr(one, name) != getattr(conditions[0], name) for one in conditions[1:])
    ]


def same_local_work(one: RecordedRun, other: RecordedRun) -> bool:
    """Whether what both have of it is the same."""
    mine, theirs = ((configuration_of(run.folder) or {}).get("method_options", {}) for run in (one, other))
    return all(mine[name] == theirs[name] for name in LOCAL_WORK if name in mine and name in theirs)


def differences_text(series: Sequence[Series]) -> str:
    """What a reader must know of labels that were not run alike; of most nothing."""
    found = {one.label: conditions_of(one.first) for one in series}
    told = []
    for name in not_alike(list(found.values())):
        values = {label: getattr(conditions, name) for label, conditions in found.items()}
        plain = name in ("rounds", "cohorts")
        told.append(name + (f" ({', '.join(f'{label} {value}' for label, value in values.items())})" if plain else ""))
    return f"These labels were not run alike; they differ in {' and '.join(told)}." if told else ""
