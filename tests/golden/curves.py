"""The runs behind the golden curves: every method on handwritten digits, five short rounds in float64."""

from __future__ import annotations

from typing import Any

from plures.core.seeds import global_draws
from plures.data import digits_federation
from plures.methods import METHODS
from plures.models import mlp
from plures.participation import uniform
from tests.conformance.table import TABLE
from tests.helpers.methods import play

SEED, ROUNDS, COHORT, CLIENTS = 3, 5, 4, 10

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    method: {variant: dict(options) for variant, options in entry.golden.items()} for method, entry in TABLE.items()
}
"""By method and by a name for the variant. Newton's heads are not here: on clients with two of ten classes they go so
far that a change of 1e-15 at the start is one of order 1 after five rounds, which no other machine would repeat."""


def data():
    return digits_federation(num_clients=CLIENTS, classes_per_client=2, seed=0)


def curves(method: str, variant: str) -> dict[str, list[float]]:
    """The mean training loss of each phase in each round, and that of all personal models after the last."""
    with global_draws(SEED, "golden network"):
        module = mlp(hidden=(8,), batch_norm=variant.startswith("normed")).double()
    made = METHODS[method].make(**OPTIONS[method][variant])
    run = play(made, ROUNDS, uniform(COHORT), population=data(), module=module, seed=SEED)
    phases = run.reports[0].losses
    return {phase: [report.losses[phase] for report in run.reports] for phase in phases} | {
        "after": [client_loss(run, client) for client in range(CLIENTS)]
    }


def client_loss(run, client: int) -> float:
    """Of the personal model on the client's training data; after fine-tuning, if that is how it is judged."""
    batch = run.program.binding(client).task.place(run.population.client(client).train)
    params = run.adapted(client) if run.program.method.adapt and not run.final[client] else run.model(client)
    run.program.binding(client).task.train(False)
    return float(run.program.loss(run.output(params, batch.inputs), batch.targets))
