"""The site is made from what there is: commands, pages, public names; links lead where the site has something."""

from __future__ import annotations

import importlib
import inspect
import re

import click
import pytest
import typer
from mkdocs.exceptions import PluginError
from typer.main import get_command

from plures.cli.app import app
from tests.docs.playing import ROOT
from tools.site import api, commands, links, pages

API = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/api").glob("*.md"))}
PACKAGES = ["data", "evaluate", "local", "methods", "models", "participation", "parts", "recipes", "server", "wire"]

# Commands


def small_app(told: str | None = "Whom | what.") -> typer.Typer:
    made, below = typer.Typer(), typer.Typer(help="What is below.")

    @made.callback()
    def root() -> None:
        """A root."""

    @made.command()
    def greet(name: str = typer.Option("you", help=told)) -> None:
        """Say *hello*.

        plures greet --name me
        """

    @below.command()
    def deep(place: str = typer.Argument(help="Where to.")) -> None:
        """Go deep."""

    made.add_typer(below, name="below")
    return made


def test_a_new_command_is_in_the_reference_with_all_it_takes():
    text = commands.reference(get_command(small_app()), "plures")

    assert re.findall("^#+ (.*)$", text, re.MULTILINE) == [
        "plures",
        "plures greet",
        "plures below",
        "plures below deep",
    ]
    assert "| `--name TEXT` | Whom \\| what. | `you` |" in text
    assert "| `PLACE` | Where to. | needed |" in text
    assert "Say \\*hello\\*.\n\n    plures greet --name me" in text


def test_an_option_without_help_stops_the_build():
    with pytest.raises(PluginError, match="plures greet --name"):
        commands.reference(get_command(small_app(None)), "plures")


def test_commands_that_are_loaded_on_demand_are_found():
    class Lazy(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return ["late"]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return click.Command("late", help="Comes late.")

    assert "## plures late\n\nComes late." in commands.reference(Lazy("plures", help="All."), "plures")


def test_every_command_and_every_option_has_help():
    found = list(commands.walk(get_command(app), "plures"))
    assert len(found) > 10
    assert [problem for context, command in found for problem in commands.without_help(context, command)] == []


def test_the_page_of_commands_gets_them_and_other_pages_stay():
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert "### plures data list" in commands.on_page_markdown(page)
    assert commands.on_page_markdown("# Other") == "# Other"


# Pages and the nav


def test_a_pattern_takes_the_pages_that_nothing_else_names():
    nav = ["index.md", {"Methods": ["methods/*.md"]}, {"More": [{"A": "a.md"}, "*.md"]}]
    files = ["b.md", "a.md", "index.md", "methods/x.md", "methods/README.md", "methods/deep/y.md"]

    assert pages.expanded(nav, files) == [
        "index.md",
        {"Methods": ["methods/README.md", "methods/x.md"]},
        {"More": [{"A": "a.md"}, "b.md"]},
    ]


def test_the_pages_of_the_root_are_there():
    assert all((ROOT / source).is_file() for source in pages.OF_THE_ROOT.values())


# Links


@pytest.fixture
def tree(tmp_path):
    for name in ("CHANGELOG.md", "docs/a.md", "docs/deep/b.md", "src/code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("source", "uri", "text", "wanted"),
    [
        ("docs/deep/b.md", "deep/b.md", "[a](../a.md#top)", "[a](../a.md#top)"),
        ("docs/deep/b.md", "deep/b.md", "[log](../../CHANGELOG.md)", "[log](../changelog.md)"),
        ("CHANGELOG.md", "changelog.md", "[`b`](docs/deep/b.md)", "[`b`](deep/b.md)"),
        ("docs/a.md", "a.md", "[code.py](../src/code.py)", "`src/code.py`"),
        ("docs/a.md", "a.md", "[Tests](../src/code.py)", "Tests (`src/code.py`)"),
        ("docs/a.md", "a.md", "[x](https://example.org/a) [y](#here)", "[x](https://example.org/a) [y](#here)"),
        ("docs/a.md", "a.md", "[gone](../src/gone.py)", "[gone](../src/gone.py)"),
        ("docs/a.md", "a.md", "```text\n[c](../src/code.py)\n```", "```text\n[c](../src/code.py)\n```"),
    ],
)
def test_links_lead_to_what_the_site_has(tree, source, uri, text, wanted):
    known = {tree / "CHANGELOG.md": "changelog.md", tree / "docs/a.md": "a.md", tree / "docs/deep/b.md": "deep/b.md"}
    assert links.relinked(text, tree / source, uri, tree, known, None) == wanted


def test_links_to_code_lead_to_the_repository_if_it_has_an_address(tree):
    linked = links.relinked("[t](../src/code.py)", tree / "docs/a.md", "a.md", tree, {}, "https://example.org/plures/")
    assert linked == "[t](https://example.org/plures/blob/main/src/code.py)"


# The API


@pytest.mark.parametrize("package", ["plures", *(f"plures.{name}" for name in PACKAGES)])
def test_every_public_name_is_on_a_page_of_the_api(package):
    text = api.on_page_markdown(API[package.removeprefix("plures.")])
    told = set(re.findall('toc_label: "(\\w+)"', text)) | set(api.public_names("plures"))
    things = {
        name: getattr(importlib.import_module(package), name) for name in importlib.import_module(package).__all__
    }
    assert {name for name, thing in things.items() if api.is_told(thing)} <= told


def test_a_function_that_is_named_as_its_module_is_told_by_its_own_path():
    assert api.path_of("plures.methods", "fedavg") == "plures.methods.fedavg.fedavg"
    assert "(../methods/fedavg.md)" in api.entry("plures.methods", "fedavg")
    assert "(../methods/" not in api.entry("plures.methods", "find_method")
    assert api.path_of("plures.data", "PARTITIONERS") == "plures.data.PARTITIONERS"


@pytest.mark.parametrize("package", ["plures", *(f"plures.{name}" for name in PACKAGES)])
def test_every_public_function_and_class_says_what_it_is(package):
    module = importlib.import_module(package)
    things = {name: getattr(module, name) for name in module.__all__}
    own = {name: thing for name, thing in things.items() if inspect.isfunction(thing) or inspect.isclass(thing)}
    told = {name: inspect.getdoc(thing) or "" for name, thing in own.items()}
    assert [name for name, text in told.items() if len(text.split()) < 4 or text.startswith(f"{name}(")] == []


def test_every_page_of_the_api_is_listed():
    assert {f"{name}.md" for name in API} - {"index.md"} == set(re.findall(r"\]\((\w+\.md)\)", API["index"]))
