"""Puts a page together."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from plures.report.page.chart import Chart, Section
from plures.report.page.clients import clients_section
from plures.report.page.configuration import configurations, fingerprints
from plures.report.page.costs import costs_section
from plures.report.page.curves import curves_section
from plures.report.page.drawing import figures_json, inside_script, plotly_script
from plures.report.page.federation import federation_section
from plures.report.page.finals import finals_section
from plures.report.page.gathered import Gathered
from plures.report.page.html_parts import cards_html, configuration_html, lines_html, section_html
from plures.report.page.models import models_section
from plures.report.page.palette import LABEL_COLOURS, dark_colours
from plures.report.page.summary import cards_of, heading_of, lines_of

SECTIONS = (curves_section, finals_section, clients_section, federation_section, costs_section, models_section)


def sections_of(found: Gathered) -> list[Section]:
    return [make(found) for make in SECTIONS]


def charts_of(sections: Sequence[Section]) -> list[Chart]:
    return [item for section in sections for group in section.groups for item in group.items if isinstance(item, Chart)]


def page_html(found: Gathered) -> str:
    """The whole page as one text: styles, scripts and figures are inside, and nothing is fetched."""
    sections = sections_of(found)
    figures, colours = figures_json(charts_of(sections)), inside_script(dark_colours())
    library, script = plotly_script(), own_file("page.js")
    return Template(own_file("page.html")).substitute(
        title=escape(title_of(found)),
        policy=escape(policy([library, script]), quote=True),
        style=own_file("page.css") + label_styles(),
        navigation=navigation(sections),
        lead=escape(lead_of(found)),
        cards=cards_html(cards_of(found)),
        labels=lines_html(heading_of(found), lines_of(found), found.labels),
        sections="".join(section_html(section, found.labels) for section in sections),
        configuration=configuration_html(configurations(found), fingerprints(found)),
        version=escape(str(found.first_run.result.get("version", ""))),
        colours=colours,
        figures=figures,
        library=library,
        script=script,
    )


def own_file(name: str) -> str:
    return (files("plures.report.page") / name).read_text(encoding="utf-8")


def policy(scripts: Sequence[str]) -> str:
    """Nothing is fetched, and no script runs but these: not one that a name in the records would bring."""
    prints = (base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii") for script in scripts)
    allowed = " ".join(f"'sha256-{own}'" for own in prints)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def label_styles() -> str:
    """The colours of labels in the legend, as in the charts."""
    light = "".join(f"--label-{number}:{own};" for number, (own, _) in enumerate(LABEL_COLOURS))
    dark = "".join(f"--label-{number}:{own};" for number, (_, own) in enumerate(LABEL_COLOURS))
    uses = "".join(f".label-{number}{{color:var(--label-{number})}}" for number in range(len(LABEL_COLOURS)))
    return (
        f":root{{{light}}}@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}{uses}"
    )


def navigation(sections: Sequence[Section]) -> str:
    places = [("summary", "Summary"), *((one.key, one.title) for one in sections), ("configuration", "Configuration")]
    return "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name in places)


def title_of(found: Gathered) -> str:
    labels = [one.label for one in found.labels]
    return ", ".join(labels) if len(labels) <= 4 else f"{', '.join(labels[:3])} and {len(labels) - 3} more"


def lead_of(found: Gathered) -> str:
    runs = sum(len(one.runs) for one in found.labels)
    clients = found.first_run.result.get("clients", len(found.population))
    what = f"{runs:,} runs of {len(found.labels)} labels" if runs > 1 else "One run"
    who = "newcomers" if found.asked.newcomers else "clients"
    compared = f", compared with {found.reference}" if found.compared else ""
    told = f"{what} on {clients} clients{compared}. Judged by {found.metric} on the {who}' {found.asked.split} data."
    return " ".join([told, *(word.strip() for word in found.words)])
