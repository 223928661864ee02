"""A page is one file that fetches nothing, runs no foreign script, and reads well without charts."""

from __future__ import annotations

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from plures.report.page.building import own_file, page_html, policy
from plures.report.page.few import evenly, plain, spread
from plures.report.page.palette import LABEL_COLOURS, dark_colours, style_of
from tests.report.page.pages import gathered, member, rename
from tests.report.run_folders import write_federation, write_run, write_study

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two labels, one of a hostile name, and a client of a hostile name."""
    folder = tmp_path_factory.mktemp("study")
    for method, gain in (("fedavg", 0.0), ("ditto", 0.25)):
        values = {"personal/test": [0.5 + gain, 0.5], "personal/train": [0.5, 0.5 + gain]}
        run = write_run(folder / method, values, method=method)
        write_federation(run, [member(0, 5, {"1": 5}), member(1, 7, {"0": 7})])
        rename(run, "c0", HOSTILE)
    study = write_study(folder, [("fedavg", 0, "fedavg"), (f"ditto {HOSTILE}", 0, "ditto")])
    return page_html(gathered(study))


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_names_from_records_are_text_and_never_tags(page):
    assert page.count("</script>") == 4
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in without_scripts(page)


def test_nothing_is_fetched(page):
    left = without_scripts(page)
    assert not re.findall(r'(?:src|href)="(?!#|data:,)[^"]*"', left)
    assert "@import" not in left
    assert "url(" not in left


def test_the_policy_allows_the_scripts_of_the_page_alone(page):
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    told = re.search(r'Security-Policy" content="([^"]*)"', page)

    assert len(scripts) == 2
    assert told is not None
    for script in scripts:
        print_of = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        assert f"sha256-{print_of}" in told[1]
    assert policy(["a"]).startswith("default-src 'none'; script-src 'sha256-")


def test_headings_go_down_one_step_at_a_time(page):
    levels = [int(level) for level in re.findall(r"<h([1-6])", without_scripts(page))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_chart_is_a_figure_with_a_caption_and_its_numbers(page):
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)
    assert len(figures) > 10
    for figure in figures:
        assert "<figcaption>" in figure
        assert 'role="img" aria-label="' in figure
        assert "<details><summary>Numbers</summary>" in figure


def test_the_table_tells_the_same_as_compare(page):
    """Half of the clients gain 25 points: 12.5 on average."""
    table = page[page.index("All labels side by side") : page.index('<h2 id="curves"')]
    (row,) = [row for row in re.findall(r"<tr>.*?</tr>", table, flags=re.DOTALL) if "> ditto" in row]
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells[1] == "62.5"
    assert cells[5] == "+12.5"
    assert cells[7] == "1 / 0"


def test_the_same_records_make_the_same_page(tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, 1.0]})
    assert page_html(gathered(run)) == page_html(gathered(run))


def test_configuration_and_fingerprints_are_told(page):
    assert "method = &quot;ditto&quot;" in page
    assert "<code>ditto0</code>" in page


def test_labels_look_different_as_long_as_can_be():
    looks = [(style.colour, style.dash, style.sign) for style in map(style_of, range(26))]
    assert len(set(looks)) == 26


def brightness(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_of_labels_stand_out_on_both_grounds():
    """WCAG asks for 3 of what is drawn."""
    for light, dark in LABEL_COLOURS:
        assert contrast(light, "#ffffff") >= 3
        assert contrast(dark, "#171d25") >= 3
    assert dark_colours()[LABEL_COLOURS[0][0]] == LABEL_COLOURS[0][1]


@pytest.mark.parametrize(
    ("ink", "ground"),
    [("#1b2430", "#f6f8fa"), ("#52606f", "#f6f8fa"), ("#52606f", "#eef2f6"), ("#0b5fa8", "#ffffff"),
     ("#e6ebf1", "#10141a"), ("#a7b3c0", "#171d25"), ("#a7b3c0", "#1f2731"), ("#7cc0f7", "#171d25")],
)  # fmt: skip
def test_text_can_be_read(ink, ground):
    """WCAG AA asks for 4.5; the colours are those of page.css."""
    assert ink in own_file("page.css")
    assert ground in own_file("page.css")
    assert contrast(ink, ground) >= 4.5


def test_names_are_shortened_and_escaped():
    assert plain("<b>&") == "&lt;b&gt;&amp;"
    assert len(plain("x" * 100)) == 48


def test_of_many_the_ends_and_the_quantiles_stay():
    values = np.random.default_rng(0).normal(size=10_000)
    kept = values[spread(values, 100)]
    assert (kept.min(), kept.max()) == (values.min(), values.max())
    assert np.median(kept) == pytest.approx(np.median(values), abs=0.05)
    assert evenly(3, 10).tolist() == [0, 1, 2]


def test_the_page_of_the_documentation_names_every_section(page):
    titles = re.findall(r'<h2 id="[a-z]+">(.*?)</h2>', page)
    text = (Path(__file__).parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([A-Z][\w ,]*) \|", text, re.MULTILINE)
    assert [title.removesuffix(" and fingerprints") for title in titles] == listed
