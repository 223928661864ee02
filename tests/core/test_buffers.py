"""Running statistics by each policy, and the user's module, which no run may change."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from plures.core.client import arrival, run_client
from plures.core.errors import Diverged
from plures.core.loop import start
from plures.core.task import Task
from plures.local import epochs, steps
from plures.methods import fedavg, fedper, local
from plures.stores.memory import MemoryStore
from tests.core.helpers import (
    Clients,
    class_clients,
    class_program,
    copied,
    mean_output,
    rounds_of,
    same_bits,
    visit_to,
)

MOMENTUM = 0.1
"""Of the batch norm: running_mean <- 0.9 running_mean + 0.1 mean of the batch."""
STATISTICS = ("0.running_mean", "0.running_var", "0.num_batches_tracked")


def normed():
    """The first layer is a batch norm, so its statistics follow from the inputs alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)).double()


METHODS = {
    "fedavg": lambda policy: fedavg(buffers=policy, budget=steps(1)),
    "fedper": lambda policy: fedper(buffers=policy, budget=steps(1), start="common"),
    "local": lambda policy: local(buffers=policy, budget=steps(1)),
}
methods = pytest.mark.parametrize("name", sorted(METHODS))
policies = pytest.mark.parametrize("policy", ["shared", "personal", "reset"])


def run(name, policy, rounds=1, clients=None, **changes):
    clients, store = clients or class_clients((2, 6)), MemoryStore()
    program = class_program(METHODS[name](policy), normed())
    return program, rounds_of(program, clients, rounds, store=store, **changes), store


def means(clients):
    return [batch.inputs.mean(dim=0) for batch in clients.batches]


@methods
def test_shared_statistics_are_averaged_by_examples(name):
    # After one batch, client i's running mean is 0.1 * mean_i; weights 2/8 and 6/8.
    clients = class_clients((2, 6))
    _, done, store = run(name, "shared", clients=clients)
    first, second = means(clients)
    expected = MOMENTUM * (2 * first + 6 * second) / 8
    torch.testing.assert_close(done[-1].server.shared["0.running_mean"], expected, rtol=1e-13, atol=1e-15)
    variances = [batch.inputs.var(dim=0) for batch in clients.batches]
    expected = 0.9 + MOMENTUM * (2 * variances[0] + 6 * variances[1]) / 8
    torch.testing.assert_close(done[-1].server.shared["0.running_var"], expected, rtol=1e-13, atol=1e-15)
    assert all(not set(STATISTICS) & store.get(client).keys() for client in store.clients())


@methods
def test_shared_statistics_go_on_from_the_average(name):
    clients = class_clients((2, 6))
    _, done, _ = run(name, "shared", rounds=2, clients=clients)
    first, second = means(clients)
    expected = (0.9 + 1) * MOMENTUM * (2 * first + 6 * second) / 8
    torch.testing.assert_close(done[-1].server.shared["0.running_mean"], expected, rtol=1e-13, atol=1e-15)


def test_the_counter_of_batches_stays_a_whole_number():
    # 2 and 4 examples in batches of 2: 1 and 2 batches, on average (2*1 + 4*2) / 6 = 1.67, rounded 2.
    program = class_program(fedavg(buffers="shared", budget=epochs(1, batch=2)), normed())
    counter = rounds_of(program, class_clients((2, 4)))[-1].server.shared["0.num_batches_tracked"]
    assert (counter.dtype, counter.item()) == (torch.int64, 2)


@methods
def test_personal_statistics_are_kept_by_each_client_and_never_sent(name):
    clients = class_clients((2, 6))
    program, done, store = run(name, "personal", rounds=2, clients=clients)
    assert not set(STATISTICS) & done[-1].server.shared.keys()
    for client, mean in enumerate(means(clients)):
        kept = store.get(client)
        torch.testing.assert_close(kept["0.running_mean"], 1.9 * MOMENTUM * mean, rtol=1e-13, atol=1e-15)
        assert kept["0.num_batches_tracked"].item() == 2
    result = run_client(program.method, program.binding(0), visit_to(program, clients))
    assert result.buffers == {}
    assert not set(STATISTICS) & result.upload.values.keys()


@methods
def test_reset_statistics_are_neither_kept_nor_sent_and_begin_anew(name):
    clients = class_clients((2, 6))
    program, done, store = run(name, "reset", rounds=2, clients=clients)
    assert not set(STATISTICS) & done[-1].server.shared.keys()
    assert all(not set(STATISTICS) & store.get(client).keys() for client in store.clients())
    visit = visit_to(program, clients, store=store)
    begun = arrival(program.binding(0), visit)
    assert begun["0.running_mean"].tolist() == [0.0] * 5
    result = run_client(program.method, program.binding(0), visit)
    torch.testing.assert_close(result.trained["0.running_mean"], MOMENTUM * means(clients)[0], rtol=1e-13, atol=1e-15)


@methods
def test_bytes_count_statistics_only_where_they_are_sent(name):
    # Of float64: a batch norm of 10 and a head of 18 values; statistics are 10 values and one counter.
    sent = {"fedavg": 28, "fedper": 10, "local": 0}[name]
    for policy, extra in (("shared", 11), ("personal", 0), ("reset", 0)):
        _, done, _ = run(name, policy)
        assert done[-1].report.bytes_up == done[-1].report.bytes_down == 2 * 8 * (sent + extra)


@methods
@policies
def test_a_visit_changes_no_statistics_but_its_own_copy(name, policy):
    program = class_program(METHODS[name](policy), normed())
    visit = visit_to(program, class_clients((4,)))
    before = copied(visit.received | visit.state), copied(program.binding(0).values), copied(start(program).shared)
    first, second = (run_client(program.method, program.binding(0), visit) for _ in range(2))
    assert same_bits(first.trained, second.trained)
    assert same_bits(visit.received | visit.state, before[0])
    assert same_bits(program.binding(0).values, before[1])
    assert same_bits(start(program).shared, before[2])


