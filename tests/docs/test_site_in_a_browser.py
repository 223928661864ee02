"""The built site in a browser: nothing is fetched from elsewhere, nothing fails, the search finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.playing import ROOT

CHROMIUM = shutil.which("chromium")
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --no-first-run"
PAGES = [
    "",
    "tour/",
    "methods/pflego/",
    "commands/",
    "api/plures/",
    "architecture/",
    "results/",
    "reproductions/pflego/",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
]


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, built anew; a broken link fails here."""
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_ask_nobody_else_and_do_not_overflow(address, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    for name in PAGES:
        assert page.goto(address + name, wait_until="networkidle").ok
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
    page.close()
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    assert errors == []


def test_the_search_finds_a_method_by_its_name(address, browser):
    page = browser.new_page()
    page.goto(address, wait_until="networkidle")
    page.click(".md-search__input")
    page.keyboard.type("PFLEGO")
    page.wait_for_selector(".md-search-result__item a")
    found = page.eval_on_selector_all(".md-search-result__item a", "links => links.map(link => link.href)")
    page.close()
    assert any("/methods/pflego/" in link for link in found)


def test_a_claim_leads_to_its_item_and_smaller_scales_open_below_it(address, browser):
    page = browser.new_page()
    page.goto(address + "results/", wait_until="networkidle")
    page.click("a[href$='reproductions/pflego/#figure-4']")
    page.wait_for_load_state("networkidle")
    larger, smaller = (page.locator(f"img[src='figures/figure-4-{scale}-loss.svg']") for scale in ("small", "micro"))

    assert page.url.endswith("/reproductions/pflego/#figure-4")
    assert larger.evaluate("image => image.naturalWidth") > 0
    assert not smaller.is_visible()
    page.click("summary:text-is('figure-4, micro')")
    assert smaller.is_visible()
    page.close()
