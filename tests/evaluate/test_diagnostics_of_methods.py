"""Diagnostics: what they say of methods, and every method left as it was."""

from __future__ import annotations

from math import isfinite, isnan

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plures.core.context import Server
from plures.core.errors import ClientFailed
from plures.core.program import Program
from plures.core.types import Params
from plures.evaluate.diagnostics import Diagnostics
from plures.methods import fedavg, fedper, local, pfedme
from plures.models import mlp, with_own_heads
from plures.participation import uniform
from plures.stores.memory import MemoryStore
from tests.conformance.table import ROWS, Row
from tests.evaluate.test_curvature import measured
from tests.evaluate.test_diagnostics import GRADIENTS
from tests.helpers.methods import (
    INPUTS,
    Played,
    TinyNetwork,
    assert_same_bits,
    copy_of,
    federation,
    network,
    play,
)


def test_fedavg_has_nothing_personal():
    found = measured(play(fedavg(), 2))
    assert found["personal_gradient"] == 0.0
    assert isnan(found["coupling"])


def test_a_client_alone_shares_nothing():
    found = measured(play(local(), 2))
    assert (found["shared_gradient"], found["gradient_diversity"], found["largest_dissimilarity"]) == (0.0, 0.0, 0.0)
    assert isnan(found["gradient_diversity_ratio"])
    assert found["personal_gradient"] > 0


def test_what_the_clients_model_does_not_depend_on_has_no_gradient():
    """pFedMe's own model is a whole twin: it has the gradient, and the shared model none."""
    found = measured(play(pfedme(), 2))
    assert found["shared_gradient"] == 0.0
    assert found["personal_gradient"] > 0
    assert isnan(found["smoothness_shared"])


def test_gradients_of_heads_of_several_sizes_are_measured():
    """Clients with architectures of their own share the body."""
    clients, classes = federation([4, 6], classes=2), (2, 3)
    networks = with_own_heads(lambda count: mlp(shape=(INPUTS,), classes=count, hidden=(3,)), lambda i: classes[i])
    program = Program(fedper(), networks, loss=F.cross_entropy, seed=1)
    server = Server(round=0, shared=program.initial_shared(), optimizer={})
    found = Diagnostics(program, clients, MemoryStore()).measure(server)
    assert all(map(isfinite, found.values()))


class Refusing(TinyNetwork):
    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            raise RuntimeError("I am not to be looked at")
        return super().forward(inputs)


def test_a_network_that_fails_is_told_with_client_and_round():
    run = play(fedavg(), 1, module=network(Refusing))
    with pytest.raises(ClientFailed, match=r"not to be looked at \(client client 0, round 2, phase diagnostics\)"):
        measured(run)


NOTHING_SHARED = ("ditto", "fedmask", "local", "pfedme", "mean-regularised")
"""Methods and variants whose clients' own models may depend on nothing shared that has a gradient."""
usual_rows = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[] if row.variant == next(iter(row.entry.variants)) else pytest.mark.slow)
        for row in ROWS
    ],
    ids=str,
)


def everything_of(run: Played) -> dict[str, Params]:
    """All that looking might change, copied."""
    binding = run.program.binding(0)
    clients = range(run.population.num_clients)
    kept = {f"state {client}": run.store.get(client) for client in clients}
    data = {f"data {client}": run.population.batches[client]._asdict() for client in clients}
    found = {"server": run.shared, "start": binding.values, "module": binding.task.module.state_dict(), **data}
    for part, state in run.server.optimizer.items():
        found |= {f"optimiser of {part}: {group}": values for group, values in state.items()}
    return {name: copy_of(params) for name, params in (found | kept).items() if params is not None}


@usual_rows
def test_every_method_is_measured_and_left_as_it_was(row: Row):
    run = play(row.make(), 2, uniform(2), population=row.population(), module=network(row.network))
    before, draws = everything_of(run), torch.get_rng_state()

    found = measured(run)

    after = everything_of(run)
    assert before.keys() == after.keys()
    for name in before:
        assert_same_bits(before[name], after[name])
    assert torch.equal(torch.get_rng_state(), draws)
    assert measured(run) == pytest.approx(found, rel=0, abs=0, nan_ok=True)
    assert all(isfinite(found[name]) for name in GRADIENTS)
    drops = [name for name in found if name.startswith("loss_drop/")]
    assert len(drops) == len(run.program.method.local)
    assert all(isfinite(found[name]) for name in drops)
    assert found["shared_gradient"] > 0 or {row.method, row.variant} & set(NOTHING_SHARED)
    assert_nan_where_a_part_is_empty(found)


def assert_nan_where_a_part_is_empty(found: dict[str, float]) -> None:
    shared, personal = found["shared_gradient"] > 0, found["personal_gradient"] > 0
    assert isfinite(found["gradient_diversity_ratio"]) == shared
    assert isfinite(found["smoothness_shared"]) == shared
    assert isfinite(found["smoothness_personal"]) == personal
    assert isfinite(found["cross_smoothness"]) == (shared and personal)
    assert isfinite(found["coupling"]) == (shared and personal)
