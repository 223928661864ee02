"""From the records of one label to what is told of each of its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from plures.core.errors import InvalidConfig, did_you_mean
from plures.report.client_scores import ClientScores, Numbers
from plures.report.clients import ClientReport, ClientRow, overview_of
from plures.report.comparing import SPLITS, Asked, ScoresBySplit, no_scores_text, other_model, scores_of
from plures.report.infinite import Floats
from plures.report.pairing import Pairing, aligned, pair
from plures.report.population import Member, read_population
from plures.report.references import STAGE_A, stage_a, usual_reference
from plures.report.studies import Series, check_comparable, read_series

MORE = ("loss", "seen_accuracy", "unseen_accuracy", "unseen_share")
"""What is told of a client beside the metric it is judged by, where it was recorded."""


def client_report(path: Path, asked: Asked, *, label: str | None = None, against: str | None = None) -> ClientReport:
    """One label of a run folder or study folder, with differences to a reference if one is named."""
    given = read_series([path])
    series = chosen(given, label, path)
    reference = None if against is None else find_reference(series, given, against)
    scores = scores_of(series, asked, MORE)
    if asked.split not in scores:
        raise InvalidConfig(no_scores_text([series], asked))
    pairings = {} if reference is None else pairings_of(series, reference, scores, asked)
    main, metric = pairings.get(asked.split), series.first.metric
    population = read_population(series.first.folder, newcomers=asked.newcomers)
    rows = client_rows(scores[asked.split], main, population)
    return ClientReport(
        label=series.label,
        model=asked.model_of(series.first),
        metric=metric,
        split=asked.split,
        seeds=tuple(series.runs),
        reference=None if reference is None else reference.label,
        reference_model=None if reference is None else other_model(asked).model_of(reference.first),
        paired_seeds=() if main is None else main.seeds,
        rows=rows,
        without=len(population.keys() - {row.client for row in rows}),
        overview=overview_of(np.array([row.values[metric] for row in rows]), metric),
        deltas={split: found.deltas() for split, found in pairings.items()},
    )


def chosen(series: Sequence[Series], label: str | None, path: Path) -> Series:
    labels = [one.label for one in series]
    if label is None and len(series) > 1:
        raise InvalidConfig(f"{path} has several labels: {', '.join(labels)}. Choose one with --label.")
    if label is not None and label not in labels:
        raise InvalidConfig(f"{path} has no label '{label}'. {did_you_mean(label, labels)}")
    return series[0 if label is None else labels.index(label)]


def find_reference(series: Series, given: Sequence[Series], against: str) -> Series:
    """Stage (a) of the series itself, another label of its study, or another folder."""
    if against == STAGE_A:
        return stage_a(series)
    named = [one for one in given if one.label == against]
    if named and not Path(against).exists():
        return named[0]
    if not Path(against).exists():
        known = [one.label for one in given]
        raise InvalidConfig(
            f"--against {against}: there is no such folder and no such label. {did_you_mean(against, known)}"
        )
    found = usual_reference(read_series([Path(against)]))
    check_comparable([*series.runs.values(), *found.runs.values()])
    return replace(found, label=against) if found.label == series.label else found


def pairings_of(series: Series, reference: Series, scores: ScoresBySplit, asked: Asked) -> dict[str, Pairing]:
    """By split; refuses a reference that has no run to go with those of the series."""
    if not series.runs.keys() & reference.runs.keys():
        raise InvalidConfig(
            f"{series.label} and {reference.label} have no seed in common ({seeds_text(series)}; "
            f"{seeds_text(reference)}): clients are compared under the same seed."
        )
    before, metric = scores_of(reference, other_model(asked)), series.first.metric
    both = {
        split: pair(scores[split], before[split], metric) for split in SPLITS if split in scores and split in before
    }
    found = {split: pairing for split, pairing in both.items() if pairing is not None}
    if asked.split not in found:
        raise InvalidConfig(no_scores_text([reference], other_model(asked)))
    return found


def seeds_text(series: Series) -> str:
    return ", ".join(map(str, series.runs))


def client_rows(
    scores: Mapping[int, ClientScores], pairing: Pairing | None, population: Mapping[int, Member]
) -> tuple[ClientRow, ...]:
    """Everybody who has been scored under any seed."""
    everybody = np.unique(np.concatenate([one.clients for one in scores.values()]))
    metrics = list(dict.fromkeys(name for one in scores.values() for name in one.values))
    values = {name: mean_over_seeds(list(scores.values()), name, everybody) for name in metrics}
    facts = {client: fact for one in scores.values() for client, fact in facts_of(one).items()}
    deltas, changing = deltas_of(pairing)
    return tuple(
        ClientRow(
            client=client,
            name=facts[client][0],
            examples=facts[client][1],
            member=population.get(client),
            values={name: float(found[place]) for name, found in values.items()},
            delta=deltas.get(client),
            sign_changes=client in changing,
        )
        for place, client in enumerate(everybody.tolist())
    )


def facts_of(scores: ClientScores) -> dict[int, tuple[str, int]]:
    """Name and number of scored items of each client."""
    pairs = zip(scores.names, scores.examples.tolist(), strict=True)
    return dict(zip(scores.clients.tolist(), pairs, strict=True))


def mean_over_seeds(scores: Sequence[ClientScores], metric: str, everybody: Numbers) -> Floats:
    """Of the seeds that have a value; NaN where none has."""
    table = np.stack([aligned(one, metric, everybody) for one in scores if metric in one.values])
    known = ~np.isnan(table)
    totals, counts = np.where(known, table, 0.0).sum(axis=0), known.sum(axis=0)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def deltas_of(pairing: Pairing | None) -> tuple[dict[int, float], set[int]]:
    """The difference of each client, and whose changes its sign with the seed."""
    if pairing is None:
        return {}, set()
    clients = pairing.clients.tolist()
    return dict(zip(clients, pairing.client_differences().tolist(), strict=True)), set(
        pairing.clients[pairing.changing()].tolist()
    )
