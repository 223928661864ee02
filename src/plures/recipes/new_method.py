"""Writes the files of a new method from templates that pass the tests as they are."""

from __future__ import annotations

import importlib.util
import keyword
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from plures.core.errors import InvalidConfig, RunFolderError
from plures.methods import METHODS, MethodInfo

IN_CHECKOUT = {
    "src/plures/methods/{name}.py": "method.py.txt",
    "tests/conformance/rows/{name}.py": "row.py.txt",
    "tests/oracles/{name}.py": "oracle.py.txt",
    "tests/methods/test_{name}.py": "test.py.txt",
    "docs/methods/{name}.md": "page.md.txt",
}
IN_OWN_PROJECT = {"{name}.py": "method.py.txt", "test_{name}.py": "own_test.py.txt"}
METHODS_PACKAGE = Path("src/plures/methods/__init__.py")
README = Path("README.md")
PAGES = Path("docs/methods/README.md")
ROW = (
    "| [`$name`]({page}) | Authors year | all but the personal part | any part (default: head) | "
    "change of the shared part |"
)


def is_checkout(folder: Path) -> bool:
    return (folder / METHODS_PACKAGE).is_file() and (folder / "tests/conformance/rows").is_dir()


def write_method(name: str, folder: Path, *, title: str | None = None) -> list[Path]:
    """Write all files or none; returns their paths, relative to the folder."""
    plan = IN_CHECKOUT if is_checkout(folder) else IN_OWN_PROJECT
    check_name(name, own=plan is IN_OWN_PROJECT)
    check_title(title or name)
    words = {"name": name, "title": title or name}
    texts = {Path(path.format(name=name)): filled(template, words) for path, template in plan.items()}
    taken = [str(path) for path in texts if (folder / path).exists()]
    if taken:
        raise RunFolderError(f"{', '.join(taken)}: there already. Choose another name, or remove what is there.")
    if plan is IN_CHECKOUT:
        texts |= {path: change((folder / path).read_text(encoding="utf-8"), words) for path, change in CHANGED.items()}
    for path, text in texts.items():
        try:
            (folder / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"Cannot write {folder / path}: {error.strerror}.") from error
    return list(texts)


def check_title(title: str) -> None:
    """It goes into Python, Markdown tables and terminals as it is."""
    if not re.fullmatch(r"[\w .,+()/-]+", title):
        raise InvalidConfig(f"The title {title!r} cannot be used: letters, digits, spaces and . , + ( ) / - will do.")


def check_name(name: str, *, own: bool = False) -> None:
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise InvalidConfig(f"'{name}' cannot be a method's name: use small letters, digits and _, as in my_method.")
    if own and importlib.util.find_spec(name) is not None:
        raise InvalidConfig(f"'{name}' is a module of Python's already, which a file of that name would hide.")
    if name in METHODS:
        raise InvalidConfig(f"There is a method '{name}' already, in {METHODS[name].file}.")


def filled(template: str, words: Mapping[str, str]) -> str:
    text = files("plures.recipes").joinpath("templates", template).read_text(encoding="utf-8")
    return Template(text).substitute(words)


def with_export(package: str, words: Mapping[str, str]) -> str:
    """The package's text with the method imported and exported, each in its alphabetical place."""
    lines, name = package.splitlines(keepends=True), words["name"]
    lines = inserted(lines, f"from plures.methods.{name} import {name}\n", "from plures.methods.")
    return "".join(inserted(lines, f'    "{name}",\n', '    "'))


def with_row(readme: str, words: Mapping[str, str]) -> str:
    """The README with the template's row in its table of methods."""
    return with_line(
        readme, words, ROW.format(page="docs/methods/$name.md") + " [$name.py](src/plures/methods/$name.py) |"
    )


def with_index_row(index: str, words: Mapping[str, str]) -> str:
    """The index of all pages with the template's row in its table."""
    return with_line(index, words, ROW.format(page="$name.md"))


def with_line(text: str, words: Mapping[str, str], row: str) -> str:
    return "".join(inserted(text.splitlines(keepends=True), Template(row + "\n").substitute(words), "| [`"))


CHANGED = {METHODS_PACKAGE: with_export, README: with_row, PAGES: with_index_row}


def inserted(lines: list[str], line: str, like: str) -> list[str]:
    """A line before the first of its kind that sorts after it, or after the last."""
    kind = [number for number, other in enumerate(lines) if other.startswith(like)]
    place = next((number for number in kind if lines[number] > line), kind[-1] + 1)
    return [*lines[:place], line, *lines[place:]]


def write_tables(folder: Path) -> list[Path]:
    """Write the two tables of methods anew, from the registry; returns the files that changed."""
    if not is_checkout(folder):
        raise InvalidConfig("The tables of methods are in a checkout of Plures: call this from there.")
    index = [row.rsplit(" | [", 1)[0].replace("docs/methods/", "") + " |" for row in methods_table().splitlines()[2:]]
    rows = {README: methods_table().splitlines()[2:], PAGES: index}
    changed = []
    for path, lines in rows.items():
        before = (folder / path).read_text(encoding="utf-8")
        after = with_rows(before, lines)
        if after != before:
            (folder / path).write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def with_rows(text: str, rows: list[str]) -> str:
    """A text whose rows of methods are replaced by these."""
    lines = text.splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith("| [`")]
    return "\n".join([*lines[: places[0]], *rows, *lines[places[-1] + 1 :]]) + "\n"


def methods_table(methods: Mapping[str, MethodInfo] = METHODS) -> str:
    """The table of methods in Markdown, as it stands in the README."""
    rows = ["| method | paper | shared | personal | sent | file |", "|---|---|---|---|---|---|"]
    for info in methods.values():
        page, code = f"[`{info.name}`](docs/methods/{info.name}.md)", f"[{info.name}.py]({info.file})"
        rows.append(f"| {page} | {info.paper} | {info.shared} | {info.personal} | {info.sent} | {code} |")
    return "\n".join(rows)
