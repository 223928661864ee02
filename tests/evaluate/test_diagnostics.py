"""Diagnostics: gradients and drops of the loss against plain loops, and every method left as it was."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isnan

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.context import Server
from plures.core.errors import ClientFailed
from plures.core.goals import next_token, squared_error
from plures.core.program import Program
from plures.core.types import Batch, Params
from plures.evaluate import diagnostics
from plures.evaluate.diagnostics import Diagnostics, Gradients
from plures.local import epochs, sgd, steps
from plures.methods import fedalt, fedavg, fedper, fedsim, local, pfedme, pflego
from plures.models import char_lstm, mlp, with_own_heads
from plures.participation import uniform
from plures.stores.memory import MemoryStore
from tests.conformance.table import ROWS, Row
from tests.evaluate.test_curvature import SHARED, measured, on_quadratics, quadratics
from tests.helpers.methods import (
    HEAD,
    INPUTS,
    NormedNetwork,
    Played,
    Population,
    TinyNetwork,
    assert_same_bits,
    copy_of,
    federation,
    network,
    play,
)

CURVATURE = ("smoothness_shared", "smoothness_personal", "cross_smoothness", "coupling")
GRADIENTS = ("shared_gradient", "personal_gradient", "gradient_diversity", "largest_dissimilarity")


def with_own_parts(population: Population) -> Played:
    """Quadratics before round 1, each client with a `v` of its own."""
    run, draws = on_quadratics(population), torch.Generator().manual_seed(9)
    own = torch.randn(population.num_clients, 3, generator=draws, dtype=torch.float64)
    run.store.commit(1, {client: {"v": own[client]} for client in range(population.num_clients)})
    return run


def by_hand(run: Played, clients: list[int]) -> dict[str, float]:
    """With r = A u + B v - c, the gradients of |r|^2 / 2 are A^T r and B^T r."""
    shared, personal = [], []
    for client in clients:
        batch, u, v = run.population.batches[client], run.shared["u"], run.store.get(client)["v"]
        rest = batch.inputs[:, :SHARED] @ u + batch.inputs[:, SHARED:] @ v - batch.targets
        shared.append(batch.inputs[:, :SHARED].T @ rest)
        personal.append(batch.inputs[:, SHARED:].T @ rest)
    mean, each = torch.stack(shared).mean(dim=0), torch.stack(shared)
    return {
        "shared_gradient": float(mean @ mean),
        "personal_gradient": float(torch.stack(personal).square().sum(dim=1).mean()),
        "gradient_diversity": float((each - mean).square().sum(dim=1).mean()),
        "gradient_diversity_ratio": float(each.square().sum(dim=1).mean() / (mean @ mean)),
        "largest_dissimilarity": float((each - mean).abs().max()),
    }


@pytest.mark.parametrize("examples_at_once", [512, 4, 1], ids=["at once", "in chunks", "each alone"])
def test_gradients_of_quadratics_are_those_of_their_matrices(examples_at_once, monkeypatch):
    monkeypatch.setattr(diagnostics, "EXAMPLES_AT_ONCE", examples_at_once)
    run = with_own_parts(quadratics())
    expected, found = by_hand(run, [0, 1, 2, 3]), measured(run)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_some_clients_are_measured_by_their_numbers():
    run = with_own_parts(quadratics())
    expected, found = by_hand(run, [1, 3]), measured(run, [1, 3])
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("outlier", [3.0, -3.0], ids=["above", "below"])
def test_the_largest_dissimilarity_is_found_on_both_sides_of_the_mean(outlier):
    """Of 0, 0 and 3 the mean is 1: distances of 1, 1 and 2, whose squares have the mean 2."""
    gradients = Gradients()
    for value in (0.0, outlier, 0.0):
        gradients.add({"u": torch.tensor([0.0, value])}, {})
    found = gradients.numbers()
    assert found["largest_dissimilarity"] == pytest.approx(2, rel=1e-12)
    assert found["gradient_diversity"] == pytest.approx(2, rel=1e-12)


def test_one_client_has_no_diversity():
    found = measured(with_own_parts(quadratics(clients=1)))
    assert (found["gradient_diversity"], found["gradient_diversity_ratio"]) == (0.0, 1.0)
    assert found["largest_dissimilarity"] == 0.0


def test_nobody_has_no_numbers():
    found = measured(with_own_parts(quadratics()), [])
    assert found.keys() == measured(with_own_parts(quadratics())).keys()
    assert all(map(isnan, found.values()))


def test_the_order_of_clients_has_no_say():
    """Full batches, so that no draw depends on a client's number."""
    method, order = fedsim(budget=steps(2)), [3, 0, 4, 2, 1]
    run = play(method, 2)
    other = play(method, 0, population=Population([run.population.batches[client] for client in order]))
    other.store.commit(2, {place: run.final[client] for place, client in enumerate(order)})

    found = Diagnostics(other.program, other.population, other.store).measure(run.server)

    assert found == pytest.approx(measured(run), rel=1e-12)


# Losses


