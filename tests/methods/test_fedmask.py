"""FedMask: frozen weights, and masks that clients learn within the entries that they own."""

from __future__ import annotations

import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidModel, InvalidSplit
from plures.local import epochs, sgd, steps
from plures.methods import fedmask
from plures.models import lenet5
from plures.participation import uniform
from tests.helpers.fedmask import BOTH, A, W, columns, tiny
from tests.helpers.methods import (
    BODY,
    HEAD,
    Given,
    Population,
    assert_all_near,
    assert_same_bits,
    federation,
    network,
)
from tests.oracles.common import batches_of, client_loss
from tests.oracles.fedmask import fedmask as oracle_fedmask
from tests.oracles.settings import ROUNDS, settings

# The paper


@settings
@pytest.mark.parametrize(
    ("masked", "structured", "how", "quorum"),
    [(BOTH, True, "sigmoid", 2), ("head", False, "identity", 2), (BOTH, False, "sigmoid", 1)],
    ids=["units", "entries, identity", "entries, no quorum"],
)
def test_fedmask_is_its_description(budget, sampler, masked, structured, how, quorum):
    first_budget = epochs(1, batch=4)
    run = tiny(
        ROUNDS,
        sampler,
        masked=masked,
        structured=structured,
        straight_through=how,
        quorum=quorum,
        first_score=0.02,
        lr=3.0,
        budget=budget,
        first_budget=first_budget,
    )
    names, clients = [A, W] if masked == BOTH else [W], run.population.batches
    # 0.7 of 3 rows of the body, of 3 columns of the head, of 12 and 9 entries, rounded down.
    vote, given, scores, owned = oracle_fedmask(
        clients,
        {name: run.program.binding(0).values[name] for name in BODY + HEAD},
        {name: {A: 0, W: 1}[name] if structured else None for name in names},
        dict.fromkeys(names, 2) if structured else {A: 8, W: 6},
        run.cohorts,
        batches_of(clients, budget),
        batches_of(clients, first_budget),
        lr=3.0,
        first=0.02,
        quorum=quorum,
        identity=how == "identity",
    )
    assert_same_bits(run.shared, {f"vote.{n}": vote[n] for n in names} | {f"given.{n}": given[n] for n in names})
    states = {i: run.final[i] for i in scores}
    assert_all_near(
        states,
        {i: {f"score.{n}": scores[i][n] for n in names} | {f"owned.{n}": owned[i][n] for n in names} for i in scores},
    )
    sent = [result.upload.values for _, result in run.results]
    assert any(not torch.equal(one[f"vote.{n}"], one[f"given.{n}"]) for one in sent for n in names), "some bits are 0"


# What stays as it is


def test_no_weight_ever_moves_or_is_sent():
    run, module = tiny(4, uniform(2), masked=BOTH), network()
    assert set(run.shared) == {"vote.body.weight", "given.body.weight", "vote.head.weight", "given.head.weight"}
    for client in range(5):
        params = run.model(client)
        assert_same_bits({n: params[n] for n in BODY + HEAD}, {n: v.detach() for n, v in module.named_parameters()})
    for _, result in run.results:
        assert_same_bits(
            {n: result.trained[n] for n in BODY + HEAD}, {n: run.program.binding(0).values[n] for n in BODY + HEAD}
        )


def test_a_client_that_was_never_visited_has_the_plain_network_bit_for_bit():
    run, inputs = tiny(0, masked=BOTH), federation().batches[1].inputs
    assert torch.equal(run.output(run.model(1), inputs), network()(inputs))
    assert run.program.has_global_model(), "which is what evaluation calls the global model"


@pytest.mark.parametrize("options", [{}, {"masked": BOTH}, {"structured": False}, {"lr": sgd(0.5, 0.9, False, 0.01)}])
def test_masks_are_zeros_and_ones_within_the_density_and_ownership_only_shrinks(options):
    run = tiny(5, uniform(3), **options)
    weights = run.program.binding(0).values
    for visit, result in run.results:
        seen = run.program.method.predict(result.trained, visit.data.inputs)
        for name in [name.removeprefix("owned.") for name in result.state if name.startswith("owned.")]:
            own, before = result.state[f"owned.{name}"], visit.state[f"owned.{name}"]
            one = seen[name] == weights[name]
            assert (one | (seen[name] == 0)).all()
            assert not (one & ~own).any()
            assert own.double().mean() <= 0.7
            assert torch.equal(own, before) or before.all(), "pruned once"
            assert not result.state[f"score.{name}"][~own].any()
    for report in run.reports:  # a first visit trains the whole model, and says so
        first = any(result.whole_passes for visit, result in run.results if visit.round == report.round)
        assert (report.used > 1) == first


