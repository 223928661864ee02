"""How large a model each client trained, where clients differ in that or models are sparse."""

from __future__ import annotations

import csv
import zlib

import numpy as np

from plures.core.errors import RunFolderError
from plures.report import records
from plures.report.client_scores import Numbers
from plures.report.infinite import Floats
from plures.report.page.axes import axis, metric_axis, metric_format
from plures.report.page.chart import Chart, Item, numbers
from plures.report.page.few import MOST_POINTS, plain, plains, sampled_text, spread
from plures.report.page.gathered import Gathered, Labelled
from plures.report.pairing import aligned
from plures.report.studies import RecordedRun, reading
from plures.report.tables import score

LEAST_SPREAD = 0.01
"""Of the shares of the model: less comes of rounding."""


def size_charts(found: Gathered, one: Labelled, key: str) -> list[Item]:
    """Of the first seed; nothing where all models have the same size."""
    densities = last_densities(one.runs[0])
    scores = one.own.scores.get(found.asked.split, {}).get(one.runs[0].seed)
    if scores is None or not densities or max(densities.values()) - min(densities.values()) < LEAST_SPREAD:
        return []
    clients = np.array([client for client in scores.clients.tolist() if client in densities], dtype=np.int64)
    if not len(clients):
        return []
    everybody = aligned(scores, found.metric, scores.clients)
    values = everybody[np.searchsorted(scores.clients, clients)]
    known = np.isfinite(values)
    shares = np.array([densities[client] for client in clients.tolist()])
    return [size_chart(found, one, clients[known], shares[known], values[known], key)] if known.any() else []


def last_densities(run: RecordedRun) -> dict[int, float]:
    """Of each client that was visited, in its last visit."""
    path = run.folder / records.VISITS
    if not path.is_file():
        return {}
    try:
        with reading(path):
            rows = records.read_visits(run.folder)
            return {int(row["client"]): float(row["density"]) for row in rows if row.get("density")}
    except (EOFError, zlib.error, csv.Error) as error:
        raise RunFolderError(f"{path} is damaged: {error}.") from error


def size_chart(found: Gathered, one: Labelled, clients: Numbers, shares: Floats, values: Floats, key: str) -> Chart:
    places = spread(values, MOST_POINTS)
    names = [one.names.get(client, str(client)) for client in clients.tolist()]
    kinds = sorted(set(shares.round(3).tolist()))
    return Chart(
        key=f"size-{key}",
        title=f"{one.label}: {found.metric} by size of the client's model",
        caption=f"The share of the whole model that a client trained in its last visit, and its {found.metric} on "
        f"{found.asked.split} data.{sampled_text(len(places), len(values))}",
        traces=[
            {
                "type": "scatter",
                "mode": "markers",
                "x": shares[places],
                "y": values[places],
                "text": plains([names[place] for place in places]),
                "cliponaxis": False,
                "marker": {"color": one.style.colour, "symbol": one.style.sign, "size": 8, "opacity": 0.7},
                "hovertemplate": f"client %{{text}}<br>%{{x:.1%}} of the model<br>{plain(found.metric)} "
                f"%{{y{metric_format(found.metric)}}}<extra></extra>",
            }
        ],
        layout={
            "xaxis": axis("share of the model", tickformat=".0%", rangemode="tozero"),
            "yaxis": metric_axis(found.metric),
        },
        numbers=numbers(
            ("share of the model", "clients", f"mean {found.metric}"),
            [size_row(kind, shares, values, found.metric) for kind in kinds],
        ),
        height=360,
    )


def size_row(kind: float, shares: Floats, values: Floats, metric: str) -> list[str]:
    own = values[shares.round(3) == kind]
    return [f"{kind:.1%}", f"{len(own):,}", score(float(own.mean()), metric)]
