"""Pages in Chromium without a window: all is drawn, nothing is fetched, and hovering shows the client."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from plures.recipes import make_experiment, run_experiment
from plures.report.page.building import page_html
from tests.report.page.pages import gathered, rename

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not looked at in a browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium: pages are not looked at in a browser")

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
HOSTILE = '<script>window.broken = 1</script><img src=x onerror="window.broken = 1">'
SMALL = {
    "rounds": 2,
    "data": {"source": "digits", "clients": 4, "classes_per_client": 3},
    "model": {"hidden": [8]},
    "evaluation": {"every": 1, "splits": ["train", "validation", "test"]},
}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    """A page with every kind of chart: masks, gates, a sweep, two seeds; one client has a hostile name."""
    folder = tmp_path_factory.mktemp("browser")
    for method, seeds, options in (
        ("fedavg", (0, 1), {}),
        ("ditto", (0, 1), {"lam": 0.1}),
        ("ditto", (0,), {"lam": 1.0}),
        ("fedspa", (0,), {}),
        ("pfedgate", (0,), {}),
    ):
        for seed in seeds:
            out = folder / "-".join([method, *(str(value) for value in options.values()), str(seed)])
            table = {"method": method, "seed": seed, "method_options": options, **SMALL}
            run_experiment(make_experiment(table), out=out)
            rename(out, "0", HOSTILE)
    path = folder / "report.html"
    path.write_text(page_html(gathered(*sorted(folder.glob("*-*")))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=list(QUIET))
        yield opened
        opened.close()


class Seen:
    """A page that is open, and what it complained about or asked for."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1280, scheme: str = "light") -> None:
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.on("console", lambda said: self.troubles.append(said.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.evaluate("plures.drawAll()")


@pytest.fixture(scope="module")
def seen(browser, page_file) -> Seen:
    return Seen(browser, page_file)


def keys(seen: Seen) -> list[str]:
    found: list[str] = seen.page.evaluate("[...document.querySelectorAll('[data-figure]')].map(e => e.dataset.figure)")
    return found


def test_every_chart_is_drawn(seen):
    """Each has marks: points, lines, bars, boxes, or an image of a heat map."""
    marks = seen.page.evaluate(
        """[...document.querySelectorAll('[data-figure]')].map(e => [e.dataset.figure, e.querySelectorAll(
            '.scatterlayer .point, .scatterlayer .js-line, .barlayer path, .violinlayer path, .heatmaplayer image'
        ).length])"""
    )
    kinds = {key.split("-")[0] for key, _ in marks}
    assert kinds == {
        *("curve", "final", "ranks", "delta", "violin", "sweep", "examples", "labels", "cost", "mask", "gate"),
    }
    assert [key for key, count in marks if not count] == []


def test_nothing_is_complained_about_and_nothing_leaves_the_page(seen, page_file):
    assert seen.troubles == []
    assert [url for url in seen.requests if not url.startswith(("data:", "blob:"))] == [page_file.as_uri()]


def test_a_hostile_name_is_shown_as_it_is_and_does_nothing(seen):
    assert seen.page.evaluate("window.broken") is None
    assert seen.page.locator("td, th", has_text=HOSTILE[:20]).count() > 0
    assert seen.page.locator("main img").count() == 0


def test_hovering_shows_the_client(seen):
    panel = next(key for key in keys(seen) if key.startswith("delta-test"))
    chart = seen.page.locator(f'[data-figure="{panel}"]')
    chart.scroll_into_view_if_needed()
    point = chart.locator(".scatterlayer .point").last
    name = point.evaluate("e => e.__data__.tx")
    box = point.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    label = chart.locator(".hoverlayer .hovertext")
    label.first.wait_for(timeout=3000)
    assert f"client {unescape(name)}" in label.first.text_content()


def test_labels_are_hidden_and_shown_by_keyboard(seen):
    chip = seen.page.locator("button[data-label]").first
    chip.focus()
    seen.page.keyboard.press("Space")
    states = seen.page.locator("button[data-label]").evaluate_all("all => all.map(e => e.ariaPressed)")
    number = len(set(seen.page.locator("button[data-label]").evaluate_all("all => all.map(e => e.dataset.label)")))
    assert states[:number] == ["false", *["true"] * (number - 1)]
    assert states.count("false") * number == len(states)
    seen.page.keyboard.press("Space")
    assert chip.get_attribute("aria-pressed") == "true"


def ground(seen: Seen) -> str:
    found: str = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def first_line(seen: Seen) -> str:
    """The colour of a line in the first chart."""
    found: str = seen.page.evaluate("document.querySelector('[data-figure]').data.at(-1).line.color")
    return found


def test_the_toggle_changes_page_and_charts(seen):
    seen.page.evaluate("window.scrollTo(0, 0)")
    before = (ground(seen), first_line(seen))
    toggle = seen.page.get_by_role("button", name="Dark colours")
    toggle.click()
    seen.page.wait_for_function(f"document.querySelector('[data-figure]').data.at(-1).line.color != '{before[1]}'")
    assert toggle.get_attribute("aria-pressed") == "true"
    assert ground(seen) == "rgb(16, 20, 26)"
    toggle.click()
    seen.page.wait_for_function(f"document.querySelector('[data-figure]').data.at(-1).line.color == '{before[1]}'")
    assert ground(seen) == before[0]


def test_on_a_dark_phone_the_page_is_dark_and_nothing_sticks_out(browser, page_file):
    phone = Seen(browser, page_file, width=390, scheme="dark")
    assert ground(phone) == "rgb(16, 20, 26)"
    assert phone.page.locator("#theme").get_attribute("aria-pressed") == "true"
    phone.page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    assert phone.troubles == []
    phone.page.close()


def test_the_first_stop_of_the_keyboard_skips_to_the_content(seen):
    seen.page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen.page.keyboard.press("Tab")
    focused = seen.page.evaluate("document.activeElement.textContent")
    if focused != "Skip to the content":  # the browser may go on from where the focus was
        seen.page.reload()
        seen.page.keyboard.press("Tab")
        focused = seen.page.evaluate("document.activeElement.textContent")
    assert focused == "Skip to the content"
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("document.activeElement.id") == "main"
