"""Clients one by one: whom a method helps, how differences spread, who fares worst."""

from __future__ import annotations

from plures.report.page.chart import Group, Section
from plures.report.page.deltas import delta_groups
from plures.report.page.gathered import Gathered
from plures.report.page.ranks import rank_chart
from plures.report.page.violins import violin_charts

ABOUT_DIFFERENCES = (
    "Differences are a label's own minus those of {reference}, client by client and seed by seed, then averaged over "
    "seeds. Triangles up are helped, triangles down hurt. "
)


def clients_section(found: Gathered) -> Section:
    about = ABOUT_DIFFERENCES.format(reference=found.reference) if found.compared else ""
    spread = [Group(title="Spread of the differences", items=violin_charts(found))] if found.compared else []
    return Section(
        key="clients",
        title="Clients",
        intro=f"{about}Point at a mark to see its client.",
        groups=[
            Group(items=[rank_chart(found)]),
            *delta_groups(found),
            *spread,
        ],
    )
