"""Pieces of HTML; all that comes from records is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from plures.report.page.chart import Cell, Chart, Group, Item, Numbers, Section
from plures.report.page.configuration import FINGERPRINT_HEADING, Configured
from plures.report.page.gathered import Labelled
from plures.report.page.palette import DASHES, LABEL_COLOURS
from plures.report.page.summary import Card, Line

STROKES = dict(zip(DASHES, ("", "7 4", "2 3", "8 3 2 3"), strict=True))
SIGN_SHAPES = {
    "circle": '<circle cx="16" cy="7" r="4"/>',
    "square": '<path d="M12 3h8v8h-8z"/>',
    "diamond": '<path d="M16 2l5 5-5 5-5-5z"/>',
    "triangle-up": '<path d="M16 2l5 9h-10z"/>',
    "cross": '<path d="M14 2h4v3h3v4h-3v3h-4V9h-3V5h3z"/>',
    "star": '<path d="M16 1l2 4 4 .5-3 3 1 4.500-4-2-4 2 1-4.500-3-3 4-.5z"/>',
    "hexagon": '<path d="M12 4.500l4-2.500 4 2.500v5L16 12l-4-2.500z"/>',
    "x": '<path d="M12 1l4 4 4-4 2 2-4 4 4 4-2 2-4-4-4 4-2-2 4-4-4-4z"/>',
}


def text(words: str) -> str:
    """Escaped; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def cell_text(cell: Cell) -> str:
    return "-" if cell is None else escape(f"{cell:.4g}" if isinstance(cell, float) else str(cell))


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], caption: str, *, classes: str = "") -> str:
    """Cells are HTML already; the first of each row is its heading. A wide table scrolls by itself."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heading)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>' for first, *rest in rows
    )
    name = escape(caption, quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}"><table class="{classes}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def numbers_below(numbers: Numbers, title: str) -> str:
    rows = [[cell_text(cell) for cell in row] for row in numbers.rows]
    more = f"<p>{numbers.more:,} more rows are in the run folder.</p>" if numbers.more else ""
    shown = table(numbers.heading, rows, f"Numbers: {title}")
    return f"<details><summary>Numbers</summary>{shown}{more}</details>"


def item_html(item: Item, level: int) -> str:
    if not isinstance(item, Chart):
        return f'<div class="missing"><h{level}>{text(item.title)}</h{level}><p>{text(item.why)}</p></div>'
    told = escape(f"{item.title}. {item.caption}", quote=True)
    return (
        f'<figure class="card chart{" wide" if item.wide else ""}" id="chart-{item.key}">'
        f"<h{level}>{text(item.title)}</h{level}>"
        f'<div class="plot" data-figure="{item.key}" role="img" aria-label="{told}" '
        f'style="height:{item.height}px"></div>'
        f"<figcaption>{text(item.caption)}</figcaption>{numbers_below(item.numbers, item.title)}</figure>"
    )


def section_html(section: Section, labels: Sequence[Labelled]) -> str:
    chips = legend(labels) if section.has_labels and len(labels) > 1 else ""
    return (
        f'<section aria-labelledby="{section.key}"><h2 id="{section.key}">{text(section.title)}</h2>'
        f'<p class="intro">{text(section.intro)}</p>{chips}{"".join(map(group_html, section.groups))}</section>'
    )


def group_html(group: Group) -> str:
    level, title = (4, f'<h3 class="group">{text(group.title)}</h3>') if group.title else (3, "")
    items = "".join(item_html(item, level) for item in group.items)
    return f'{title}<div class="grid columns-{columns(len(group.items))}">{items}</div>'


def columns(count: int) -> int:
    """So that no chart is left alone in its row, where that can be."""
    return 1 if count == 1 else 2 if count in (2, 4) else 3


def legend(labels: Sequence[Labelled]) -> str:
    """A button for each label, which shows and hides it in every chart."""
    buttons = "".join(
        f'<li><button type="button" class="chip" aria-pressed="true" data-label="{escape(one.label, quote=True)}">'
        f"{swatch(one)}{text(one.label)}</button></li>"
        for one in labels
    )
    return f'<ul class="legend" aria-label="Labels: press to hide or show">{buttons}</ul>'


def swatch(one: Labelled) -> str:
    number = [light for light, _ in LABEL_COLOURS].index(one.style.colour)
    return (
        f'<svg class="label-{number}" width="32" height="14" viewBox="0 0 32 14" aria-hidden="true">'
        f'<path d="M1 7h30" stroke="currentColor" stroke-width="2" stroke-dasharray="{STROKES[one.style.dash]}"/>'
        f'<g fill="currentColor">{SIGN_SHAPES[one.style.sign]}</g></svg>'
    )


def cards_html(cards: Sequence[Card]) -> str:
    each = (
        f'<div class="card number"><dt>{text(card.title)}</dt><dd class="value">{text(card.value)}</dd>'
        f'<dd class="note">{text(card.note)}</dd></div>'
        for card in cards
    )
    return f'<dl class="cards">{"".join(each)}</dl>'


def lines_html(heading: Sequence[str], lines: Sequence[Line], labels: Sequence[Labelled]) -> str:
    rows = [
        [
            f"{swatch(one)} {text(line.label)}" + (' <span class="best">best</span>' if line.is_best else ""),
            *map(text, line.cells),
        ]
        for one, line in zip(labels, lines, strict=True)
    ]
    return table(heading, rows, "All labels side by side", classes="numbers")


def configuration_html(configured: Sequence[Configured], prints: Sequence[Sequence[str]]) -> str:
    each = "".join(
        f"<details><summary>{text(one.label)}: resolved configuration</summary>"
        f'<pre tabindex="0">{escape(one.text)}</pre></details>'
        for one in configured
    )
    rows = [[*map(text, row[:6]), *(f"<code>{escape(value)}</code>" for value in row[6:])] for row in prints]
    return f'<div class="card">{each}</div>{table(FINGERPRINT_HEADING, rows, "Fingerprints", classes="prints")}'
