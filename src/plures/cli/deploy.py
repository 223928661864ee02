"""The commands that run a method between real machines."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plures.cli.deploy_after import add_to
from plures.cli.deploy_options import (
    ADDRESS,
    Address,
    Ca,
    Insecure,
    Key,
    Keys,
    Printed,
    check_flower,
    check_safety,
    say,
)
from plures.cli.options import AsJson, Changes, ExperimentFile

deploy_app = typer.Typer(no_args_is_help=True, help="Run a method between a server and nodes that keep their data.")


@deploy_app.command("split")
def split(
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder.")],
    changes: Changes = None,
) -> None:
    """Write each client's examples into a folder of its own, to try a deployment.

    Beside the folders stands experiment.toml with its table [deploy], which
    server and nodes read.
    """
    from plures.deploy.splitting import EXPERIMENT, split_to_folders
    from plures.recipes import load_experiment

    _, folders = split_to_folders(load_experiment(experiment, changes or []), out)
    say(f"{out / EXPERIMENT}: the experiment with its table [deploy]")
    for folder in folders:
        say(f"{folder}: examples of one node")


@deploy_app.command("keys")
def keys(
    folder: Annotated[Path, typer.Argument(help="The server's folder for keys; only public parts leave it, and keys.")],
    host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Under which nodes reach the server. Repeatable.")
    ] = None,
    node: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A key for this node. Repeatable.")] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the certificates last.")] = 365,
) -> None:
    """Make the certificates of a server and the keys of its nodes.

    plures deploy keys KEYS --host fl.example.org --node north --node south

    Give each node ca.crt and its own key, nodes/NAME; nobody else may have
    that. More nodes later: the same without --host.
    """
    check_flower()
    from plures.deploy.flower.keys import make_keys

    for path in make_keys(folder, host or [], node or [], days):
        say(f"{path}")


@deploy_app.command("server")
def server(
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="For the run, the roster and the SuperLink's database.")],
    superlink: Address = ADDRESS,
    keys: Keys = None,
    insecure: Insecure = False,
    external: Annotated[bool, typer.Option("--external", help="The SuperLink is running already; start none.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the deployment in --out.")] = False,
    changes: Changes = None,
    printed: Printed = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment on nodes: start a SuperLink, wait for the nodes, train.

    The run is in OUT/run, a folder like that of every other run. Killed or
    interrupted, it goes on by --resume.
    """
    check_safety(keys, insecure)
    from plures.cli.progress import make_watcher
    from plures.cli.run import INTERRUPTED, show_result
    from plures.deploy.flower.running import LINK_FOLDER, run_server, server_link
    from plures.deploy.flower.superlink import DATABASE, superlink_command
    from plures.deploy.serving import has_finished
    from plures.recipes import load_experiment

    if resume and has_finished(out):
        say(f"The run has finished: {out / 'run'}")
        return
    loaded = load_experiment(experiment, changes or [])
    command = superlink_command(server_link(superlink, keys), out / LINK_FOLDER / DATABASE, keys)
    if printed:
        typer.echo(shlex.join(command))
        return
    if not external:
        say(f"$ {shlex.join(command)}")
    watcher = make_watcher(Console(stderr=True))
    try:
        result = run_server(
            loaded, out, superlink, keys, own_superlink=not external, resume=resume, watcher=watcher, tell=say
        )
    except KeyboardInterrupt:
        say("interrupted; the whole rounds are kept, and the same command with --resume goes on")
        raise typer.Exit(INTERRUPTED) from None
    show_result(result, as_json=as_json)
    if not as_json:
        Console().print(f"Results: {out / 'run'}", highlight=False, soft_wrap=True)


@deploy_app.command("client")
def client(
    experiment: ExperimentFile,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="This node's examples: train, validation and test.")],
    state: Annotated[Path, typer.Option(metavar="FOLDER", help="For what this node keeps; nobody else may read it.")],
    superlink: Address = ADDRESS,
    name: Annotated[str | None, typer.Option(help="As [deploy] clients has it. By default that of --data.")] = None,
    ca: Ca = None,
    key: Key = None,
    insecure: Insecure = False,
    changes: Changes = None,
    printed: Printed = False,
) -> None:
    """Take part in a deployment as one node, until stopped.

    Only what the method shares leaves this machine, with counts and metrics.
    The node runs the Plures that is installed here, and nothing that the
    server sends.
    """
    check_safety(ca, insecure)
    from plures.deploy.flower.links import Link
    from plures.deploy.flower.running import run_node
    from plures.deploy.flower.stock import supernode_command
    from plures.recipes import load_experiment

    named = name or data.resolve().name
    link = Link(address=superlink, ca=ca)
    if printed:
        typer.echo(shlex.join(supernode_command(link, key, experiment, data, state, named)))
        return
    run_node(load_experiment(experiment, changes or []), data, state, named, link, key, tell=say)


@deploy_app.command("app")
def app(
    experiment: ExperimentFile,
    folder: Annotated[Path, typer.Option("--folder", metavar="FOLDER", help="A new folder for the app.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the server is to keep the run.")],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="For nodes without keys, whose numbers change whenever they start.")
    ] = False,
) -> None:
    """Write a Flower app for `flwr run`: it names the Plures that is installed.

    For those who have a SuperLink and SuperNodes already. Nodes are told their
    paths by --node-config; `plures deploy client --print` shows the command.
    """
    check_flower()
    from plures.deploy.described import table_of
    from plures.deploy.flower.stock import write_app
    from plures.recipes import load_experiment

    table_of(load_experiment(experiment))
    write_app(folder, experiment, out, keyed=not insecure)
    say(f"{folder}: flwr run {folder} CONNECTION --stream")


add_to(deploy_app)
