"""Figures of a reproduction as SVG files, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig
from plures.papers.blocks import Figure, Series

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
except ImportError as error:
    raise InvalidConfig("Figures of a reproduction need matplotlib: pip install 'plures[plot]'.") from error

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b", "#7f7f7f", "#bcbd22")
"""Okabe and Ito's, which the colour-blind can tell apart, and three more."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
PANEL_WIDTH, PANEL_HEIGHT, MOST_BESIDE = 3.6, 2.9, 3
MOST_COLUMNS, LEGEND_SHARE = 5, 0.95
"""Of a legend; and how much of a figure's width it takes at most, for browsers have fonts of their own."""
FEW = 20
"""Points that are drawn larger."""
MARKED = 15
"""Lines with fewer points have marks."""


def draw(figure: Figure, path: Path) -> None:
    """Write one figure."""
    canvas = canvas_of(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    settings: Any = {"svg.hashsalt": "plures", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        canvas.savefig(path, format="svg", metadata={"Date": None})


def canvas_of(figure: Figure) -> Canvas:
    count = max(1, len(figure.panels))
    beside = min(count, MOST_BESIDE)
    below = -(-count // beside)
    canvas = Canvas(figsize=(PANEL_WIDTH * beside + 0.4, PANEL_HEIGHT * below + 0.6), layout="constrained")
    places: list[Axes] = list(canvas.subplots(below, beside, squeeze=False).ravel())
    names = list(dict.fromkeys(name for panel in figure.panels.values() for name in panel))
    for axes, (title, panel) in zip(places, figure.panels.items(), strict=False):
        draw_panel(axes, figure, title, panel, names)
    for axes in places[count:]:
        axes.set_visible(False)
    label_figure(canvas, figure, places[:count], names)
    return canvas


def draw_panel(axes: Axes, figure: Figure, title: str, panel: Any, names: Sequence[str]) -> None:
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if figure.log_y:
        axes.set_yscale("log")
    if figure.kind == "violins":
        draw_violins(axes, panel, names)
        return
    for name, series in panel.items():
        number = names.index(name)
        draw_series(axes, figure.kind, name, series, number, len(names))


def draw_series(axes: Axes, kind: str, name: str, series: Series, number: int, count: int) -> None:
    colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
    x: Any = list(series.x)
    if kind == "points":
        axes.scatter(
            x, series.y, s=9 if len(x) > FEW else 30, alpha=0.6, color=colour, marker=mark, label=name, linewidths=0
        )
        if min(series.y, default=0.0) < 0:
            axes.axhline(0.0, color="#888888", linewidth=0.6)
    elif kind == "bars":
        width = 0.8 / count
        places = [place + (number - (count - 1) / 2) * width for place in range(len(x))]
        axes.bar(places, series.y, width=width, color=colour, label=name)
        axes.set_xticks(range(len(x)), [str(one) for one in x], fontsize=7)
    else:
        style = "-" if number < len(COLOURS) else "--"
        shown = mark if len(series.y) <= MARKED else None
        axes.plot(x, series.y, style, color=colour, marker=shown, markersize=4, linewidth=1.3, label=name)


def draw_violins(axes: Axes, panel: Any, names: Sequence[str]) -> None:
    drawn = [(name, series) for name, series in panel.items() if len(series.y)]
    if not drawn:
        return
    parts = axes.violinplot([list(series.y) for _, series in drawn], showmedians=True, widths=0.8)
    bodies: Any = parts["bodies"]
    for (name, _), body in zip(drawn, bodies, strict=True):
        body.set_facecolor(COLOURS[names.index(name) % len(COLOURS)])
    axes.set_xticks(range(1, len(drawn) + 1), [name for name, _ in drawn], fontsize=7, rotation=20)
    axes.axhline(0.0, color="#888888", linewidth=0.6)


def label_figure(canvas: Canvas, figure: Figure, places: Sequence[Axes], names: Sequence[str]) -> None:
    """One title, one legend and the names of the axes for all panels."""
    canvas.suptitle(figure.title, x=0.01, horizontalalignment="left", fontsize=10)
    canvas.supylabel(figure.y, fontsize=9)
    for axes in places[-MOST_BESIDE:]:
        axes.set_xlabel(figure.x, fontsize=9)
    if figure.kind == "violins" or len(names) < 2:
        return
    known: dict[str, Any] = {}
    for axes in places:
        handles, labels = axes.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    if known:
        add_legend(canvas, {name: known[name] for name in names if name in known})


def add_legend(canvas: Canvas, known: dict[str, Any]) -> None:
    """In as many columns as the figure is wide for."""
    for columns in range(min(MOST_COLUMNS, len(known)), 0, -1):
        legend = canvas.legend(
            list(known.values()), list(known), loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )
        if columns == 1 or legend.get_window_extent().width < LEGEND_SHARE * canvas.bbox.width:
            return
        legend.remove()
