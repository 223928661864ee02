"""Pages: measured beside published, and what has not been run says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plures.papers import PAPERS, find_paper
from plures.papers.blocks import Entry, Figure, Series, Verdict
from plures.papers.drawing import canvas_of, draw
from plures.papers.outcomes import write_outcome
from plures.papers.page import entry_text, shortened, write_page
from plures.papers.results import write_results
from plures.papers.states import item_states
from plures.papers.store import Store
from tests.papers.made_up import OWN, PAPER, outcome


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (Entry(measured=98.4321, spread=0.123, seeds=3, published=98.43), "98.43 ± 0.12 / 98.43"),
        (Entry(published=98.43), "*not run* / 98.43"),
        (Entry(measured=1234567, published=1234567), "1,234,567 / 1,234,567"),
        (Entry(measured=12576.0), "12,576"),
        (Entry(measured=">200"), ">200"),
        (None, ""),
    ],
)
def test_an_entry_shows_measured_and_published(entry, text):
    assert entry_text(entry, 2) == text


def test_a_page_of_what_has_not_been_run_says_so(tmp_path):
    text = write_page(PAPER, Store(folder=tmp_path)).read_text("utf-8")

    assert "**micro**: not run. Digits." in text
    assert "**full**: not run. Too large." in text
    assert "| H1 | Local is better. | not run |  | [table-1](#table-1) |" in text
    assert "Two and two are four." in text
    assert "## Slips of the paper\n\n- Two tables differ." in text
    assert not (tmp_path / "figures").exists()


def test_a_page_of_what_has_been_run_has_its_table_figure_and_origin(tmp_path):
    store = Store(folder=tmp_path)
    (tmp_path / "cells").mkdir()
    write_outcome(store.path(OWN.key(0)), outcome([0.9, 0.95]))
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "of-another-time.svg").touch()

    text = write_page(PAPER, store).read_text("utf-8")

    assert "| Local | 92.50 / 91.50 |" in text
    assert "| FedAvg | *not run* / 91.50 |" in text
    assert "1 run of `plures paper made-up/table-1 --scale micro`, 2026-01-02, commit abc, on a machine." in text
    assert "![Curves](figures/table-1-micro-curves.svg)" in text
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["table-1-micro-curves.svg"]


def test_of_an_item_at_several_scales_the_largest_is_open_and_the_others_are_folded_below(tmp_path):
    larger = replace(OWN, table={**OWN.table, "rounds": 9})
    both = replace(PAPER.recipes[0], cells=lambda scale: {"micro": [OWN], "small": [larger]}.get(scale, []))
    store = Store(folder=tmp_path)
    (tmp_path / "cells").mkdir()
    for cell in (OWN, larger):
        write_outcome(store.path(cell.key(0)), outcome([0.9, 0.95]))

    text = write_page(replace(PAPER, recipes=(both,)), store).read_text("utf-8")

    heading, small, micro, end = (
        text.index(part)
        for part in ('<a id="table-1"></a>', "### table-1, small", "<summary>table-1, micro</summary>", "</details>")
    )
    assert heading < small < micro < end
    assert text.index("![Curves](figures/table-1-small-curves.svg)") < micro
    assert micro < text.index("![Curves](figures/table-1-micro-curves.svg)") < end


def test_every_claim_leads_to_an_item_of_its_paper():
    papers = [find_paper(name) for name in PAPERS]

    assert all(paper.claims for paper in papers)
    for paper in papers:
        assert {claim.item for claim in paper.claims} <= {recipe.name for recipe in paper.recipes}


def test_the_list_tells_what_has_run_and_why_the_rest_has_not(tmp_path):
    store = Store(folder=tmp_path)
    (tmp_path / "cells").mkdir()
    write_outcome(store.path(OWN.key(0)), outcome([0.9]))

    table, closed = item_states(PAPER, store)

    assert (table["micro"], table["small"], table["why"]) == ("1 of 2", "-", {"full": "Too large."})
    assert closed["full"] == "closed form"


@pytest.mark.parametrize("kind", ["lines", "points", "bars", "violins"])
def test_every_kind_of_figure_is_drawn_and_the_same_twice(tmp_path, kind):
    series = {"a": Series(x=[1, 2, 3], y=[1.0, 2.0, 1.5]), "b": Series(x=[1, 2, 3], y=[0.5, 0.25, 3.0])}
    figure = Figure(name="f", title="T", x="x", y="y", panels={"one": series, "two": series}, kind=kind)

    for name in ("first", "second"):
        draw(figure, tmp_path / f"{name}.svg")

    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()
    assert ">one<" in (tmp_path / "first.svg").read_text("utf-8")


@pytest.mark.parametrize(("name", "most"), [("FedAvg", 5), ("FedAvg, trained on", 2), ("FedAvg on " * 9, 1)])
def test_a_legend_is_no_wider_than_its_figure(name, most):
    panel = {f"{name} {number}": Series(x=[1, 2], y=[1.0, number]) for number in range(8)}

    canvas = canvas_of(Figure(name="f", title="T", x="x", y="y", panels={"": panel}))

    (legend,) = canvas.legends
    assert len(legend.texts) == 8
    assert legend._ncols <= most
    assert most == 1 or legend.get_window_extent().width < canvas.bbox.width


def test_one_page_has_the_claims_of_all_papers(tmp_path):
    counts = write_results(tmp_path / "docs" / "results.md", tmp_path / "reproductions")

    text = (tmp_path / "docs" / "results.md").read_text("utf-8")
    assert sum(counts.values()) == sum(len(find_paper(name).claims) for name in PAPERS)
    assert counts["not run"] > counts["holds"] > 0  # closed forms need no run
    assert "(../reproductions/pflego/README.md)" in text
    assert "| [table-2](../reproductions/pflego/README.md#table-2) |" in text


@pytest.mark.parametrize(
    ("parts", "span", "told"),
    [
        ({}, None, "the numbers"),
        ({"a": "holds", "b": "fails", "c": "holds"}, None, "of 3 cases 2 hold, 1 fails"),
        (
            {"a": "not run", "b": "undecided", "c": "undecided"},
            (-0.512, 2.0),
            "of 3 cases 2 are undecided, 1 was not run; differences -0.51 to +2.00 points",
        ),
    ],
)
def test_a_claim_about_several_cases_is_shown_by_how_many_hold_and_by_how_much(parts, span, told):
    assert shortened(Verdict(verdict="holds", figure="the numbers", parts=parts, span=span)) == told
