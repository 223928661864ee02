"""Colours, dashes and signs: told apart by colour-blind readers, and on light and dark ground."""

from __future__ import annotations

from dataclasses import dataclass

LABEL_COLOURS = (
    ("#0072b2", "#58b0e8"),
    ("#d05a00", "#ff9448"),
    ("#00805c", "#35c79b"),
    ("#b04f8a", "#e893c5"),
    ("#a86c00", "#ecb944"),
    ("#7a4bb0", "#b99af0"),
    ("#2b8cbe", "#93d2f5"),
    ("#5f6b7a", "#aab4c2"),
)
"""On light ground, and on dark: after Okabe and Ito, with three times the contrast of either ground at least."""
DASHES = ("solid", "dash", "dot", "dashdot")
SIGNS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x")

HELPED, HURT, SAME = "#0b6cc0", "#c2500a", "#68717d"
HELPED_SIGN, HURT_SIGN, SAME_SIGN = "triangle-up", "triangle-down", "circle-open"
LINE, GRID, INK = "#2a3340", "#e3e8ee", "#39424e"
LOW, HIGH = "#eef3f8", "#084a83"
"""The ends of a scale of shares; the dark ones are as far from their ground."""
OTHER_PAIRS = (
    (HELPED, "#62b3f7"),
    (HURT, "#ff9a54"),
    (SAME, "#a3adba"),
    (LINE, "#dfe5ec"),
    (GRID, "#2c343f"),
    (INK, "#c3ccd7"),
    (LOW, "#1c232c"),
    ("#7fb0d8", "#2f6c9e"),
    (HIGH, "#a9dcff"),
)
SCALE = [[0.0, LOW], [0.5, "#7fb0d8"], [1.0, HIGH]]
FILL_SHARE = 0.16


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one label looks in every chart."""

    colour: str
    fill: str
    dash: str
    sign: str


def style_of(number: int) -> Style:
    """Of the first label, the second and so on; when colours come again, dashes and signs differ."""
    own, again = LABEL_COLOURS[number % len(LABEL_COLOURS)][0], number // len(LABEL_COLOURS)
    return Style(
        colour=own,
        fill=faint(own),
        dash=DASHES[(number + again) % len(DASHES)],
        sign=SIGNS[(number + again) % len(SIGNS)],
    )


def faint(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{FILL_SHARE})"


def dark_colours() -> dict[str, str]:
    """What each colour of a chart becomes on dark ground."""
    pairs = [*LABEL_COLOURS, *OTHER_PAIRS]
    return dict(pairs) | {faint(light): faint(dark) for light, dark in pairs}
