"""The page about models out of a run: its snippet runs, and its table is what was measured."""

from __future__ import annotations

import re
from pathlib import Path

from plures.methods import METHODS
from tests.docs.test_pages import blocks
from tests.recipes.test_exporting import REFUSED

PAGE = Path(__file__).parents[2] / "docs/exporting.md"


def test_the_snippet_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (shown,) = blocks("docs/exporting.md", "python")
    exec(compile(shown, "exporting.md", "exec"), {})
    assert "'9'" in capsys.readouterr().out
    assert (tmp_path / "mine.safetensors").is_file()


def test_the_table_has_every_method_and_what_is_refused():
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^\| `(\w+)` \| (yes|no) \| (yes|no) \| (yes|no) \|$", text, re.MULTILINE)
    assert [method for method, *_ in found] == list(METHODS)
    formats = ("safetensors", "torch", "onnx")
    words = {(method, format): word for method, *row in found for format, word in zip(formats, row, strict=True)}
    assert {place for place, word in words.items() if word == "no"} == REFUSED
