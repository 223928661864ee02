"""The commands below `plures data`: list, info, get, show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from plures.cli import completing
from plures.cli.data_show import show
from plures.cli.options import AsJson
from plures.report.json_text import as_json_text
from plures.report.tables import readable_bytes

if TYPE_CHECKING:
    from plures.data import DataSet

data_app = typer.Typer(
    name="data", help="Data sets: what there is, what is in one, and how to get it.", no_args_is_help=True
)

data_app.command()(show)

out_console = Console()

Options = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the data set. Repeatable.")
]


@data_app.command("list")
def list_sources(as_json: AsJson = False) -> None:
    """List every data set, and whether its files are in a folder of PLURES_DATA."""
    from plures.data import SOURCES
    from plures.data.sources.finding import at_hand

    if as_json:
        rows = [
            {
                "name": entry.name,
                "at_hand": at_hand(entry),
                "about": entry.about,
                "files": entry.files,
                "hub": entry.hub,
            }
            for entry in SOURCES.values()
        ]
        typer.echo(as_json_text(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("at hand", no_wrap=True)
    table.add_column("what it is")
    for entry in SOURCES.values():
        table.add_row(entry.name, at_hand(entry), entry.about)
    out_console.print(table, highlight=False)


@data_app.command()
def info(
    name: Annotated[str, typer.Argument(help="A data set of `plures data list`.", autocompletion=completing.sources)],
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Load a data set and tell its size, classes, natural clients, memory and fingerprint."""
    facts = facts_of(load_source(name, options or []))
    if as_json:
        typer.echo(as_json_text(facts, indent=2))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for key, value in readable(facts).items():
        table.add_row(key, value)
    out_console.print(table, highlight=False)


@data_app.command()
def get(
    name: Annotated[
        str, typer.Argument(help="A data set that is on the Hugging Face hub.", autocompletion=completing.sources)
    ],
    into: Annotated[Path | None, typer.Option(help="Folder; by default the first of PLURES_DATA.")] = None,
) -> None:
    """Fetch a data set from the Hugging Face hub and write it as the loader reads it."""
    from plures.data.sources.fetching import fetch

    path = fetch(name, into)
    out_console.print(f"{path}\nTry next: plures data info {name}", highlight=False, soft_wrap=True)
    if into is not None:
        out_console.print(f"with {into} in PLURES_DATA", highlight=False, soft_wrap=True)


def load_source(name: str, options: list[str]) -> DataSet:
    """A data set by name, with options such as "form=letters"."""
    from plures.data import find_source
    from plures.recipes.options import called
    from plures.recipes.overrides import apply_override

    given: dict[str, Any] = {}
    for option in options:
        apply_override(given, option)
    loaded: DataSet = called(f"data set '{name}'", find_source(name).load, given)
    return loaded


def facts_of(dataset: DataSet) -> dict[str, Any]:
    """What can be said of a data set without dealing it."""
    import numpy as np

    from plures.core.types import sum_bytes
    from plures.data.fingerprints import digest_of_examples

    batches = [dataset.examples] if dataset.test is None else [dataset.examples, dataset.test]
    return {
        "name": dataset.name,
        "goal": dataset.goal.name,
        "examples": dataset.examples.num_examples,
        "test_examples": None if dataset.test is None else dataset.test.num_examples,
        "shape": list(dataset.examples.inputs.shape[1:]),
        "type": str(dataset.examples.inputs.dtype).removeprefix("torch."),
        "classes": None if dataset.goal.name == "regression" else dataset.num_classes,
        "groups": None if dataset.groups is None else len(np.unique(dataset.groups)),
        "clients": client_sizes(dataset),
        "bytes": sum(map(sum_bytes, batches)),
        "fingerprint": digest_of_examples(batches),
    }


def client_sizes(dataset: DataSet) -> dict[str, Any] | None:
    """Natural clients that have training examples, and the quartiles of how many they have."""
    import numpy as np

    if dataset.owners is None:
        return None
    sizes = np.bincount(dataset.owners)
    quartiles = np.percentile(sizes[sizes > 0], [0, 25, 50, 75, 100])
    names = ("least", "lower_quartile", "median", "upper_quartile", "most")
    return {"count": int((sizes > 0).sum()), **dict(zip(names, quartiles.tolist(), strict=True))}


def readable(facts: dict[str, Any]) -> dict[str, str]:
    """The facts in words, without those that a set has none of."""
    tested = facts["test_examples"]
    clients = facts["clients"]
    lines = {
        "name": facts["name"],
        "goal": facts["goal"],
        "examples": f"{facts['examples']:,}" + ("" if tested is None else f" and {tested:,} to test"),
        "shape": "x".join(map(str, facts["shape"])) + f" {facts['type']}",
        "classes": None if facts["classes"] is None else f"{facts['classes']:,}",
        "groups": None if facts["groups"] is None else f"{facts['groups']:,}",
        "clients": "no natural ones" if clients is None else f"{clients['count']:,} natural ones",
        "per client": None if clients is None else in_words(clients),
        "memory": f"{readable_bytes(facts['bytes'])} ({facts['bytes']:,} bytes)",
        "fingerprint": facts["fingerprint"],
    }
    return {key: value for key, value in lines.items() if value is not None}


def in_words(clients: dict[str, Any]) -> str:
    middle = ", ".join(f"{clients[key]:,.0f}" for key in ("lower_quartile", "median", "upper_quartile"))
    return f"{clients['least']:,.0f} to {clients['most']:,.0f} examples (quartiles {middle})"
