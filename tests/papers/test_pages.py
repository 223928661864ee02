"""Pages: measured beside published, and what has not been run says so."""

from __future__ import annotations

import pytest

from plures.papers import PAPERS, find_paper
from plures.papers.blocks import Entry, Figure, Series, Verdict
from plures.papers.drawing import draw
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
    assert "| H1 | Local is better. | not run |" in text
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
    assert "1 runs, 2026-01-02, commit abc, on a machine." in text
    assert "![Curves](figures/table-1-micro-curves.svg)" in text
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["table-1-micro-curves.svg"]


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


def test_one_page_has_the_claims_of_all_papers(tmp_path):
    counts = write_results(tmp_path / "docs" / "results.md", tmp_path / "reproductions")

    text = (tmp_path / "docs" / "results.md").read_text("utf-8")
    assert sum(counts.values()) == sum(len(find_paper(name).claims) for name in PAPERS)
    assert counts["not run"] > counts["holds"] > 0  # closed forms need no run
    assert "(../reproductions/pflego/README.md)" in text


@pytest.mark.parametrize(
    ("parts", "told"),
    [({}, "the numbers"), ({"a": "holds", "b": "fails", "c": "holds"}, "2 holds, 1 fails of 3 cases")],
)
def test_a_claim_about_several_cases_is_shown_by_how_many_hold(parts, told):
    assert shortened(Verdict(verdict="holds", figure="the numbers", parts=parts)) == told
