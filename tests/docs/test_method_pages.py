"""The pages of methods say what the code does: options, defaults, snippets and links are those that there are."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import plures
from plures.methods import METHODS, MethodInfo
from plures.methods.checking import words_of
from plures.recipes import make_experiment, run_experiment
from plures.recipes.plain import plain_defaults

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/methods"
OWN = {name: info for name, info in METHODS.items() if info.make.__module__.startswith("plures.methods.")}
"""Without what other tests may have registered."""
SECTIONS = ["Options", "Deviations from the paper", "Use", "Evidence"]
TEXTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted(
    ROOT.glob("docs/**/*.md")
)

methods = pytest.mark.parametrize("info", OWN.values(), ids=OWN)


def page_of(name: str) -> str:
    path = FOLDER / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def section(page: str, heading: str) -> str:
    """The text from a heading of the second level to the next."""
    return (page + "\n## ").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def table_rows(text: str) -> list[list[str]]:
    """The cells of all rows that begin with a name: neither headings nor rules."""
    lines = [line for line in text.splitlines() if line.startswith(("| `", "| [`"))]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def blocks_of_all(language: str) -> list[object]:
    """(method, block) for every block of every page; for a page without one, an empty block, which fails."""
    found = [(name, number, block) for name in OWN for number, block in enumerate(code_blocks(page_of(name), language))]
    missing = [(name, 0, "") for name in OWN if not code_blocks(page_of(name), language)]
    return [pytest.param(name, block, id=f"{name}-{number}") for name, number, block in found + missing]


# Pages and options


@methods
def test_every_method_has_a_page_of_the_usual_form(info):
    page, name = page_of(info.name), info.name
    assert page.startswith(f"# {info.title}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    for file in (
        info.file,
        f"tests/oracles/{name}.py",
        f"tests/methods/test_{name}.py",
        f"tests/golden/curves/{name}.json",
    ):
        assert f"(../../{file})" in page
    assert f"`{info.make().judged_by}/test/accuracy`" in section(page, "Use")


def test_every_page_is_that_of_a_method():
    assert {path.stem for path in FOLDER.glob("*.md")} - {"README"} == set(OWN)


def problems_of_options(page: str, info: MethodInfo) -> list[str]:
    """How the table of options differs from the signature: names and their order, defaults, words to choose from."""
    rows, hints, defaults = table_rows(section(page, "Options")), get_type_hints(info.make), plain_defaults(info.make)
    names, wanted = [row[0].strip("`") for row in rows], list(inspect.signature(info.make).parameters)
    if names != wanted:
        return [f"options are {wanted}, not {names}"]
    problems = []
    for name, (_, _, kind, default) in zip(names, rows, strict=True):
        told = None if default == "none" else tomllib.loads(f"value = {default.strip('`')}")["value"]
        if repr(told) != repr(defaults.get(name)):
            problems.append(f"the default of {name} is {defaults.get(name)!r}, not {told!r}")
        words = [word for hint in (hints[name], *get_args(hints[name])) for word in words_of(hint)]
        if words and re.findall('`"(.*?)"`', kind) != words:
            problems.append(f"the choices of {name} are {words}, not {kind}")
    return problems


@methods
def test_the_options_of_a_page_are_those_of_the_signature(info):
    assert problems_of_options(page_of(info.name), info) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| `mu` |", "| `nu` |"),
        ("| `adapt` |", "adapt"),
        ("| `lr` |", "| `mu` | twice | number | `0.01` |\n| `lr` |"),
        ("| `0.01` |", "| `0.02` |"),
        ("| `1.0` |", "| `1` |"),
        ("| none |", "| `10.0` |"),
        ("| `0.01` |", "| none |"),
        ("{epochs = 1, batch = 32}", "{epochs = 2, batch = 32}"),
        ('`"shared"`, `"personal"`, `"reset"`', '`"shared"`, `"personal"`'),
    ],
)
def test_a_page_with_a_wrong_option_is_found_out(old, new):
    page = page_of("fedprox")
    assert old in page
    assert len(problems_of_options(page.replace(old, new, 1), METHODS["fedprox"])) == 1


# Snippets


@pytest.mark.parametrize(("name", "block"), blocks_of_all("toml"))
def test_every_file_of_a_page_runs(name, block):
    """For one round, and on digits, whatever the file says."""
    table = tomllib.loads(block)
    assert table["method"] == name
    experiment = make_experiment(table | {"rounds": 1, "data": table.get("data", {}) | {"source": "digits"}})
    result = run_experiment(experiment)
    assert (result.status, result.server.round) == ("finished", 1)
    assert f"{result.headline}/test/accuracy" in section(page_of(name), "Use")


@pytest.mark.parametrize(("name", "block"), blocks_of_all("python"))
def test_every_call_of_a_page_runs(name, block, monkeypatch):
    """For one round; it is one line, and its method that of the page."""
    run, results = plures.run, []
    monkeypatch.setattr(plures, "run", lambda *args, **options: results.append(run(*args, **options | {"rounds": 1})))
    (line,) = block.splitlines()
    eval(line, {"plures": plures})
    assert [result.facts["method"] for result in results] == [name]


# Links and the table of all methods


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(file: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)


def places(file: Path) -> set[str]:
    """What a link may name of a file: its headings, and anchors that have a name of their own."""
    anchors = re.findall(r'^<a id="([\w-]+)"></a>$', file.read_text(encoding="utf-8"), re.MULTILINE)
    return {*map(slug, headings(file)), *anchors}


def broken_links(file: Path) -> list[str]:
    """Relative links, outside of code blocks, to no file or to no heading or anchor of a file."""
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^()\s]+)\)", text):
        path, _, heading = link.partition("#")
        target = file.parent / path if path else file
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (heading and heading not in places(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(file):
    assert broken_links(file) == []


def test_links_that_lead_nowhere_are_found_out(tmp_path):
    page = tmp_path / "page.md"
    links = "[`a`](page.md) [b](page.md#one-word) [c](#one-word) [d](no.md) [e](page.md#two) [f](https://x.org/no.md)"
    links += " [i](#an-anchor) [j](#another)"
    page.write_text(
        f'# One `word`\n\n<a id="an-anchor"></a>\n\n{links}\n\n```text\n[g](neither.md)\n```\n[h](../gone/x.py)\n'
    )
    assert broken_links(page) == ["no.md", "page.md#two", "#another", "../gone/x.py"]


def test_the_table_of_all_methods_is_that_of_the_registry():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    wanted = [[f"[`{i.name}`]({i.name}.md)", i.paper, i.shared, i.personal, i.sent] for i in OWN.values()]
    assert sorted(table_rows(text)) == sorted(wanted)
