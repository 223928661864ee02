"""The commands for a deployment whose run has finished: metrics, the shared part, and each node's model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from plures.cli.deploy_options import ADDRESS, Address, Ca, Insecure, Key, Keys, check_safety, say
from plures.cli.options import AsJson, ExperimentFile
from plures.report.json_text import as_json_text
from plures.report.metric_tables import metrics_table

if TYPE_CHECKING:
    from plures.deploy.afterwards import Finished

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="The server's folder, as given to `plures deploy server`.")]
External = Annotated[bool, typer.Option("--external", help="The SuperLink is running already; start none.")]


def evaluate(
    experiment: ExperimentFile,
    out: Out,
    superlink: Address = ADDRESS,
    keys: Keys = None,
    insecure: Insecure = False,
    external: External = False,
    split: Annotated[list[str] | None, typer.Option(help="train, validation or test. Repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="global, personal, post_local or finetuned.")] = None,
    wait: Annotated[float | None, typer.Option(help="Seconds to wait for nodes; by default as the file says.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask every node how its models do on its own examples.

    Nodes tell metrics, and nothing else. Nothing is trained or kept.
    """
    from plures.recipes.looking import all_summaries

    with finished(experiment, out, superlink, keys, insecure, external) as deployment:
        found = deployment.evaluate(split or ["test"], model, wait=wait)  # type: ignore[arg-type]
    metrics = all_summaries(found)
    heard = {score.client for one in found for score in one.scores}
    if as_json:
        told = {name: summary.__dict__ for name, summary in metrics.items()}
        typer.echo(as_json_text({"clients": len(heard), "metrics": told}))
        return
    Console().print(metrics_table({name: summary.__dict__ for name, summary in metrics.items()}))
    say(f"{len(heard)} of {len(deployment.roster.seats)} nodes have answered")


def give(
    experiment: ExperimentFile,
    out: Out,
    superlink: Address = ADDRESS,
    keys: Keys = None,
    insecure: Insecure = False,
    external: External = False,
    seconds: Annotated[float, typer.Option("--for", help="How long to wait for newcomers.")] = 600.0,
) -> None:
    """Give the shared part of a finished run to newcomers that ask for it.

    A newcomer asks by `plures deploy fetch`. While a run goes on, its server
    does the same before each round.
    """
    with finished(experiment, out, superlink, keys, insecure, external) as deployment:
        say(f"Waiting {seconds:g} s for newcomers")
        given = deployment.give(seconds)
    say(f"{given} newcomers have it")


def fetch(
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A safetensors file for the shared part.")],
    superlink: Address = ADDRESS,
    name: Annotated[str, typer.Option(help="For the server's log.")] = "newcomer",
    ca: Ca = None,
    key: Key = None,
    insecure: Insecure = False,
) -> None:
    """Get the shared part as a newcomer that has no part in the run.

    The file is for [model] weights of an experiment of your own.
    """
    check_safety(ca, insecure)
    from plures.deploy.flower.afterwards import run_newcomer
    from plures.deploy.flower.links import Link
    from plures.recipes import load_experiment

    run_newcomer(load_experiment(experiment), out, name, Link(address=superlink, ca=ca), key, tell=say)


def export(
    experiment: ExperimentFile,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="This node's examples.")],
    state: Annotated[Path, typer.Option(metavar="FOLDER", help="What this node keeps.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A file for the model.")],
    name: Annotated[str | None, typer.Option(help="As [deploy] clients has it. By default that of --data.")] = None,
    run: Annotated[str | None, typer.Option(help="Which run, where the state folder has several.")] = None,
    format: Annotated[str | None, typer.Option(help="safetensors, torch or onnx; default: by the name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the model that this node ended with to a file.

    It is checked on the node's own test examples, and never leaves it.
    """
    from plures.deploy.exporting import export_node
    from plures.recipes import load_experiment

    done = export_node(
        load_experiment(experiment),
        data,
        state,
        name or data.resolve().name,
        out,
        run=run,
        format=format,
        overwrite=force,
    )
    if as_json:
        typer.echo(as_json_text(done.as_json()))
        return
    value = "" if done.value is None else f"; {done.metric} {done.value:.4f} on {done.examples} test examples"
    say(f"{done.path}: the {done.model} model of {done.name}{value}")


@contextmanager
def finished(
    experiment: Path, out: Path, superlink: str, keys: Path | None, insecure: bool, external: bool
) -> Iterator[Finished]:
    """A finished deployment, connected to its nodes."""
    check_safety(keys, insecure)
    from plures.deploy.flower.afterwards import connected
    from plures.recipes import load_experiment

    with connected(
        load_experiment(experiment), out, superlink, keys, own_superlink=not external, tell=say
    ) as deployment:
        yield deployment


def add_to(app: typer.Typer) -> None:
    """Beside the commands that run a deployment."""
    for command in (evaluate, give, fetch, export):
        app.command(command.__name__)(command)
