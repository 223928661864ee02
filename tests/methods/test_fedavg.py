"""FedAvg (METHODS 2.1)."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from plures.local import epochs, steps
from plures.methods import fedavg
from plures.participation import uniform
from plures.server.weights import batches
from plures.server.weights import uniform as equally
from tests.helpers.methods import (
    Given,
    Population,
    assert_near,
    assert_same_bits,
    copy_of,
    federation,
    network,
    play,
)
from tests.oracles.common import batches_of


def pooled(population: Population) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.cat([batch.inputs for batch in population.batches]),
        torch.cat([batch.targets for batch in population.batches]),
    )


def test_one_full_batch_step_of_everybody_is_gradient_descent_on_the_pooled_data():
    """sum_i q_i grad F_i(w) = grad of the mean over all examples, for q_i = N_i / N and F_i a mean over N_i."""
    run = play(fedavg(lr=0.4, budget=steps(1)), 5)
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.4)
    inputs, targets = pooled(run.population)
    for round in range(1, 6):
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
        assert_near(run.servers[round].shared, {name: p.detach() for name, p in module.named_parameters()})


def test_with_equal_weights_it_is_not_descent_on_the_pooled_data():
    """The clients have 3 to 9 examples: the weight must matter, or the test above says nothing about it."""
    run, other = (play(fedavg(lr=0.4, budget=steps(1), weight=weight), 1) for weight in (equally, batches(1)))
    assert not torch.allclose(run.shared["head.weight"], other.shared["head.weight"], rtol=1e-3)
    # Batches of one example each: as many as examples, hence the default.
    assert_near(other.shared, play(fedavg(lr=0.4, budget=steps(1)), 1).shared)


def test_one_client_is_plain_sgd_over_all_rounds():
    """With a server rate of 1 and one client, the server's model is that client's model, round after round."""
    population, budget = federation([7]), epochs(2, batch=3)
    run = play(fedavg(lr=0.3, budget=budget), 3, population=population)
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    (client,) = population.batches
    for round in (1, 2, 3):
        for rows in batches_of([client], budget)(round, 0):
            optimizer.zero_grad()
            F.cross_entropy(module(client.inputs[rows]), client.targets[rows]).backward()
            optimizer.step()
    assert_near(run.shared, {name: p.detach() for name, p in module.named_parameters()})


def test_the_server_takes_the_average_weighed_by_examples_of_the_cohort():
    """Cohort {0, 3} with 3 and 9 examples: w = (3 w_0 + 9 w_3) / 12, whoever else there is."""
    run = play(fedavg(lr=0.3, budget=steps(4)), 1, Given([(0, 3)], 0.4))
    (_, first), (_, second) = run.results
    average = {name: (3 * first.trained[name] + 9 * second.trained[name]) / 12 for name in run.shared}
    assert_near(run.shared, average)


def test_the_order_of_the_clients_changes_roundings_only():
    ways = [(0, 1, 2, 3, 4), (4, 2, 0, 1, 3), (3, 4, 1, 0, 2)]
    first, *others = (play(fedavg(lr=0.3, budget=epochs(1, batch=2)), 3, Given([way])).shared for way in ways)
    for other in others:
        assert_near(other, first)


def test_a_server_rate_of_zero_leaves_the_model_as_it_was():
    run = play(fedavg(lr=0.3, server=0.0), 3, uniform(2))
    assert_same_bits(run.shared, run.servers[0].shared)
    assert any(value.any() for _, result in run.results for value in result.upload.values.values())


def test_a_server_rate_of_one_half_goes_half_the_way():
    """w <- w - 1/2 (w - average)."""
    whole, half = (play(fedavg(lr=0.3, server=rate), 1) for rate in (1.0, 0.5))
    start = whole.servers[0].shared
    assert_near(half.shared, {name: (start[name] + whole.shared[name]) / 2 for name in start})


def test_clipping_bounds_the_joint_norm_of_every_step():
    """One step of a client then has length lr * clip_norm, all tensors taken as one vector (torch: to 1e-6)."""
    run = play(fedavg(lr=0.3, budget=steps(1), clip_norm=0.01), 1, Given([(1,)]))
    ((_, result),) = run.results
    length = torch.cat([value.flatten() for value in result.upload.values.values()]).norm()
    torch.testing.assert_close(float(length), 0.3 * 0.01, rtol=1e-3, atol=0.0)


def test_adaptation_moves_a_copy_of_everything_and_not_the_server():
    run = play(fedavg(lr=0.3, adapt=epochs(2, batch=3)), 2)
    before = copy_of(run.shared)
    own = run.adapted(1)
    assert all(not torch.equal(own[name], before[name]) for name in before)
    assert_same_bits(run.shared, before)
