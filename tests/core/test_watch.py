"""Who watches a descent sees every update, and changes nothing."""

from dataclasses import replace

import pytest
import torch
from torch.func import grad_and_value, vmap

from plures.core.client import arrival
from plures.core.problem import Problem, descend, eager_gradient
from plures.core.types import Batch
from plures.local import adam, epochs, steps
from tests.core.helpers import class_clients, class_program, method, phase, same_bits, visit_to

CLIENTS = class_clients((7, 7))
"""Of seven examples, so that batches of two are four, the last one smaller."""


def problem_of(budget, client=0, gradient=eager_gradient):
    program = class_program(method(phase(budget=budget, optimizer=adam(0.1)), personal=()))
    visit, binding = visit_to(program, CLIENTS, client), program.binding(0)
    params = arrival(binding, visit)
    return Problem(phase=program.method.local[0], visit=visit, binding=binding, params=params, gradient=gradient)


@pytest.mark.parametrize(("budget", "updates"), [(epochs(2, batch=2), 8), (steps(3, batch=2), 3), (steps(0), 0)])
def test_every_update_is_seen_with_the_parameters_right_after_it(budget, updates):
    seen = []
    watched = descend(problem_of(budget), watch=lambda done, params: seen.append((done, params)))
    assert [done for done, _ in seen] == list(range(1, updates + 1))
    for done, params in seen:
        assert same_bits(params, descend(problem_of(steps(done, batch=2))).params)
    plain = descend(problem_of(budget))
    assert same_bits(watched.params, plain.params)
    assert (float(watched.loss), watched.passes) == (float(plain.loss), plain.passes)


def test_a_descent_that_is_mapped_over_clients_can_be_watched():
    problem = problem_of(steps(2), gradient=lambda loss, point: grad_and_value(loss)(point))

    def after_one_of_two(inputs, targets):
        first = {}
        mapped = replace(problem, visit=replace(problem.visit, data=Batch(inputs, targets)))
        descend(mapped, watch=lambda done, params: first.update(params) if done == 1 else None)
        return first

    data = [torch.stack([getattr(batch, side) for batch in CLIENTS.batches]) for side in ("inputs", "targets")]
    found = vmap(after_one_of_two)(*data)
    for client in range(2):
        for name, value in descend(problem_of(steps(1), client)).params.items():
            torch.testing.assert_close(found[name][client], value, rtol=1e-12, atol=1e-14)