def test_two_thirds_of_the_weights_are_promised_and_what_is_not_masked_is_whole():
    """2 of 3 rows of 4 weights, and 2 of 3 columns of 3; biases have no masks."""
    run = tiny(2, masked=BOTH)
    promised = run.program.sizes(0)
    assert promised == {A: 8, "body.bias": 3, W: 6, "head.bias": 3}
    for _, result in run.results:
        assert {name: result.used[name] for name in ("body.bias", "head.bias")} == {"body.bias": 3, "head.bias": 3}
        assert all(result.used[name] <= size for name, size in promised.items())


# Pruning


def test_of_the_output_layer_columns_are_pruned_and_of_others_rows():
    """0.5 of 3 units is 1: one column of the head, so that every class has a weight left, and one row of the body."""
    run = tiny(1, masked=BOTH, density=0.5)
    for state in run.final.values():
        head, body = state["owned.head.weight"], state["owned.body.weight"]
        assert head.sum(0).sort().values.tolist() == [0, 0, 3]
        assert body.sum(1).sort().values.tolist() == [0, 0, 4]


def test_of_convolutions_whole_filters_are_pruned():
    module = network(lambda: lenet5(shape=(1, 16, 16), classes=3, filters=(4, 5), fc=(6,)))
    batch = federation([6]).batches[0]
    data = Population([batch._replace(inputs=batch.inputs.repeat(1, 64).reshape(6, 1, 16, 16))] * 2)
    run = tiny(1, module=module, population=data, masked=BOTH, density=0.5, budget=steps(1), first_budget=steps(1))
    name = next(name for name, value in module.named_parameters() if value.shape == (4, 1, 5, 5))
    assert run.final[0][f"owned.{name}"].sum((1, 2, 3)).sort().values.tolist() == [0, 0, 25, 25]


def test_the_first_visit_trains_all_scores_and_then_those_that_are_left():
    """Passes: 2 epochs and 3 more on the first visit, then 2; the twin without a first budget prunes at once."""
    run = tiny(2, Given([(0, 1)]), first_budget=epochs(3, batch=3))
    assert [report.network_passes for report in run.reports] == [2 * (3 + 2), 2 * 2]
    at_once = tiny(1, Given([(0, 1)]), first_budget=epochs(0), lr=0.0)
    # Without training all scores are equal, and the first units are kept.
    assert torch.equal(at_once.final[0][f"owned.{W}"], columns(0, 1))
    assert at_once.reports[0].network_passes == 2 * 2


def test_the_loss_of_a_first_visit_is_that_of_all_its_passes():
    """At a rate of 0: one pass with the plain network, and three with the first two columns of its head."""
    run = tiny(1, Given([(0,)]), first_budget=steps(1), budget=steps(3), lr=0.0)
    plain, client = {n: v.detach() for n, v in network().named_parameters()}, run.population.batches[0]
    cut = plain | {W: plain[W] * columns(0, 1)}
    expected = (client_loss(plain, client) + 3 * client_loss(cut, client)) / 4
    assert run.reports[0].losses == {"scores": pytest.approx(float(expected), rel=1e-12)}


def test_at_a_density_of_one_nothing_is_pruned_and_there_is_no_first_budget():
    run = tiny(3, density=1.0, first_budget=epochs(7), lr=3.0)
    assert all(state[f"owned.{W}"].all() for state in run.final.values())
    assert [report.network_passes for report in run.reports] == [5 * 2] * 3
    assert not run.shared[f"vote.{W}"].all(), "there are zeros all the same"


def test_clients_keep_what_their_own_capacity_allows():
    """Of 3 columns: 1 / 3 is one, 0.7 two, 1 all."""
    run = tiny(2, capacity_of=lambda client: [1 / 3, 0.7, 1.0, 0.1, 0.99][client])
    counts = {client: int(state[f"owned.{W}"].any(0).sum()) for client, state in run.final.items()}
    assert counts == {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}, "and one at least"


# What is refused


@pytest.mark.parametrize("masked", ["*.bias", [], "all_shared"])
def test_a_selection_without_weights_is_refused(masked):
    with pytest.raises(InvalidModel, match="nothing to mask"):
        tiny(0, masked=masked)


def test_a_selection_of_nothing_is_refused():
    with pytest.raises(InvalidSplit, match="matches no parameter"):
        tiny(0, masked="tail.*")


@pytest.mark.parametrize(
    "options",
    [
        {"density": 0.0},
        {"density": 1.1},
        {"density": float("nan")},
        {"first_score": 0.0},
        {"first_score": -0.1},
        {"first_score": float("nan")},
        {"quorum": 0},
        {"quorum": 1.5},
        {"straight_through": "tanh"},
        {"lr": -0.1},
        {"clip_norm": 0.0},
        {"budget": 3},
        {"masked": 3},
    ],
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        fedmask(**options)
