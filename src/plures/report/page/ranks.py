"""Clients from the worst to the best: a curve for each label, with the seeds as a band."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plures.report.client_scores import Numbers
from plures.report.infinite import Floats
from plures.report.page.axes import axis, metric_axis, metric_format
from plures.report.page.chart import Chart, Item, Missing, Trace, numbers
from plures.report.page.few import evenly, plain, plains, sampled_text
from plures.report.page.gathered import Gathered, Labelled, finite
from plures.report.pairing import aligned
from plures.report.scales import direction
from plures.report.tables import score

MOST_RANKS = 1_000


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The clients of one label, from the worst to the best by their mean over seeds."""

    clients: Numbers
    mean: Floats
    low: Floats
    high: Floats


def rank_chart(found: Gathered) -> Item:
    split, metric = found.asked.split, found.metric
    ranked = [(one, ranks) for one in found.labels if (ranks := ranked_clients(one, split)) is not None]
    title = f"Clients from the worst to the best, {split} data"
    if not ranked:
        return Missing(title=title, why=f"No client has a finite {metric} on {split} data under every seed.")
    counts = [len(ranks.clients) for _, ranks in ranked]
    order = "lowest" if direction(metric) > 0 else "highest"
    return Chart(
        key="ranks",
        title=title,
        caption=f"Clients in the order of their {metric}, the {order} first, averaged over seeds; the band goes from a "
        f"client's lowest seed to its highest.{sampled_text(min(max(counts), MOST_RANKS), max(counts))}",
        traces=[trace for one, ranks in ranked for trace in rank_traces(one, ranks, metric)],
        layout={"xaxis": axis("share of clients", tickformat=".0%"), "yaxis": metric_axis(metric)},
        numbers=numbers(
            ("label", "clients", "worst", "lower quartile", "median", "upper quartile", "best"),
            [rank_row(one, ranks, metric) for one, ranks in ranked],
        ),
        height=380,
        wide=True,
    )


def ranked_clients(one: Labelled, split: str) -> Ranked | None:
    """Those with a finite value under every seed."""
    scores = list(one.own.scores.get(split, {}).values())
    if not scores:
        return None
    everybody = np.unique(np.concatenate([own.clients for own in scores]))
    table = finite(np.stack([aligned(own, one.metric, everybody) for own in scores]))
    whole = ~np.isnan(table).any(axis=0)
    if not whole.any():
        return None
    table = table[:, whole]
    order = np.argsort(direction(one.metric) * table.mean(axis=0), kind="stable")
    table = table[:, order]
    return Ranked(
        clients=everybody[whole][order], mean=table.mean(axis=0), low=table.min(axis=0), high=table.max(axis=0)
    )


def rank_traces(one: Labelled, ranks: Ranked, metric: str) -> list[Trace]:
    places = evenly(len(ranks.clients), MOST_RANKS)
    x = (places + 0.5) / len(ranks.clients)
    named = [one.names.get(client, str(client)) for client in ranks.clients[places].tolist()]
    line: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(places) <= 60 else "lines",
        "name": plain(one.label),
        "meta": {"label": one.label},
        "x": x,
        "y": ranks.mean[places],
        "text": plains(named),
        "cliponaxis": False,
        "line": {"color": one.style.colour, "dash": one.style.dash, "width": 2},
        "marker": {"color": one.style.colour, "symbol": one.style.sign, "size": 6},
        "hovertemplate": f"client %{{text}}<br>{plain(metric)} %{{y{metric_format(metric)}}}"
        "<extra>%{fullData.name}</extra>",
    }
    if len(one.runs) == 1:
        return [line]
    band: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": plain(one.label),
        "meta": {"label": one.label},
        "x": np.concatenate([x, x[::-1]]),
        "y": np.concatenate([ranks.high[places], ranks.low[places][::-1]]),
        "fill": "toself",
        "fillcolor": one.style.fill,
        "line": {"width": 0, "color": one.style.fill},
        "hoverinfo": "skip",
    }
    return [band, line]


def rank_row(one: Labelled, ranks: Ranked, metric: str) -> list[str]:
    places = [round(share * (len(ranks.mean) - 1)) for share in (0, 0.25, 0.5, 0.75, 1)]
    return [one.label, f"{len(ranks.mean):,}", *(score(float(ranks.mean[place]), metric) for place in places)]