@given(st.permutations(range(3)), st.sampled_from(["shared", "personal", "reset"]))
@settings(deadline=None, max_examples=8)
def test_statistics_do_not_depend_on_the_order_of_clients(order, policy):
    clients = class_clients((2, 4, 6))
    program = class_program(METHODS["fedper"](policy), normed())

    def work(client):
        return run_client(program.method, program.binding(client), visit_to(program, clients, client)).trained

    expected = [work(client) for client in range(3)]
    for client in order:
        assert same_bits(work(client), expected[client])


@methods
@policies
@pytest.mark.parametrize("training", [True, False])
def test_a_run_leaves_the_users_module_as_it_was(name, policy, training):
    module = normed().train(training)
    module[1].weight.grad = torch.ones_like(module[1].weight)
    before = copy.deepcopy(module)
    rounds_of(class_program(METHODS[name](policy), module), class_clients((3, 4)), 2)
    assert same_bits(dict(module.state_dict()), dict(before.state_dict()))
    assert [part.training for part in module.modules()] == [training] * 3
    assert torch.equal(module[1].weight.grad, torch.ones_like(module[1].weight))
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_training_a_module_given_in_evaluation_mode_uses_batch_statistics():
    outcomes = [
        rounds_of(class_program(METHODS["fedavg"]("shared"), normed().train(mode)), class_clients((4,)))[-1]
        for mode in (True, False)
    ]
    assert same_bits(outcomes[0].server.shared, outcomes[1].server.shared)


class Doubled(nn.Module):
    """Multiplies by a constant kept as a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("factor", torch.tensor(2.0))

    def forward(self, inputs):
        return self.factor * self.layer(inputs)


def test_constants_are_used_and_neither_kept_nor_sent():
    clients = class_clients((4,))
    program = class_program(fedavg(budget=steps(1)), Doubled().double())
    output = program.binding(0).predict(program.method.predict, program.binding(0).values, clients.batches[0].inputs)
    values = program.binding(0).values
    expected = 2 * nn.functional.linear(clients.batches[0].inputs, values["layer.weight"], values["layer.bias"])
    assert torch.equal(output, expected)
    assert rounds_of(program, clients)[-1].server.shared.keys() == {"layer.weight", "layer.bias"}


def test_inputs_are_given_the_precision_of_the_network_and_whole_numbers_are_left_alone():
    task = Task(nn.Linear(5, 3).double(), mean_output, torch.device("cpu"))
    batch = class_clients((2,), dtype=torch.float32).batches[0]
    placed = task.place(batch)
    assert (placed.inputs.dtype, placed.targets.dtype) == (torch.float64, torch.int64)
    placed = task.place(batch._replace(inputs=torch.zeros(2, 5, dtype=torch.int64), targets=torch.zeros(2)))
    assert (placed.inputs.dtype, placed.targets.dtype) == (torch.int64, torch.float64)


def test_drawing_a_uniform_head_draws_no_running_statistics():
    program = class_program(fedper(buffers="personal", start="uniform"), normed())
    assert program.initial_state(0)["0.running_mean"].tolist() == [0.0] * 5


def test_statistics_that_are_not_finite_stop_the_run():
    # Inputs of 1e25 have a variance of 1e50, which is infinite in float32; the normalised output and the loss are not.
    module = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    batch = class_clients((6,), dtype=torch.float32).batches[0]
    huge = Clients(batches=(batch._replace(inputs=1e25 * batch.inputs),))
    with pytest.raises(Diverged):
        rounds_of(class_program(fedavg(buffers="shared", budget=steps(1)), module), huge)


def test_a_layer_that_writes_into_its_buffers_does_not_carry_anything_from_client_to_client():
    module = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), nn.Linear(4, 3)).double()
    program = class_program(fedavg(budget=steps(1)), module)
    clients = class_clients((4, 6))
    alone = run_client(program.method, program.binding(1), visit_to(program, clients, 1)).trained
    run_client(program.method, program.binding(0), visit_to(program, clients, 0))
    assert same_bits(run_client(program.method, program.binding(1), visit_to(program, clients, 1)).trained, alone)


def test_a_layer_that_its_owner_holds_in_evaluation_mode_stays_there():
    # As for fine-tuning with fixed statistics; before an evaluation and after it.
    module = normed()
    module[0].eval()
    program = class_program(METHODS["fedavg"]("shared"), module)
    visit = visit_to(program, class_clients((4,)))
    before = run_client(program.method, program.binding(0), visit)
    assert before.trained["0.num_batches_tracked"].item() == 0
    assert before.trained["0.running_mean"].tolist() == [0.0] * 5
    program.binding(0).task.train(False)
    after = run_client(program.method, program.binding(0), visit)
    assert same_bits(before.trained, after.trained)


def test_a_single_example_left_over_is_passed_by_where_batches_are_normalised():
    # 5 examples in batches of 2: a batch norm takes two batches and refuses the fifth example.
    program = class_program(fedavg(buffers="shared", budget=epochs(1, batch=2)), normed())
    result = run_client(program.method, program.binding(0), visit_to(program, class_clients((5,))))
    assert result.trained["0.num_batches_tracked"].item() == 2
    assert result.passes == pytest.approx(0.8, rel=1e-15)
    program = class_program(fedavg(budget=epochs(1, batch=2)))
    assert run_client(program.method, program.binding(0), visit_to(program, class_clients((5,)))).passes == 1.0
