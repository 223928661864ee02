"""Labels side by side: numbers over seeds, and differences to a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plures.core.errors import InvalidConfig
from plures.report import records
from plures.report.client_scores import ClientScores, read_scores
from plures.report.comparison import ComparedLabel, Difference, OverSeeds, Standing, StudyComparison
from plures.report.milestones import curve, relative_rounds, rounds_to_share
from plures.report.pairing import pair
from plures.report.references import STAGE_A, stage_a
from plures.report.scales import SMALLER_IS_BETTER
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
        return f"{self.model_of(run)}/{self.split}/{run.metric}"


def compare_series(series: Sequence[Series], reference: Series | None, asked: Asked) -> StudyComparison:
    """Every series against the reference; without one, each against the stage (a) that it began with."""
    if not any(asked.name_of(run) in run.result["metrics"] for one in series for run in one.runs.values()):
        raise InvalidConfig(no_scores_text(series[0].first, asked))
    before = None if reference is None else scores_of(reference, asked)
    return StudyComparison(
        metric=series[0].first.metric,
        split=asked.split,
        reference=STAGE_A if reference is None else reference.label,
        finished=all(is_finished(run) for one in series for run in one.runs.values()),
        rows=tuple(
            compared_label(
                one, reference, scores_of(stage_a(one), other_model(asked)) if before is None else before, asked
            )
            for one in series
        ),
    )


def other_model(asked: Asked) -> Asked:
    """The same, of the model that a reference of its own kind is judged by."""
    return Asked(split=asked.split, newcomers=asked.newcomers)


def no_scores_text(run: RecordedRun, asked: Asked) -> str:
    have = ", ".join(run.models) or "none"
    return f"{run.folder} has no scores {asked.name_of(run)}. The models it has scores of: {have}."


def scores_of(series: Series, asked: Asked, more: Sequence[str] = ()) -> ScoresBySplit:
    """The metric that runs are judged by, and more where there are such."""
    found: dict[str, dict[int, ClientScores]] = {}
    for seed, run in series.runs.items():
        for split, scores in read_scores(run.folder, asked.model_of(run), SPLITS, [run.metric, *more]).items():
            found.setdefault(split, {})[seed] = scores
    return found


def compared_label(series: Series, reference: Series | None, before: ScoresBySplit, asked: Asked) -> ComparedLabel:
    runs, first = list(series.runs.values()), series.first
    itself = series is reference
    return ComparedLabel(
        label=series.label,
        method=str(first.result["method"]),
        model=asked.model_of(first),
        seeds=tuple(series.runs),
        last=standing([run.result["metrics"].get(asked.name_of(run), {}) for run in runs]),
        selected=standing([run.result["selected"]["metrics"].get(asked.name_of(run), {}) for run in runs]),
        selected_rounds=tuple(run.result["selected"]["round"] for run in runs),
        difference=None if itself else difference(scores_of(series, asked), before, first.metric, asked.split),
        relative_rounds=None if reference is None else rounds_over(series, reference, asked),
        num_bytes=float(np.mean([run.result["cost"]["bytes_down"] + run.result["cost"]["bytes_up"] for run in runs])),
    )


def standing(metrics: Sequence[Mapping[str, float | None]]) -> Standing:
    return Standing(
        weighted=over_seeds([numbers.get("weighted") for numbers in metrics]),
        bottom_decile=over_seeds([numbers.get("bottom_decile") for numbers in metrics]),
        worst=over_seeds([numbers.get("worst") for numbers in metrics]),
    )


def over_seeds(values: Sequence[float | None]) -> OverSeeds | None:
    """None as soon as one run has none: a mean of some seeds is not the mean of all."""
    known = [value for value in values if value is not None]
    return OverSeeds(values=tuple(known)) if known and len(known) == len(values) else None


def difference(own: ScoresBySplit, before: ScoresBySplit, metric: str, split: str) -> Difference | None:
    """On one split, with what becomes of clients on every split that both sides have."""
    pairings = {name: pair(own[name], before[name], metric) for name in SPLITS if name in own and name in before}
    main = pairings.get(split)
    if main is None:
        return None
    return Difference(
        seeds=main.seeds,
        clients=len(main.clients),
        left_out=main.left_out,
        per_seed=OverSeeds(values=tuple(main.seed_differences().tolist())),
        interval=main.interval(),
        deltas={name: found.deltas() for name, found in pairings.items() if found is not None},
    )


def rounds_over(series: Series, reference: Series, asked: Asked) -> float | None:
    """Rounds to a share of the final value over those of the reference, averaged over the seeds that have both."""
    both = [(run, reference.runs[seed]) for seed, run in series.runs.items() if seed in reference.runs]
    found = [relative_rounds(share_round(run, asked), share_round(other, asked)) for run, other in both]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def share_round(run: RecordedRun, asked: Asked) -> int | None:
    """In which round a run had 0.8 of its final value; of a model that is not in the result, from its rounds."""
    name, told = asked.name_of(run), run.result.get("rounds_to") or {}
    if told.get("metric") == name:
        found: int | None = told["share_of_final"]
        return found
    with reading(run.folder / records.ROUNDS):
        values = curve(records.read_rounds(run.folder), name)
    return rounds_to_share(values, smaller_is_better=run.metric in SMALLER_IS_BETTER)