class Words(nn.Module):
    """Scores of the next token of 6, from the one before alone."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Embedding(6, 3), nn.Linear(3, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(tokens))).transpose(1, 2)


def texts(*lengths: int) -> Batch:
    """Sequences of 4 tokens, of which the last are padding."""
    draws = torch.Generator().manual_seed(len(lengths))
    tokens = torch.randint(1, 6, (len(lengths), 5), generator=draws)
    for row, length in enumerate(lengths):
        tokens[row, length:] = 0
    return Batch(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("examples_at_once", [512, 1], ids=["at once", "each alone"])
def test_tokens_count_alike_whichever_sequence_they_are_in(examples_at_once, monkeypatch):
    """The loss divides by all tokens that are no padding; a mean over chunks would not."""
    monkeypatch.setattr(diagnostics, "EXAMPLES_AT_ONCE", examples_at_once)
    population = Population([texts(5, 2, 3), texts(1, 5)])  # the fourth sequence is all padding, after its first token
    run = play(fedavg(), 0, population=population, module=network(Words), loss=next_token().loss)
    grads = [gradient_by_hand(run.shared, batch, network(Words), ignore_index=0) for batch in population.batches]
    mean = sum(grads) / 2
    assert measured(run)["shared_gradient"] == pytest.approx(float(mean @ mean), rel=1e-12)


def gradient_by_hand(params: Params, batch: Batch, module: nn.Module, **options: int) -> Tensor:
    """By all parameters of the module, as one vector; statistics hold still."""
    names = [name for name, _ in module.named_parameters()]
    leaves = {name: params[name].clone().requires_grad_() for name in names}
    loss = F.cross_entropy(functional_call(module.eval(), params | leaves, (batch.inputs,)), batch.targets, **options)
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(leaves.values()))])


def test_a_client_with_nothing_to_learn_from_has_no_say():
    some = [texts(5, 2, 3), texts(4, 5)]
    empty = Batch(some[0].inputs[:0], some[0].targets[:0])
    found = [
        measured(play(fedavg(budget=steps(1)), 0, population=clients, module=network(Words), loss=next_token().loss))
        for clients in (Population(some), Population([*some, texts(1, 1), empty]))
    ]
    assert found[0]["shared_gradient"] > 0
    assert found[1] == pytest.approx(found[0], rel=1e-12, nan_ok=True)


def test_a_model_that_has_diverged_is_seen_in_the_numbers():
    run = play(fedper(), 0)
    lost = {name: torch.full_like(value, torch.nan) for name, value in run.shared.items()}
    found = Diagnostics(run.program, run.population, run.store).measure(replace(run.server, shared=lost))
    assert all(map(isnan, found.values()))


def test_numbers_of_a_regression_by_hand():
    """Of x = (1, 2) and y = (3, 1), the mean of (w x - y)^2 has at w = 0 the gradient -5 and the curvature 5."""
    line = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(line.weight)
    numbers = torch.tensor([1.0, 2.0], dtype=torch.float64)
    client = Batch(numbers[:, None], torch.tensor([3.0, 1.0], dtype=torch.float64))
    found = measured(play(fedavg(), 0, population=Population([client]), module=line, loss=squared_error))
    assert found["shared_gradient"] == pytest.approx(25, rel=1e-12)
    assert found["smoothness_shared"] == pytest.approx(5, rel=1e-6)


def test_a_recurrent_network_over_tokens_is_measured():
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 7, (3, 4, 6), generator=draws)
    population = Population([Batch(client[:, :-1], client[:, 1:]) for client in tokens])
    module = char_lstm(shape=(5,), classes=7, embedding=3, hidden=4, depth=1)
    found = measured(play(fedalt(budget=steps(1)), 1, population=population, module=module, loss=next_token().loss))
    assert all(map(isfinite, found.values()))
    assert found["coupling"] > 0


def test_numbers_of_single_precision_are_near_those_of_double():
    population = federation()
    double = measured(play(fedalt(budget=steps(2)), 2, population=population))
    single = measured(play(fedalt(budget=steps(2)), 2, population=population, module=network().float()))
    assert single == pytest.approx(double, rel=1e-3)


# Modes of the network


class Dropping(TinyNetwork):
    """Drops half of its inputs while it is trained."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(F.dropout(inputs, 0.5, self.training))


def test_nothing_is_dropped_while_gradients_are_taken():
    found = [measured(play(fedper(), 0, module=network(module))) for module in (TinyNetwork, Dropping)]
    same = (*GRADIENTS, *CURVATURE)
    assert [found[1][name] for name in same] == [found[0][name] for name in same]


@pytest.mark.parametrize("buffers", ["shared", "personal", "reset"])
def test_running_statistics_hold_still_and_those_that_were_forgotten_are_estimated(buffers):
    run = play(fedavg(buffers=buffers, budget=steps(2)), 2, module=network(NormedNetwork))
    grads = []
    for client, batch in enumerate(run.population.batches):
        params = run.model(client)
        if buffers == "reset":
            seen = batch.inputs @ params["body.weight"].T
            params = params | {"norm.running_mean": seen.mean(dim=0), "norm.running_var": seen.var(dim=0)}
        grads.append(gradient_by_hand(params, batch, network(NormedNetwork)))
    mean = torch.stack(grads).mean(dim=0)
    assert measured(run)["shared_gradient"] == pytest.approx(float(mean @ mean), rel=1e-12)


