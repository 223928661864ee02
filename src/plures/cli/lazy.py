"""Commands that are imported when they are asked for: torch takes seconds, and help and completion need none of it."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperGroup
from typer.main import get_command, get_group


class Lazy(NamedTuple):
    """Where a command is, and the first line of its help."""

    where: str
    """MODULE:NAME below plures.cli: a function, or a typer.Typer with one command or several below it."""
    summary: str

    def load(self, name: str) -> click.Command:
        module, _, attribute = self.where.partition(":")
        found = getattr(import_module(f"plures.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            one: click.Command = get_command(found) if len(found.registered_commands) == 1 else get_group(found)
            one.name = name
            return one
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        return get_command(alone)

    def listed(self, name: str) -> click.Command:
        """What stands in for it in a list of commands."""
        return click.Command(name, help=self.summary)


class Loaded(UserDict[str, click.Command]):
    """Commands by name; one that is looked up is imported."""

    def __init__(self, table: Mapping[str, Lazy]) -> None:
        super().__init__({name: lazy.listed(name) for name, lazy in table.items()})
        self.not_yet = dict(table)

    def __getitem__(self, name: str) -> click.Command:
        if name in self.not_yet:
            self.data[name] = self.not_yet.pop(name).load(name)
        return self.data[name]


class LazyGroup(TyperGroup):
    """A group whose commands are in a table; lists of them are made from the table alone."""

    table: ClassVar[Mapping[str, Lazy]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Loaded(self.table)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._listed().format_help(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return self._listed().shell_complete(ctx, incomplete)

    def _listed(self) -> TyperGroup:
        return TyperGroup(
            name=self.name,
            commands={name: lazy.listed(name) for name, lazy in self.table.items()},
            params=self.params,
            help=self.help,
            epilog=self.epilog,
            rich_markup_mode=self.rich_markup_mode,
        )
