"""What a run came to, as little as tables and figures need of it: one JSON file that outlives the run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.client_scores import ClientScores, read_scores
from plures.report.writing import write_whole

FORMAT = 1
DIGITS = 6
"""That are kept of a number; a clients.csv.gz has as many."""
SUMMED = ("weighted", "mean", "std", "bottom_decile", "worst")
KEPT_FACTS = ("parameters", "rounds_to", "selected", "stages", "newcomers", "guard", "engine", "clients")
"""Of result.json, beside its metrics and costs."""

DIVERGED = "diverged"
"""The status of a run that came to numbers that are not finite; others that do not end leave no outcome."""

Curve = tuple[list[int], list[float]]


@dataclass(frozen=True, kw_only=True)
class Made:
    """How an outcome came about."""

    date: str
    commit: str
    machine: str
    version: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Metrics round by round, clients in the last round, costs."""

    key: str
    experiment: Mapping[str, Any]
    """The configuration, as a file would have it."""
    made: Made
    status: str
    final: Mapping[str, Mapping[str, float]]
    """By metric, such as personal/test/accuracy: weighted, mean, std, bottom_decile, worst."""
    curves: Mapping[str, Mapping[str, list[float]]]
    """By metric the rounds and the weighted values; also loss/PHASE, what clients minimised."""
    clients: Mapping[str, Mapping[str, list[float]]]
    """By model and split, such as personal/test: clients, examples, accuracy, loss (in the last evaluated round)."""
    cost: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, Any] = field(default_factory=dict)
    """What a recipe wanted to know besides."""

    def last(self, metric: str, summed: str = "weighted") -> float:
        """In the last evaluated round; NaN where it was not measured."""
        return self.final.get(metric, {}).get(summed, math.nan)

    def curve(self, metric: str) -> Curve:
        found = self.curves.get(metric, {})
        return [int(round) for round in found.get("rounds", ())], list(found.get("values", ()))

    def tail(self, metric: str, rounds: int = 10, until: int | None = None) -> float:
        """The mean over the evaluated ones of the last so many rounds, as the PFLEGO papers report."""
        values = self.tail_values(metric, rounds, until)
        return float(np.mean(values)) if values else math.nan

    def tail_values(self, metric: str, rounds: int = 10, until: int | None = None) -> list[float]:
        """The last of all rounds, or of those up to one."""
        known = [one for one in zip(*self.curve(metric), strict=True) if until is None or one[0] <= until]
        return [value for round, value in known if round > known[-1][0] - rounds]

    def rounds_to(self, metric: str, target: float) -> int | None:
        """The first evaluated round that reached it."""
        at, values = self.curve(metric)
        return next((round for round, value in zip(at, values, strict=True) if value >= target), None)

    def scores(self, model: str, split: str = "test") -> ClientScores | None:
        """Client by client in the last round."""
        found = self.clients.get(f"{model}/{split}")
        if found is None:
            return None
        numbers = np.array(found["clients"], dtype=np.int64)
        return ClientScores(
            clients=numbers,
            names=[str(number) for number in numbers],
            examples=np.array(found["examples"], dtype=np.int64),
            values={
                name: np.array([math.nan if one is None else one for one in values], dtype=np.float64)
                for name, values in found.items()
                if name not in ("clients", "examples")
            },
        )


def distilled(
    folder: Path, *, key: str, experiment: Mapping[str, Any], made: Made, extras: Mapping[str, Any]
) -> Outcome:
    """The outcome of a run folder."""
    result = records.read_result(folder)
    curves = read_curves(folder)
    metrics = result["metrics"]
    return Outcome(
        key=key,
        experiment=experiment,
        made=made,
        status=result["status"],
        final={name: {one: short(value[one]) for one in SUMMED if one in value} for name, value in metrics.items()},
        curves=curves,
        clients=read_final_clients(folder, metrics),
        cost={name: value for name, value in result["cost"].items() if name != "phase_seconds"},
        facts={name: without_places(result[name]) for name in KEPT_FACTS if result.get(name)},
        extras=extras,
    )


def without_end(folder: Path, *, key: str, experiment: Mapping[str, Any], made: Made, words: str) -> Outcome:
    """The outcome of a run that diverged: its curves until then, and what it said last."""
    return Outcome(
        key=key,
        experiment=experiment,
        made=made,
        status=DIVERGED,
        final={},
        curves=read_curves(folder),
        clients={},
        cost={},
        facts={DIVERGED: words},
    )


def without_places(value: Any) -> Any:
    """Without the folders that stages of a pipeline name: an outcome goes to other machines."""
    if isinstance(value, dict):
        return {name: without_places(one) for name, one in value.items() if name != "folder"}
    return [without_places(one) for one in value] if isinstance(value, list) else value


def read_curves(folder: Path) -> dict[str, dict[str, list[float]]]:
    """By metric, the weighted values of every evaluated round."""
    curves: dict[str, dict[str, list[float]]] = {}

    def add(name: str, round: int, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        curve = curves.setdefault(name, {"rounds": [], "values": []})
        curve["rounds"].append(round)
        curve["values"].append(short(value))

    for line in records.read_rounds(folder):
        for phase, loss in (line.get("losses") or {}).items():
            add(f"loss/{phase}", line["round"], loss)
        for metric, summary in (line.get("metrics") or {}).items():
            add(metric, line["round"], summary["weighted"])
    return curves


def read_final_clients(folder: Path, metrics: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Every kind of model and split that all clients were scored on."""
    found: dict[str, dict[str, list[float]]] = {}
    kinds = {tuple(name.split("/")[:2]) for name in metrics if not name.startswith(("sampled/", "newcomers/"))}
    for model, split in sorted(kinds):
        names = [name.split("/")[2] for name in metrics if name.startswith(f"{model}/{split}/")]
        scores = read_scores(folder, model, [split], names).get(split)
        if scores is None:
            continue
        found[f"{model}/{split}"] = {
            "clients": [int(one) for one in scores.clients],
            "examples": [int(one) for one in scores.examples],
            **{name: [short(one) for one in values] for name, values in scores.values.items()},
        }
    return found


def short(value: Any) -> Any:
    """With six digits; what is no number is nothing."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.{DIGITS}g}")


def write_outcome(path: Path, outcome: Outcome) -> None:
    """A line for each entry: small, and read by people where they must."""
    told = {"format": FORMAT, **asdict(outcome)}
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in told.items()]
    write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_outcome(path: Path) -> Outcome:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told.pop("format") != FORMAT:
            raise RunFolderError(f"{path} is of another version of Plures: remove it, and the cell is run again.")
        return Outcome(**{**told, "made": Made(**told["made"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}): remove it, and the cell is run again.") from error
