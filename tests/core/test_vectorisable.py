"""Phases as they stand can be carried out by torch.func: gradients by transformation, clients by vmap.

So a vectorised engine is possible that maps the same `run_phases`.
"""

from dataclasses import replace

import pytest
import torch
from torch.func import grad_and_value, vmap
from torch.nn import functional as F

from plures.core.client import run_client, run_phases
from plures.core.problem import eager_gradient
from plures.core.types import PERSONAL, SHARED, Batch
from plures.local import adam, epochs, proximal, sgd, steps, twin, twin_distance, with_twin
from tests.core.helpers import class_clients, class_program, method, network, phase, visit_to

CLOSE = {"rtol": 1e-12, "atol": 1e-14}
"""Float64: a few roundings per step, over a few steps."""
BOTH = (SHARED, PERSONAL)


def functional_gradient(loss, point):
    return grad_and_value(loss)(point)


METHODS = {
    "together": method(phase(BOTH, budget=epochs(2, batch=2)), personal=("3.*",)),
    "in turn": method(phase(PERSONAL, budget=steps(3)), phase(SHARED, budget=epochs(1, batch=3)), personal=("3.*",)),
    "momentum": method(phase(BOTH, budget=steps(3), optimizer=sgd(0.1, momentum=0.9)), personal=("3.*",)),
    "adam": method(phase(BOTH, budget=steps(3), optimizer=adam(0.1)), personal=("3.*",)),
    "two rates": method(
        phase(BOTH, budget=steps(2), optimizer={SHARED: sgd(0.1), PERSONAL: adam(0.2)}), personal=("3.*",)
    ),
    "clipped": method(phase(BOTH, budget=steps(2), clip_norm=0.01), personal=("3.*",)),
    "clipped by part": method(phase(BOTH, budget=steps(2), clip_norm={SHARED: 0.01}), personal=("3.*",)),
    "scaled and observed": method(
        phase(PERSONAL, observe=SHARED, budget=steps(2), scale=lambda facts: 0.3), personal=("3.*",)
    ),
    "proximal": method(phase(budget=steps(3), penalty=proximal(0.5)), personal=()),
    "twins": method(phase(PERSONAL, view=twin, penalty=twin_distance(0.5)), phase(), personal=(), extend=with_twin),
}
methods = pytest.mark.parametrize("name", sorted(METHODS))


def close(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(right[name], value, **CLOSE)


def test_the_gradient_by_transformation_is_the_one_by_autograd():
    module, batch = network(), class_clients((6,)).batches[0]
    point = {name: value.detach() for name, value in module.named_parameters()}
    point["unused"] = torch.ones(2).double()

    def loss(params):
        used = {name: value for name, value in params.items() if name != "unused"}
        return F.cross_entropy(torch.func.functional_call(module, used, (batch.inputs,)), batch.targets)

    eager, functional = (gradient(loss, point) for gradient in (eager_gradient, functional_gradient))
    close(eager[0], functional[0])
    torch.testing.assert_close(eager[1], functional[1], **CLOSE)


@methods
def test_a_client_may_take_its_gradients_by_transformation(name):
    program = class_program(METHODS[name])
    visit = visit_to(program, class_clients((5,)))
    eager, functional = (
        run_client(program.method, program.binding(0), visit, gradient)
        for gradient in (eager_gradient, functional_gradient)
    )
    close(eager.trained, functional.trained)
    close(eager.upload.values, functional.upload.values)
    close(eager.losses, functional.losses)
    assert eager.passes == functional.passes


@methods
def test_clients_of_equal_sizes_may_be_mapped_at_once(name):
    # Full batches: the order of mini-batches is drawn per client, outside of what can be mapped.
    local = tuple(replace(part, budget=steps(3)) for part in METHODS[name].local)
    program, clients = class_program(replace(METHODS[name], local=local)), class_clients((5, 5, 5))
    visits = [visit_to(program, clients, client) for client in range(3)]
    binding = program.binding(0)

    def work(params, inputs, targets):
        visit = replace(visits[0], data=Batch(inputs, targets))
        after, observed, losses, *_ = run_phases(program.method.local, binding, visit, params, functional_gradient)
        return after, observed, losses

    stacked = {
        key: torch.stack([(visit.received | visit.state)[key] for visit in visits])
        for key in visits[0].received | visits[0].state
    }
    data = [torch.stack([getattr(visit.data, part) for visit in visits]) for part in ("inputs", "targets")]
    after, observed, losses = vmap(work)(stacked, *data)
    for client, visit in enumerate(visits):
        one, seen, one_losses, *_ = run_phases(local, binding, visit, visit.received | visit.state)
        close(one, {key: value[client] for key, value in after.items()})
        close(seen, {key: value[client] for key, value in observed.items()})
        close(one_losses, {key: value[client] for key, value in losses.items()})
