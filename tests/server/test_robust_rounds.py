"""Robust rules by name, the methods that they are for, and real rounds with them."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from plures.core.context import Conduct
from plures.core.errors import InvalidConfig, TooFewClients
from plures.core.loop import start, train
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.sums import empty_sum
from plures.core.visit import Upload
from plures.engines.sequential import Sequential
from plures.engines.workers import Workers
from plures.local import epochs, sgd, steps
from plures.methods import METHODS, fedavg, fedper, fedspa, heterofl, pflego
from plures.participation import all_clients
from plures.server import ROBUST, as_summing, clipped, krum, median, trimmed_mean, uniform
from plures.server.robust import why_not
from plures.server.votes import counted
from plures.stores.memory import MemoryStore
from tests.conformance.table import ROWS
from tests.core.helpers import numbers
from tests.helpers.methods import NormedNetwork, TinyNetwork, assert_near, assert_same_bits, federation, network

RULES = {
    "median": median(),
    "trimmed mean": trimmed_mean(0.2),
    "clipped": clipped(0.5),
    "clipped to the median": clipped(),
    "krum": krum(1),
    "multi-krum": krum(1, keep=3),
}
WORK = {"budget": steps(2)}


class FirstIsHostile:
    """The first client tampers with what it sends; nothing else goes wrong."""

    def __init__(self, tamper):
        self.tamper = tamper

    def is_absent(self, seed, round, client):
        return False

    def seconds(self, seed, round, client):
        return 0.0

    def kills_worker(self, seed, round, client):
        return False

    def after(self, visit, result):
        return self.tamper(result) if visit.client == 0 else result


def rounds_of(method, rule, *, rounds=1, make=TinyNetwork, population=None, engine=None, faults=None, on_result=None):
    """Rounds on the tiny federation of five clients: the shared part before the first one and after each."""
    population = population or federation()
    program = Program(
        method,
        OneNetwork(module=network(make)),
        loss=F.cross_entropy,
        seed=3,
        example=lambda: population.client(0).train.inputs[:1],
        num_clients=population.num_clients,
    )
    done = train(
        program,
        population,
        rounds=rounds,
        sampler=all_clients(),
        engine=engine or Sequential(),
        store=MemoryStore(),
        on_result=on_result,
        conduct=Conduct(new_sum=rule, faults=faults),
    )
    return [start(program).shared, *(committed.server.shared for committed in done)]


# By name


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("median", median()),
        ("clipped", clipped("median")),
        ({"rule": "median"}, median()),
        ({"rule": "trimmed_mean", "share": 0.2}, trimmed_mean(0.2)),
        ({"rule": "clipped", "norm": 2}, clipped(2.0)),
        ({"rule": "krum", "attackers": 2, "keep": 5}, krum(2, keep=5)),
        ({"rule": "krum", "attackers": 0.2}, krum(0.2)),
    ],
)
def test_a_rule_is_named_as_in_an_experiment_file(value, made):
    found = as_summing(value)
    assert repr(found) == repr(made)
    assert type(found()) is type(made())


def test_no_rule_is_the_plain_sum_and_functions_are_taken_as_they_are():
    rule = krum(1)
    assert as_summing(None) is empty_sum
    assert as_summing(rule) is rule
    assert as_summing(empty_sum) is empty_sum


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("medain", "There is no robust rule 'medain'. Did you mean 'median'"),
        ({"rule": "mean"}, "There is no robust rule 'mean'."),
        ({"rule": 3}, "There is no robust rule '3'."),
        ({"share": 0.2}, 'give a rule such as "median" or {rule = "trimmed_mean", share = 0.2}'),
        (0.2, 'give a rule such as "median"'),
        (median, "what a rule gives when it is called, as median()"),
        ("trimmed_mean", "robust rule 'trimmed_mean' needs share."),
        ("krum", "robust rule 'krum' needs attackers."),
        ({"rule": "krum", "attakers": 1}, "has no option 'attakers'. Did you mean 'attackers'?"),
        ({"rule": "trimmed_mean", "share": 0.5}, "share of trimmed_mean must be 0 or more and below 0.5, not 0.5."),
        ({"rule": "trimmed_mean", "share": "0.1"}, "share of trimmed_mean must be 0 or more and below 0.5"),
        ({"rule": "krum", "attackers": 0.6}, "attackers of krum must be 0 or more and below 0.5, not 0.6."),
        ({"rule": "krum", "attackers": -1}, "attackers of krum must be a whole number, 0 or more, not -1."),
        ({"rule": "krum", "attackers": True}, "attackers of krum must be"),
        ({"rule": "krum", "attackers": 1, "keep": 0}, "keep of krum must be a whole number, 1 or more, not 0."),
        ({"rule": "clipped", "norm": 0}, "norm of clipped must be a number above 0 or 'median', not 0."),
        ({"rule": "clipped", "norm": "mean"}, "norm of clipped must be a number above 0 or 'median', not 'mean'."),
        ({"rule": "clipped", "norm": math.nan}, "norm of clipped must be a number above 0"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told(value, told):
    with pytest.raises(InvalidConfig) as error:
        as_summing(value)
    assert told in str(error.value)


def test_all_problems_of_a_rule_are_told_at_once():
    with pytest.raises(InvalidConfig) as error:
        as_summing({"rule": "krum", "kept": 2, "f": 1})
    assert len(error.value.problems) == 3


def test_every_rule_has_a_name():
    assert set(ROBUST) == {"clipped", "krum", "median", "trimmed_mean"}


# The methods


NOT_FOR = {"fedmask": "counts votes", "pfedhn": "has a round of its own"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_robust_sums_or_says_why_not(name):
    reason = why_not(METHODS[name].make())
    if name in NOT_FOR:
        assert reason is not None
        assert NOT_FOR[name] in reason
    else:
        assert reason is None


def test_votes_are_known_by_their_weight_too():
    assert why_not(fedavg(weight=counted)) is not None


FIRST_ROWS = {row.method: row for row in reversed(ROWS) if row.method not in NOT_FOR}


@pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=str)
def test_every_other_method_trains_with_the_median(row):
    before, after = rounds_of(row.make(), median(), make=row.network, population=row.population())
    assert all(bool(value.isfinite().all()) for value in after.values())
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert bool(moved) == (row.method != "local")


# Rounds


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize(
    "method",
    [
        fedavg(**WORK),
        fedper(**WORK),
        fedspa(**WORK, same_masks=False),
        pflego(tau=3, preset="exact"),
        heterofl(**WORK, width=0.5),
    ],
    ids=lambda method: method.name,
)
def test_methods_train_with_every_rule(method, rule):
    before, *_, after = rounds_of(method, rule, rounds=2)
    assert after.keys() == before.keys()
    assert all(bool(value.isfinite().all()) for value in after.values())
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_server_moves_by_the_median_of_what_clients_upload():
    uploads = []
    before, after = rounds_of(
        fedavg(**WORK), median(), on_result=lambda visit, result: uploads.append(result.upload.values)
    )
    expected = {
        name: before[name] - torch.stack([upload[name] for upload in uploads]).median(dim=0).values for name in before
    }
    assert_near(after, expected)


def test_pflego_goes_as_far_by_a_robust_mean_as_by_the_plain_one():
    # Weights p / inclusion of all clients add up to 1; uploads that are alike have their mean as every rule's.
    def alike(visit, trained):
        return Upload({name: torch.ones_like(value) for name, value in trained.shared.items()})

    method = replace(pflego(tau=2, preset="exact", server=sgd(0.5)), upload=alike)
    for rule in (empty_sum, median(), trimmed_mean(0.2), krum(1)):
        before, after = rounds_of(method, rule)
        assert_near(after, {name: value - 0.5 for name, value in before.items()})


@pytest.mark.parametrize("name", ["median", "trimmed mean", "krum", "multi-krum"])
def test_one_hostile_client_in_five_changes_little(name):
    def larger(result):
        return result._replace(upload=Upload({n: -1e9 * value for n, value in result.upload.values.items()}))

    method = fedavg(lr=0.05, **WORK, weight=uniform)
    before, honest = rounds_of(method, empty_sum)
    _, attacked = rounds_of(method, RULES[name], faults=FirstIsHostile(larger))
    _, broken = rounds_of(method, empty_sum, faults=FirstIsHostile(larger))

    def moved(shared):
        return max(float((shared[name] - before[name]).abs().max()) for name in before)

    assert moved(attacked) < 5 * moved(honest)
    assert moved(broken) > 1e6 * moved(honest)


@pytest.mark.parametrize("name", RULES)
def test_hostile_running_statistics_stay_in_the_range_of_honest_ones(name):
    def huge(result):
        return result._replace(buffers={kind: 10**6 * value + 10**6 for kind, value in result.buffers.items()})

    uploads = []
    before, after = rounds_of(
        fedavg(**WORK, buffers="shared"),
        RULES[name],
        make=NormedNetwork,
        faults=FirstIsHostile(huge),
        on_result=lambda visit, result: uploads.append(result.buffers),
    )
    for kind in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        honest = torch.stack([before[kind] - upload[kind] for upload in uploads[1:]])
        assert bool((after[kind] >= honest.min(dim=0).values).all())
        assert bool((after[kind] <= honest.max(dim=0).values).all())
        assert after[kind].dtype == before[kind].dtype


@pytest.mark.parametrize("rule", [clipped(0.1), clipped(), krum(1), median()])
def test_of_running_statistics_rules_for_whole_uploads_take_the_median(rule):
    total = rule.buffers()
    for value in (1.0, 2.0, 1e30):
        total.add(Upload({"running_var": numbers(value, value)}), share=5.0, divisor=5.0, per_coordinate=False)
    assert total.direction(divided=True)["running_var"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", RULES)
def test_any_number_of_workers_gives_the_same_bits(name):
    population = federation([3 + client % 5 for client in range(20)])
    method = fedavg(budget=epochs(1, batch=3))
    one, two = (rounds_of(method, RULES[name], population=population, engine=Workers(count))[-1] for count in (1, 2))
    assert_same_bits(one, two)


def test_a_round_that_is_too_small_for_krum_ends_the_run():
    with pytest.raises(TooFewClients, match="Krum tells 2 hostile uploads from 5 others or more, but a round has 5"):
        rounds_of(fedavg(**WORK), krum(2))