class Counting(TinyNetwork):
    """Notes how many examples come at once while it is not trained."""

    sizes: list[int]

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            self.sizes.append(len(inputs))
        return super().forward(inputs)


def test_a_large_client_goes_through_the_network_in_chunks(monkeypatch):
    monkeypatch.setattr(diagnostics, "EXAMPLES_AT_ONCE", 40)
    monkeypatch.setattr("plures.evaluate.curvature.MOST_EXAMPLES", 30)
    monkeypatch.setattr(Counting, "sizes", [], raising=False)
    measured(play(fedavg(budget=steps(1)), 0, population=federation([100]), module=network(Counting)))
    assert set(Counting.sizes) == {40, 20, 30}


# Drops of the loss


def head_descended(params: Params, batch: Batch, lr: float, count: int) -> Params:
    """Plain full-batch gradient descent on the head."""
    for _ in range(count):
        leaves = {name: params[name].clone().requires_grad_() for name in HEAD}
        loss = F.cross_entropy(functional_call(network(), params | leaves, (batch.inputs,)), batch.targets)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        params = params | {name: params[name] - lr * grad for name, grad in zip(HEAD, grads, strict=True)}
    return params


def loss_of(params: Params, batch: Batch) -> float:
    return float(F.cross_entropy(functional_call(network(), params, (batch.inputs,)), batch.targets))


def test_inner_steps_of_pflego_lower_the_loss_by_as_much_as_a_plain_loop():
    """tau - 1 = 4 inner steps, then one at the server's rate of 0.1, by preset `exact` times n_i / n of all clients."""
    run = play(pflego(tau=5, client_lr=0.05, server=0.1, preset="exact"), 2)
    inner, joint = [], []
    for client, batch in enumerate(run.population.batches):
        arrived = run.model(client)
        moved = head_descended(arrived, batch, lr=0.05, count=4)
        last = head_descended(moved, batch, lr=0.1 * batch.num_examples / run.population.total_examples, count=1)
        inner.append(loss_of(arrived, batch) - loss_of(moved, batch))
        joint.append(loss_of(moved, batch) - loss_of(last, batch))
    found = measured(run)
    assert found["loss_drop/personal"] > 0
    assert found["loss_drop/personal"] == pytest.approx(sum(inner) / 5, rel=1e-12)
    assert found["loss_drop/personal observing shared"] == pytest.approx(sum(joint) / 5, rel=1e-12)


MINI_BATCHES = fedavg(budget=epochs(2, batch=3))
SHARES_OF_THE_COHORT = pflego(tau=3, client_lr=0.05, server=sgd(0.1), alpha_norm="round", alpha_in_head=True)


@pytest.mark.parametrize("method", [MINI_BATCHES, SHARES_OF_THE_COHORT], ids=["mini-batches", "shares of the cohort"])
def test_drops_are_those_of_the_next_round_with_everybody_in_it(method):
    """By the rates, batches and dropout that clients then have in round 3, to the last bits of the sums."""
    before, after = (play(method, rounds, module=network(Dropping)) for rounds in (2, 3))
    drops = [
        loss_of(before.model(visit.client), visit.data) - loss_of(result.trained, visit.data)
        for visit, result in after.results[-5:]
    ]
    found = [value for name, value in measured(before).items() if name.startswith("loss_drop/")]
    assert len(found) == len(method.local)
    assert sum(found) == pytest.approx(sum(drops) / 5, rel=1e-12)


def test_a_network_that_draws_while_it_is_looked_at_trains_as_it_would():
    class Drawing(Dropping):
        """Draws in evaluation too, to no effect."""

        def forward(self, inputs: Tensor) -> Tensor:
            if not self.training:
                torch.rand(1)
            return super().forward(inputs)

    found = [measured(play(MINI_BATCHES, 1, module=network(module))) for module in (Dropping, Drawing)]
    assert found[0]["loss_drop/shared"] == found[1]["loss_drop/shared"]


def test_phases_of_one_name_are_told_apart_as_in_the_reports_of_rounds():
    base = fedavg(budget=steps(1))
    run = play(replace(base, local=base.local * 3), 1)
    told = [name for name in measured(run) if name.startswith("loss_drop/")]
    assert told == [f"loss_drop/{name}" for name in run.reports[0].losses]
    assert len(told) == 3


def test_a_penalty_is_no_part_of_the_drop():
    """Both phases go the same way; a penalty that is constant changes no step."""
    base = fedavg(budget=steps(2))
    fined = replace(base.local[0], penalty=lambda params, visit: torch.tensor(7.0))
    found = [measured(play(method, 0)) for method in (base, replace(base, local=(fined,)))]
    assert found[0] == pytest.approx(found[1], rel=1e-12, nan_ok=True)


# Methods


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
