"""The command reference: written from the commands themselves whenever the site is built."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click
from mkdocs.exceptions import PluginError
from typer.main import get_command

PLACE = "<!-- commands -->"
"""Where the reference goes in a page."""
BY_ITSELF = ("--help", "--install-completion", "--show-completion")
"""Options that every command line has; the page says so once."""

Found = tuple[click.Context, click.Command]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """An event of MkDocs: the page on commands gets them in."""
    if PLACE not in markdown:
        return markdown
    from plures.cli.app import app  # only here: torch comes with it

    return markdown.replace(PLACE, reference(get_command(app)))


def reference(root: click.Command, name: str = "plures") -> str:
    """Every command with its help, its arguments and its options, in Markdown."""
    found = list(walk(root, name))
    if missing := [problem for context, command in found for problem in without_help(context, command)]:
        raise PluginError(f"Without help: {', '.join(missing)}. Give each of them a sentence.")
    return "\n\n".join(section(context, command) for context, command in found)


def walk(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[Found]:
    """A command and all that are below it, as click lists them; groups may load theirs on demand."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context, command
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from walk(found, below, context)


def without_help(context: click.Context, command: click.Command) -> list[str]:
    """What has no sentence that says what it is for."""
    path = context.command_path
    missing = [] if command.help else [path]
    return missing + [f"{path} {shown(param)}" for param in shown_params(command) if not help_of(param)]


def section(context: click.Context, command: click.Command) -> str:
    """One command: what it is for, how it is called, what it takes."""
    level = "##" if context.parent is None or isinstance(command, click.Group) else "###"
    pieces = [f"{level} {context.command_path}", told(command.help or ""), usage(context, command)]
    rows = [row(param, context) for param in shown_params(command)]
    if rows:
        pieces.append("\n".join(["| | what it is for | default |", "|---|---|---|", *rows]))
    return "\n\n".join(pieces)


def usage(context: click.Context, command: click.Command) -> str:
    return f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"


def told(text: str) -> str:
    """A help text as Markdown: an example of a call in it is code."""
    paragraphs = [paragraph.strip() for paragraph in inspect.cleandoc(text).split("\n\n")]
    return "\n\n".join(
        f"    {paragraph}" if re.match(r"plures [\w-]+ ", paragraph) else escaped(paragraph) for paragraph in paragraphs
    )


def row(param: click.Parameter, context: click.Context) -> str:
    names = " ".join(f"`{name}`" for name in names_of(param, context))
    return f"| {names} | {escaped(help_of(param))} | {default(param, context)} |"


def names_of(param: click.Parameter, context: click.Context) -> list[str]:
    """As it is typed: an argument by its word, an option with its names and what follows them."""
    word = param.make_metavar(context).removesuffix(" RANGE")
    if isinstance(param, click.Argument):
        return [word]
    takes_value = isinstance(param, click.Option) and not param.is_flag
    names = [*param.opts, *param.secondary_opts]
    return [*names[:-1], f"{names[-1]} {word}" if takes_value else names[-1]]


def default(param: click.Parameter, context: click.Context) -> str:
    """What is taken if nothing is given; a flag that is off and an empty list say nothing."""
    if param.required:
        return "needed"
    value = param.get_default(context)
    return "" if value is None or value is False or value == () or value == [] else f"`{value}`"


def shown_params(command: click.Command) -> list[click.Parameter]:
    return [
        param
        for param in command.params
        if not getattr(param, "hidden", False) and not set(BY_ITSELF) & set(param.opts)
    ]


def shown(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else (param.name or "").upper()


def help_of(param: click.Parameter) -> str:
    return str(getattr(param, "help", None) or "").strip()


def escaped(text: str) -> str:
    """Signs that Markdown would take for its own, outside of code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_|<\[\]])", r"\\\1", piece) for piece in pieces
    ).replace("\n", " ")
