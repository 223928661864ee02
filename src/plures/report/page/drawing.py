"""From charts to figures that plotly has checked, as JSON for a page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go  # type: ignore[import-untyped]
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from plures.report.page.chart import Chart
from plures.report.page.palette import GRID, INK, LINE

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'


def figure_of(chart: Chart) -> Any:
    """Plotly's own; it refuses a word that it does not know."""
    return go.Figure(data=list(chart.traces), layout=base_layout() | dict(chart.layout), skip_invalid=False)


def base_layout() -> dict[str, Any]:
    """On transparent ground, without plotly's own template; the legend, where there is one, stands above."""
    return {
        "template": "none",
        "autosize": True,
        "showlegend": False,
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 16, "t": 16, "b": 44, "pad": 2},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"bgcolor": GRID, "bordercolor": INK, "font": {"color": LINE, "family": FONT, "size": 12}},
        "hovermode": "closest",
    }


def figures_json(charts: Iterable[Chart]) -> str:
    """By key, ready to stand in a page: no tag can begin in it."""
    found = {chart.key: json.loads(figure_of(chart).to_json(engine="json")) for chart in charts}
    return inside_script(found)


def inside_script(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def plotly_script() -> str:
    """The library itself, as one script; a page reads lines as other systems end them."""
    text: str = get_plotlyjs()
    return text.replace("\r\n", "\n").replace("\r", "\n")
