"""Labels side by side: numbers over seeds, and differences to a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plures.core.errors import InvalidConfig
from plures.report import records
from plures.report.client_scores import ClientScores, read_scores
from plures.report.comparison import ComparedLabel, Difference, OverSeeds, StudyComparison
from plures.report.milestones import curve, relative_rounds, rounds_to_share
from plures.report.pairing import Pairing, pair
from plures.report.references import STAGE_A, stages_a
from plures.report.scales import SMALLER_IS_BETTER
from plures.report.spending import bytes_sent, ends_in_tuning, is_counted, rounds_before
from plures.report.standings import last_summary, selected_summary, standing
from plures.report.studies import RecordedRun, Series, is_finished, reading

SPLITS = ("train", "validation", "test")
ScoresBySplit = Mapping[str, Mapping[int, ClientScores]]
"""By split and seed."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a comparison is about."""

    model: str | None = None
    """None: the one that each method is judged by."""
    split: str = "test"
    newcomers: bool = False

    def model_of(self, run: RecordedRun) -> str:
        return run.model(self.model, newcomers=self.newcomers)

    def name_of(self, run: RecordedRun) -> str:
        """Of the metric, as in result.json."""
        return f"{self.place_of(run)}/{run.metric}"

    def place_of(self, run: RecordedRun) -> str:
        """Model and split."""
        return f"{self.model_of(run)}/{self.split}"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A series, and what is asked about it; its clients are read when they are needed, and once."""

    series: Series
    asked: Asked

    @property
    def is_stage_a(self) -> bool:
        return self.series.label == STAGE_A

    @cached_property
    def scores(self) -> ScoresBySplit:
        return scores_of(self.series, self.asked)


Pair = tuple[Judged, Judged | None]
"""A series and what it is compared with: a reference, stage (a), or nothing."""


def compare_series(series: Sequence[Series], reference: Series | None, asked: Asked) -> StudyComparison:
    """Every series against the reference; without one, each against the stage (a) that it began with."""
    if not any(is_scored(one, asked) for one in series):
        raise InvalidConfig(no_scores_text(series, asked))
    return comparison_of(judged_pairs(series, reference, asked), reference, asked)


def comparison_of(pairs: Sequence[Pair], reference: Series | None, asked: Asked) -> StudyComparison:
    """Every series against what it is paired with."""
    series = [own.series for own, _ in pairs]
    return StudyComparison(
        metric=series[0].first.metric,
        split=asked.split,
        asked_model=asked.model,
        reference=STAGE_A if reference is None else reference.label,
        finished=all(is_finished(run) for one in series for run in one.runs.values()),
        rows=tuple(compared_label(own, other) for own, other in pairs),
    )


def judged_pairs(series: Sequence[Series], reference: Series | None, asked: Asked) -> list[Pair]:
    """Each series with what it is compared with; the reference stands with itself."""
    return against_stage_a(series, asked) if reference is None else against_one(series, reference, asked)


def against_stage_a(series: Sequence[Series], asked: Asked) -> list[Pair]:
    firsts = [None if one is None else Judged(series=one, asked=other_model(asked)) for one in stages_a(series)]
    return [(Judged(series=one, asked=asked), first) for one, first in zip(series, firsts, strict=True)]


def against_one(series: Sequence[Series], reference: Series, asked: Asked) -> list[Pair]:
    """A reference without the model that is asked for is judged by its own."""
    has_model = any(asked.model_of(run) in run.models for run in reference.runs.values())
    known = Judged(series=reference, asked=asked if has_model else other_model(asked))
    return [(known if one is reference else Judged(series=one, asked=asked), known) for one in series]


def is_scored(series: Series, asked: Asked) -> bool:
    return any(asked.name_of(run) in run.result["metrics"] for run in series.runs.values())


def other_model(asked: Asked) -> Asked:
    """The same, of the model that a reference of its own kind is judged by."""
    return Asked(split=asked.split, newcomers=asked.newcomers)


def no_scores_text(series: Sequence[Series], asked: Asked) -> str:
    """What is missing, and what would bring it."""
    first, runs = series[0].first, [run for one in series for run in one.runs.values()]
    head = f"{first.folder} has no scores {asked.name_of(first)}"
    if asked.newcomers and not any(model.startswith("newcomers/") for run in runs for model in run.models):
        return f"{head}: no newcomers were held out. Set data.newcomers, such as 0.2, and run it again."
    if any(asked.model_of(run) in run.models for run in runs):
        return (
            f"{head}: the model is there, but was not scored on {asked.split} data. Name the split in `splits` of "
            "[evaluation] and run it again, or choose another with --split."
        )
    return f"{head}. The models there are scores of: {models_by_label(series)}."


def models_by_label(series: Sequence[Series]) -> str:
    """Label by label where they differ."""
    models = {
        one.label: ", ".join(dict.fromkeys(name for run in one.runs.values() for name in run.models)) for one in series
    }
    if len(set(models.values())) == 1:
        return next(iter(models.values())) or "none"
    return "; ".join(f"{label}: {names or 'none'}" for label, names in models.items())


def scores_of(series: Series, asked: Asked, more: Sequence[str] = ()) -> ScoresBySplit:
    """The metric that runs are judged by, and more where there are such."""
    found: dict[str, dict[int, ClientScores]] = {}
    for seed, run in series.runs.items():
        for split, scores in read_scores(run.folder, asked.model_of(run), SPLITS, [run.metric, *more]).items():
            found.setdefault(split, {})[seed] = scores
    return found


def compared_label(own: Judged, reference: Judged | None) -> ComparedLabel:
    """One row; without a reference there are no differences."""
    runs, asked = list(own.series.runs.values()), own.asked
    other = None if own is reference else reference
    return ComparedLabel(
        label=own.series.label,
        method=str(own.series.first.result["method"]),
        model=asked.model_of(own.series.first),
        seeds=tuple(own.series.runs),
        last=standing([last_summary(run, asked.place_of(run)) for run in runs]),
        selected=standing([selected_summary(run, asked.place_of(run)) for run in runs]),
        selected_rounds=tuple(run.result["selected"]["round"] for run in runs),
        reference_model=None if other is None else other.asked.model_of(other.series.first),
        difference=None if other is None else difference(own, other),
        relative_rounds=None if reference is None or reference.is_stage_a else rounds_over(own, reference),
        num_bytes=float(np.mean([bytes_sent(run) for run in runs])),
        not_counted=tuple(run.seed for run in runs if not is_counted(run)),
        scored_once=any(is_scored_once(run, asked) for run in runs),
    )


def is_scored_once(run: RecordedRun, asked: Asked) -> bool:
    """Whether the model comes of fine-tuning at the end of a pipeline, with no scores of the chosen round."""
    name = asked.name_of(run)
    return ends_in_tuning(run) and name in run.result["metrics"] and name not in run.result["selected"]["metrics"]


def difference(one: Judged, other: Judged) -> Difference | None:
    """On one split, with what becomes of clients on every split that both sides have."""
    split, pairings = one.asked.split, pairings_of(one, other)
    main = pairings.get(split)
    if main is None:
        return None
    return Difference(
        seeds=main.seeds,
        clients=len(main.clients),
        left_out=main.left_out,
        per_seed=OverSeeds(values=tuple(main.seed_differences().tolist())),
        interval=main.interval(),
        deltas={name: found.deltas() for name, found in pairings.items()},
    )


def pairings_of(one: Judged, other: Judged) -> dict[str, Pairing]:
    """By split, those that both sides have."""
    metric, own, before = one.series.first.metric, one.scores, other.scores
    found = {name: pair(own[name], before[name], metric) for name in SPLITS if name in own and name in before}
    return {name: pairing for name, pairing in found.items() if pairing is not None}


def rounds_over(own: Judged, reference: Judged) -> float | None:
    """Rounds to a share of the final value over those of the reference, averaged over the seeds that have both."""
    others = reference.series.runs
    both = [(run, others[seed]) for seed, run in own.series.runs.items() if seed in others]
    found = [
        relative_rounds(rounds_in_all(run, own.asked), rounds_in_all(other, reference.asked)) for run, other in both
    ]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def rounds_in_all(run: RecordedRun, asked: Asked) -> int | None:
    """Those of stage (a) before, then those to a share of the final value."""
    found = share_round(run, asked)
    return None if found is None else rounds_before(run) + found


def share_round(run: RecordedRun, asked: Asked) -> int | None:
    """In which round a run had 0.8 of its final value; of a model that is not in the result, from its rounds."""
    name, told = asked.name_of(run), run.result.get("rounds_to") or {}
    if told.get("metric") == name:
        found: int | None = told["share_of_final"]
        return found
    with reading(run.folder / records.ROUNDS):
        values = curve(records.read_rounds(run.folder), name)
    return rounds_to_share(values, smaller_is_better=run.metric in SMALLER_IS_BETTER)
