"""What is special about clients' models: masks, gates and sizes, where a method has such."""

from __future__ import annotations

from plures.report.page.chart import Group, Item, Missing, Section
from plures.report.page.gates import gate_charts
from plures.report.page.gathered import Gathered, Labelled
from plures.report.page.masks import mask_charts
from plures.report.page.sizes import size_charts

WHY_NONE = (
    "No run on this page has masks, gates or models of several sizes. Methods that have them: fedspa, sub_fedavg and "
    "fedmask (masks), heterofl (widths), pfedgate (gates)."
)


def models_section(found: Gathered) -> Section:
    every = [Group(title=one.label, items=items_of(found, one, str(number))) for number, one in enumerate(found.labels)]
    groups = [group for group in every if group.items]
    missing = Group(items=[Missing(title="Mask maps, mask distances and gates", why=WHY_NONE)])
    return Section(
        key="models",
        title="Masks, gates and sizes",
        intro="Of the first seed of each label that has such.",
        groups=groups or [missing],
        has_labels=False,
    )


def items_of(found: Gathered, one: Labelled, key: str) -> list[Item]:
    return [*mask_charts(one, key), *gate_charts(one, key), *size_charts(found, one, key)]
