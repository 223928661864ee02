"""The second door: a method with a round of its own, on the same loop, engine, store and reports.

The method: two shared models, each client trains the one with the smaller loss, the server averages each over the
clients that chose it (clustered federated learning in its plainest form). Which one a client chose stays with it.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from plures.core.client import Result, arrival, run_phases
from plures.core.context import Server
from plures.core.gather import Gathering
from plures.core.loop import start
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.sums import empty_sum
from plures.core.types import Batch
from plures.core.visit import Trained, Upload
from plures.engines.sequential import Sequential
from plures.local import delta, sgd
from plures.stores.memory import MemoryStore
from tests.core.helpers import Clients, Given, half_square, method, numbers, phase, rounds_of, same_bits

OTHER = "other."


class Slope(nn.Module):
    """slope * x."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, inputs):
        return self.slope * inputs


def two_models(network):
    """The other model is the negative of the first."""
    return {
        "shared": {OTHER + name: -value for name, value in network.params.items()},
        "choice": {"choice": torch.tensor(-1)},
    }


def model(number):
    def view(params, inputs):
        return {name: params[OTHER + name] if number else params[name] for name in ("slope",)}

    return view


def own_names(number, params):
    return {name: value for name, value in params.items() if name.startswith(OTHER) == bool(number) and "slope" in name}


def picking_round(context):
    program = context.program

    def work(visit):
        binding = program.binding(visit.client)
        params = arrival(binding, visit)
        losses = [binding.task.loss(model(number)(params, visit.data.inputs), visit.data) for number in (0, 1)]
        choice = int(losses[1] < losses[0])
        training = replace(program.method.local[0], view=model(choice))
        work = run_phases((training,), binding, visit, params)
        trained, phase_losses, passes = work.params, work.losses, work.passes
        return Result(
            client=visit.client,
            state={"choice": torch.tensor(choice)},
            upload=delta(visit, Trained(own_names(choice, trained), {}, {})),
            buffers={},
            losses=phase_losses,
            passes=passes + 2,
            trained=trained,
        )

    gathering = Gathering(context)
    sums = [empty_sum(), empty_sum()]
    for block in gathering.blocks(context.engine.map(work, gathering.visits())):
        for visit, result in block:
            sums[int(result.state["choice"])].add(
                Upload(result.upload.values),
                share=visit.facts.examples,
                divisor=visit.facts.examples,
                per_coordinate=False,
            )
    shared = dict(context.server.shared)
    for total in sums:
        for name, change in (total.direction(divided=True) if total.num_added else {}).items():
            shared[name] = shared[name] - change
    server = Server(round=context.round, shared=shared, optimizer={})
    return gathering.outcome(server)


def slopes(*groups):
    """Clients with y = slope * x at x = 1, a given number of times."""
    return Clients(batches=tuple(Batch(torch.ones(size).double(), numbers(*[slope] * size)) for slope, size in groups))


CLIENTS = slopes((1.0, 1), (-1.0, 2), (1.0, 3), (-1.0, 1))


def program():
    both = method(phase(optimizer=sgd(0.5)), personal=(), extend=two_models, run_round=picking_round)
    return Program(both, OneNetwork(module=Slope()), loss=half_square, seed=1)


def test_each_group_finds_its_model_and_each_model_its_slope():
    # Half the way to the group's slope in each round: 1 - 0.5 * 0.5^r, and the negative of it.
    store = MemoryStore()
    done = rounds_of(program(), CLIENTS, 4, store=store)
    for round, one in enumerate(done, 1):
        reached = 1 - 0.5 * 0.5**round
        assert one.server.shared["slope"].item() == pytest.approx(reached, rel=1e-14)
        assert one.server.shared["other.slope"].item() == pytest.approx(-reached, rel=1e-14)
    assert [store.get(client)["choice"].item() for client in range(4)] == [0, 1, 0, 1]


def test_models_are_averaged_over_those_who_chose_them_by_examples():
    # Slopes 1 and 2 choose the first model: from 0.5 to 0.75 and 1.25; by examples (0.75 + 3 * 1.25) / 4.
    done = rounds_of(program(), slopes((1.0, 1), (2.0, 3)))[-1]
    assert done.server.shared["slope"].item() == pytest.approx(1.125, rel=1e-14)
    assert done.server.shared["other.slope"].item() == -0.5, "nobody chose it"


def test_reports_count_the_same_things():
    # Down: two models of 8 bytes for each of four clients; up: one each. Passes: two to choose and one to train.
    report = rounds_of(program(), CLIENTS)[-1].report
    assert (report.round, report.cohort) == (1, (0, 1, 2, 3))
    assert (report.bytes_down, report.bytes_up, report.network_passes) == (64, 32, 12.0)
    assert report.losses == pytest.approx({"shared": 0.125}, rel=1e-14)


def test_the_loop_stops_goes_on_and_skips_empty_cohorts_as_ever():
    sampler, store, whole = Given((0, 1), (), (2, 3), (0, 3)), MemoryStore(), MemoryStore()
    half = rounds_of(program(), CLIENTS, 2, sampler=sampler, store=store)[-1]
    assert (half.report.cohort, half.server.round, store.round) == ((), 2, 2)
    rest = rounds_of(program(), CLIENTS, 4, sampler=sampler, store=store, server=half.server)
    full = rounds_of(program(), CLIENTS, 4, sampler=sampler, store=whole)
    assert same_bits(rest[-1].server.shared, full[-1].server.shared)
    assert all(same_bits(store.get(client), whole.get(client)) for client in range(4))


def test_another_engine_may_carry_out_the_work():
    class Backwards(Sequential):
        name = "backwards"

        def map(self, work, visits):
            visits = list(visits)
            done = {visit.client: work(visit) for visit in reversed(visits)}
            return iter([done[visit.client] for visit in visits])

    backwards = rounds_of(program(), CLIENTS, 3, engine=Backwards())
    assert same_bits(backwards[-1].server.shared, rounds_of(program(), CLIENTS, 3)[-1].server.shared)


def test_both_models_are_in_the_shared_part_from_the_start():
    assert {name: value.item() for name, value in start(program()).shared.items()} == {
        "slope": 0.5,
        "other.slope": -0.5,
    }
