"""The command that tells what an experiment will cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from plures.cli.options import AsJson, Changes, ExperimentFile
from plures.report.cost_tables import MEANING, complexity_table, cost_table
from plures.report.json_text import as_json_text

if TYPE_CHECKING:
    from plures.evaluate.complexity import Sizes
    from plures.recipes import Experiment, PlannedCost


def cost(
    experiment: ExperimentFile,
    changes: Changes = None,
    table3: Annotated[
        bool,
        typer.Option("--complexity", help="Table 3 of the pFedGate paper for this network, instead of one method."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what an experiment will cost, without training it; the data need not be there.

    Bytes as encoded and as papers count them, operations dense and as sparse
    as the models are, and the memory a client needs at its peak. Where data
    are not at hand, three keys of the table data stand in for them, such as
    sizes = 500, shape = [3, 32, 32] and classes = 10.
    """
    from plures.evaluate.complexity import complexity
    from plures.recipes import load_experiment, planned_cost

    console = Console()
    wanted = load_experiment(experiment, changes or [])
    planned = planned_cost(wanted)
    if table3:
        sizes = sizes_of(planned, wanted)
        lines = [line.as_json() for line in complexity(sizes)]
        if as_json:
            typer.echo(as_json_text(lines, indent=2))
            return
        console.print(f"d = {planned.parameters:,}, n = {planned.clients:,}, m = {planned.cohort:g}", highlight=False)
        console.print(
            f"k = {sizes.components}, s = {sizes.density:g}, g = {sizes.gate_share:g}, q = {sizes.upload_share:g}, "
            f"v = {sizes.embedding:g}, h = {sizes.hidden}\n",
            highlight=False,
        )
        console.print(complexity_table(lines))
        return
    if as_json:
        typer.echo(as_json_text(planned.as_json(), indent=2))
        return
    console.print(
        f"{planned.method}: {planned.rounds} rounds of {planned.cohort:g} of {planned.clients} clients, "
        f"{planned.parameters:,} parameters\n",
        highlight=False,
    )
    console.print(cost_table(planned.as_json()))
    console.print(MEANING.rstrip(), style="dim", highlight=False)
    for note in planned.notes:
        console.print(f"\n{note}", highlight=False, markup=False)


def sizes_of(planned: PlannedCost, experiment: Experiment) -> Sizes:
    """The paper's sizes for the network and cohorts at hand; an option of the file's own method takes its place."""
    from plures.evaluate.complexity import Sizes

    options = experiment.method_options
    own = {
        "fedem": {"components": options.get("components")},
        "pfedhn": {"hidden": options.get("hidden"), "embedding_size": options.get("embedding")},
        "pfedgate": {"density": options.get("density")},
    }.get(planned.method, {})
    given = {name: value for name, value in own.items() if value is not None}
    return Sizes(parameters=planned.parameters, clients=planned.clients, cohort=planned.cohort, **given)
