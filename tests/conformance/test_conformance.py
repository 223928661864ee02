"""What every method must do on every engine, whatever else it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache

import pytest
import torch
from torch import Tensor

from plures.core.client import run_client
from plures.core.context import RoundContext, Server
from plures.core.loop import start, train
from plures.core.method import Method
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.roles import Engine
from plures.core.types import PERSONAL, SHARED_BUFFERS, Batch, Params, is_known, travels
from plures.engines.sequential import Sequential
from plures.methods import METHODS
from plures.participation import binomial, uniform
from plures.stores.memory import MemoryStore
from plures.wire import Codec, encode
from tests.conformance.table import ENGINES, ROWS, TABLE, Row, has_option
from tests.helpers.methods import (
    SEED,
    Given,
    Played,
    Population,
    assert_all_near,
    assert_near,
    assert_same_bits,
    copy_of,
    equal_bits,
    network,
    part_of,
    play,
    same_bits,
)

rows = pytest.mark.parametrize("row", ROWS, ids=str)
first_rows = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[] if row.variant == next(iter(row.entry.variants)) else pytest.mark.slow)
        for row in ROWS
    ],
    ids=str,
)
engines = pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES.keys())
TWO = uniform(2)


def played(row: Row, make_engine: Callable[[], Engine], rounds: int = 3, sampler=TWO, **others) -> Played:
    options = {key: others.pop(key) for key in ("population", "store", "module", "wire") if key in others}
    options = {"population": row.population(), "module": network(row.network)} | options
    return play(row.make(**others), rounds, sampler, engine=make_engine(), **options)


@cache
def usual(row: Row, make_engine: Callable[[], Engine]) -> Played:
    """Four rounds of two clients, run once for all tests that only look at them."""
    return played(row, make_engine, rounds=4)


def names_that_travel(run: Played) -> set[str]:
    kept = TABLE[run.program.method.name].at_server
    return {name for name, part in run.program.binding(0).parts.items() if travels(part) and part not in kept}


def names_at_server(run: Played) -> set[str]:
    return set(run.program.binding(0).names(*TABLE[run.program.method.name].at_server))


def names_that_stay(run: Played) -> set[str]:
    return set(run.program.initial_state(0))


def is_loose(row: Row, name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in row.entry.loose)


def assert_states_near(row: Row, actual: dict[int, Params], expected: dict[int, Params], rel: float) -> None:
    """As near as that, and what has no effect near in absolute numbers."""
    assert actual.keys() == expected.keys()
    for client, wanted in expected.items():
        firm = [name for name in wanted if not is_loose(row, name)]
        assert actual[client].keys() == wanted.keys()
        assert_near(part_of(actual[client], firm), part_of(wanted, firm), rel)
        for name in wanted.keys() - set(firm):
            assert torch.allclose(actual[client][name].double(), wanted[name].double(), rtol=rel, atol=1e-7), name


def assert_same_optimizer(left: Server, right: Server) -> None:
    assert left.optimizer.keys() == right.optimizer.keys()
    for part, groups in left.optimizer.items():
        assert groups.keys() == right.optimizer[part].keys()
        for group, tensors in groups.items():
            assert_same_bits(tensors, right.optimizer[part][group])


def assert_same_run(left: Played, right: Played) -> None:
    assert_same_bits(left.shared, right.shared)
    assert_same_optimizer(left.server, right.server)
    for client in left.final:
        assert_same_bits(left.final[client], right.final[client])
    assert left.reports == right.reports


# The table itself


def test_every_registered_method_has_a_row_and_nothing_else_has():
    assert set(TABLE) == set(METHODS)
    assert METHODS


@pytest.mark.parametrize("method", TABLE)
def test_every_method_has_variants_and_most_have_rates(method):
    entry = TABLE[method]
    assert entry.variants
    assert set(entry.without_rates) < set(entry.variants)


def test_there_are_engines():
    assert ENGINES
    assert {make().name for make in ENGINES.values()} == set(ENGINES)


@pytest.mark.parametrize("method", [method for method in TABLE if has_option(method, "stateful")])
def test_every_method_that_can_be_stateless_has_a_stateless_variant(method):
    assert any(not options.get("stateful", True) for options in TABLE[method].variants.values())


# What a round may change


@rows
@engines
def test_who_is_not_in_the_cohort_keeps_its_state_bitwise(row, make_engine):
    run = usual(row, make_engine)
    assert len({client for cohort in run.cohorts for client in cohort}) > 2
    moved = 0
    for before, after, cohort in zip(run.states, run.states[1:], run.cohorts, strict=False):
        for client in range(run.population.num_clients):
            if client not in cohort:
                assert_same_bits(after[client], before[client])
            else:
                moved += not same_bits(after[client], before[client])
    # Who is in the cohort does move, if it keeps anything but masks: 4 rounds of 2 clients.
    keeps = run.program.method.stateful and any(value.dtype != torch.bool for value in run.states[0][0].values())
    assert moved == 8 if keeps else moved <= 8


@rows
@engines
def test_no_input_of_a_round_is_written_into(row, make_engine):
    population, module = row.population(), network(row.network)
    program = Program(
        row.make(),
        OneNetwork(module=module),
        loss=torch.nn.functional.cross_entropy,
        seed=SEED,
        example=lambda: population.client(0).train.inputs[:1],
        num_clients=population.num_clients,
    )
    store, engine = MemoryStore(), make_engine()
    server = start(program)
    for _ in range(2):  # in the second round the server's optimiser and the clients have a state
        watched = {
            "shared": server.shared,
            "data": {f"{i}{side}": value for i, batch in enumerate(population.batches) for side, value in name(batch)},
            "module": dict(module.state_dict()),
            "initial values": dict(program.binding(0).values),
            **{f"state {i}": store.get(i) or program.initial_state(i) for i in range(population.num_clients)},
            **{f"{part} {group}": v for part, groups in server.optimizer.items() for group, v in groups.items()},
        }
        copies = {what: copy_of(params) for what, params in watched.items()}
        rounds = train(
            program,
            population,
            rounds=server.round + 1,
            sampler=TWO,
            engine=engine,
            store=store,
            server=server,
        )
        (committed,) = rounds
        for what, params in watched.items():
            assert_same_bits(params, copies[what])
        server = committed.server


def name(batch: Batch) -> list[tuple[str, Tensor]]:
    return [("inputs", batch.inputs), ("targets", batch.targets)]


@rows
@engines
def test_no_result_shares_memory_with_what_a_client_was_given(row, make_engine):
    """An engine that reuses buffers in place would otherwise change the server or the store behind their backs."""
    run = usual(row, make_engine)
    for visit, result in run.results:
        given = {value.data_ptr() for params in (visit.received, visit.state) for value in params.values()}
        moving = set(run.program.binding(0).names(*{part for phase in row.make().local for part in phase.moves}))
        sent = list(result.upload.values.values()) + list(result.buffers.values())
        kept = [value for name, value in result.state.items() if name in moving]
        assert not given & {value.data_ptr() for value in sent + kept}


@rows
@engines
def test_the_same_run_twice_gives_the_same_bits_whatever_else_is_drawn(row, make_engine):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    again = played(row, make_engine, rounds=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_run(again, usual(row, make_engine))


# What is sent


@rows
@engines
def test_only_what_is_shared_is_sent_or_held_by_the_server(row, make_engine):
    run = usual(row, make_engine)
    parts, travelling = run.program.binding(0).parts, names_that_travel(run)
    assert set(run.shared) == travelling | names_at_server(run)
    assert set(run.shared).isdisjoint(names_that_stay(run))
    for visit, result in run.results:
        assert set(visit.received) == travelling
        assert set(result.upload.values) == {name for name in travelling if parts[name] != SHARED_BUFFERS}
        assert set(result.buffers) == {name for name in travelling if parts[name] == SHARED_BUFFERS}
        assert set(result.state) == names_that_stay(run)


@rows
@engines
def test_no_personal_values_are_in_what_is_sent_or_held_by_the_server(row, make_engine):
    run = usual(row, make_engine)
    held = [run.shared, *(group for groups in run.server.optimizer.values() for group in groups.values())]
    for visit, result in run.results:
        sent = [result.upload.values, result.buffers, *held]
        for own in [*result.state.values(), *visit.state.values()]:
            for value in [value for params in sent for value in params.values()]:
                assert value.untyped_storage().data_ptr() != own.untyped_storage().data_ptr()
        # By value too, for what the client has learnt; zeros say nothing about anybody.
        parts = run.program.binding(0).parts  # what the server is told of anyway is no secret
        for own in [value for name, value in result.state.items() if not is_known(parts[name])]:
            for value in [value for params in sent for value in params.values() if own.any() and own.numel() > 1]:
                assert value.shape != own.shape or not torch.equal(value, own)


@rows
@engines
def test_what_is_sent_arrives_as_it_was_and_its_bytes_are_counted(row, make_engine):
    """Once carried as it is, once really encoded and decoded; the bytes are those of the encoded messages."""
    run, coded = usual(row, make_engine), played(row, make_engine, rounds=4, wire=Codec(through_bytes=True))
    assert_same_bits(coded.shared, run.shared)
    assert_all_near(coded.final, run.final, 0.0)
    assert_same_optimizer(coded.server, run.server)
    for report, exact in zip(coded.reports, run.reports, strict=True):
        uploads = [result.message() for visit, result in coded.results if visit.round == report.round]
        sent = [message for message in uploads if message.parcel.values or message.exact]
        assert report.bytes_up == sum(len(encode(message)) for message in sent)
        assert (report.values_up, report.values_down) == (exact.values_up, exact.values_down)
    assert bool(names_that_travel(run)) == (run.reports[0].bytes_up > 0) == (run.reports[0].bytes_down > 0)


@rows
@engines
def test_a_dense_method_sends_every_value_of_what_it_shares_in_both_directions(row, make_engine):
    """Two clients in each round; counters of batches are no values."""
    run = usual(row, make_engine)
    values = run.program.binding(0).values
    shared = 2 * sum(values[name].numel() for name in names_that_travel(run) if values[name].is_floating_point())
    for report in run.reports:
        sparse = any(result.upload.held is not None for _, result in run.results)
        assert (report.values_down, report.values_up) == (shared, shared) or sparse
        assert max(report.values_down, report.values_up) <= shared


class Lossy:
    """A wire that rounds both ways, and keeps what has arrived."""

    def __init__(self) -> None:
        self.codec = Codec(upload="int8", download="float16")
        self.ups: list[Params] = []
        self.downs: list[Params] = []

    def carry(self, message, *, upward, draws):
        arrived, sent = self.codec.carry(message, upward=upward, draws=draws)
        (self.ups if upward else self.downs).append(arrived.parcel.values)
        return arrived, sent


@pytest.mark.parametrize("row", [row for row in ROWS if row.variant == next(iter(row.entry.variants))], ids=str)
@engines
def test_a_lossy_wire_rounds_what_is_sent_both_ways_and_training_goes_on(row, make_engine):
    """Clients and the server work with what has arrived, and a run that sends no real numbers is the exact one."""
    exact, wire = usual(row, make_engine), Lossy()
    run = played(row, make_engine, rounds=4, wire=wire)
    assert all(value.isfinite().all() for params in (run.shared, *run.final.values()) for value in params.values())
    for (visit, result), down, up in zip(run.results if wire.downs else [], wire.downs, wire.ups, strict=True):
        assert_same_bits(part_of(visit.received, list(down)), down)
        assert_same_bits(result.upload.values, up)
    if run.reports[0].values_up == 0:
        assert_same_bits(run.shared, exact.shared)
        assert_all_near(run.final, exact.final, 0.0)
    else:
        assert not any(equal_bits(value, exact.shared[name]) for name, value in run.shared.items())


# Who takes part, in which order, under which number


@rows
@engines
def test_the_order_of_a_cohort_changes_roundings_only(row, make_engine):
    cohorts = [(0, 1, 3), (2, 3, 4), (1, 2, 3)]
    straight = played(row, make_engine, sampler=Given(cohorts, 0.6))
    turned = played(row, make_engine, sampler=Given([cohort[::-1] for cohort in cohorts], 0.6))
    # Adam divides by the size of the gradients, so a rounding counts for more where they are small.
    assert_near(turned.shared, straight.shared, 1e-10)
    assert_states_near(row, turned.final, straight.final, 1e-10)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.entry.numbered], ids=str)
@engines
def test_the_numbers_of_the_clients_change_roundings_only(row, make_engine):
    """With full batches and a common start nothing is drawn by a client's number."""
    places = [3, 0, 4, 1, 2]  # client i of one run is client places[i] of the other
    cohorts = [(0, 1, 3), (2, 3, 4), (1, 2, 3)]
    straight = played(row, make_engine, sampler=Given(cohorts, 0.6), **row.entry.unkeyed)
    batches = [None] * 5
    for client, place in enumerate(places):
        batches[place] = straight.population.batches[client]
    renumbered = Given([tuple(sorted(places[client] for client in cohort)) for cohort in cohorts], 0.6)
    turned = played(row, make_engine, sampler=renumbered, population=Population(batches), **row.entry.unkeyed)
    assert_near(turned.shared, straight.shared, 1e-10)
    renamed = {client: turned.final[place] for client, place in enumerate(places)}
    assert_states_near(row, renamed, straight.final, 1e-10)


@rows
@engines
def test_a_round_without_clients_leaves_server_and_clients_as_they_were(row, make_engine):
    run = played(row, make_engine, rounds=4, sampler=binomial(0.25))
    assert run.cohorts[2] == ()
    before, after = run.servers[2], run.servers[3]
    assert after.round == before.round + 1 == 3
    assert_same_bits(after.shared, before.shared)
    assert_same_optimizer(after, before)
    for client, state in run.states[2].items():
        assert_same_bits(run.states[3][client], state)
    report = run.reports[2]
    assert (report.bytes_up, report.bytes_down, report.network_passes, report.losses) == (0, 0, 0.0, {})
    assert run.cohorts[3] != ()


# What moves, and from where


@pytest.mark.parametrize("row", [row for row in ROWS if row.variant not in row.entry.without_rates], ids=str)
@engines
def test_with_rates_of_zero_nothing_that_is_trained_moves(row, make_engine):
    """Running statistics are no parameters: they follow the data at any rate."""
    run = played(row, make_engine, **row.entry.still)
    trained = {name for name, part in run.program.binding(0).parts.items() if "buffers" not in part}
    for before, after in [(run.servers[0].shared, run.shared), *((run.states[0][i], run.final[i]) for i in run.final)]:
        names = trained & set(before)
        assert_same_bits({name: after[name] for name in names}, {name: before[name] for name in names})


@rows
@engines
def test_training_moves_every_trained_parameter_and_lowers_the_loss(row, make_engine):
    """Guards the tests above, which a method that did nothing would pass; the loss is that of the personal models."""
    run = played(row, make_engine, rounds=6, sampler=Given([(0, 1, 2, 3, 4)], 1.0))
    for name, value in run.shared.items():
        assert not torch.equal(value, run.servers[0].shared[name]), name
    if run.program.method.stateful:
        # What the server is told of may stay: masks of dense tensors, or by the method's rule; capacities.
        parts = run.program.binding(2).parts
        for name, value in run.final[2].items():
            free = value.dtype == torch.bool or is_known(parts[name]) or is_loose(row, name)
            assert free or not torch.equal(value, run.states[0][2][name]), name
    first, last = run.reports[0].losses, run.reports[-1].losses
    assert sum(last.values()) < sum(first.values())


@pytest.mark.parametrize("row", [row for row in ROWS if not row.options.get("stateful", True)], ids=str)
@engines
def test_a_stateless_method_neither_keeps_nor_uses_what_a_client_had(row, make_engine):
    """Round 3 from the same server, once with a store full of strange states and once with an empty one."""
    run = played(row, make_engine, sampler=Given([(0, 1), (1, 2), (0, 1, 2)], 0.6))
    assert list(run.store.clients()) == []
    strange = {i: {name: -2.0 * value for name, value in run.program.initial_state(i).items()} for i in range(5)}
    store = MemoryStore()
    store.commit(2, strange)
    program, population = run.program, run.population
    again = Given([(0, 1), (1, 2), (0, 1, 2)], 0.6)
    (committed,) = train(
        program, population, rounds=3, sampler=again, engine=make_engine(), store=store, server=run.servers[2]
    )
    assert_same_bits(committed.server.shared, run.shared)
    assert committed.report == run.reports[2]
    for i, state in strange.items():
        assert_same_bits(store.get(i), state)
    # The strange states do matter to the stateful twin, so the comparison above says something.
    stateful = Program(
        row.make(stateful=True), program.networks, loss=program.loss, seed=program.seed, example=program.example
    )
    (other,) = train(
        stateful, population, rounds=3, sampler=again, engine=make_engine(), store=store, server=run.servers[2]
    )
    assert other.report.losses != run.reports[2].losses


@rows
@engines
def test_the_personal_part_has_a_say_in_what_its_client_predicts(row, make_engine):
    """A method that forgot its `predict` would show the shared model in the place of the client's own."""
    run = usual(row, make_engine)
    own, inputs = run.program.binding(2).names(PERSONAL), run.population.batches[2].inputs
    params = run.model(2)
    moved = params | {name: params[name] + 0.5 for name in own}
    assert torch.equal(predicted(run, params, inputs), predicted(run, moved, inputs)) == (not own)


@rows
@engines
def test_adaptation_changes_what_a_client_predicts_and_leaves_the_run_alone(row, make_engine):
    """It is how newcomers get a model of their own: every method has a way."""
    run = usual(row, make_engine)
    assert run.program.method.adapt
    inputs, before = run.population.batches[2].inputs, copy_of(run.shared)
    assert not torch.allclose(predicted(run, run.adapted(2), inputs), predicted(run, run.model(2), inputs))
    assert_same_bits(run.shared, before)


def predicted(run: Played, params: Params, inputs: Tensor) -> Tensor:
    run.program.binding(2).task.train(False)
    with torch.no_grad():
        return run.output(params, inputs)


# Precision, sums, engines


@rows
@engines
def test_single_precision_agrees_loosely_with_double(row, make_engine):
    double = usual(row, make_engine)
    single = play(
        started_in_double(row.make()),
        4,
        TWO,
        engine=make_engine(),
        population=row.population(),
        module=network(row.network).float(),
    )
    floating = [value for value in single.shared.values() if value.is_floating_point()]
    assert all(value.dtype == torch.float32 for value in floating)
    assert_near(single.shared, double.shared, 1e-3)
    visited = {client for cohort in double.cohorts for client in cohort}
    assert_states_near(row, {i: single.final[i] for i in visited}, {i: double.final[i] for i in visited}, 1e-3)
    for report, exact in zip(single.reports, double.reports, strict=True):
        assert report.losses == pytest.approx(exact.losses, rel=1e-3)


def started_in_double(method: Method) -> Method:
    """The same start in either precision: torch draws other numbers in single precision."""

    def start(beginning):
        state, received = (cast(params, torch.float64) for params in (beginning.state, beginning.received))
        drawn = method.start(replace(beginning, state=state, received=received))
        return {name: value.to(beginning.state[name].dtype) for name, value in drawn.items()}

    return replace(method, start=start)


def cast(params: Params, dtype: torch.dtype) -> Params:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in params.items()}


class Backwards:
    """Runs the cohort from its end, but hands the results over in the order of the visits."""

    name = "backwards"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def run(self, program, visits):
        return iter(list(self.engine.run(program, list(visits)[::-1]))[::-1])

    def map(self, work, visits):
        return iter(list(self.engine.map(work, list(visits)[::-1]))[::-1])


@first_rows
@engines
def test_forty_clients_sum_to_the_same_bits_in_whatever_order_they_are_run(row, make_engine):
    """40 clients are two blocks of 16 and one of 8; blocks are cut by place in the cohort, not by time of arrival."""
    population = row.population([2 + client % 5 for client in range(40)])
    everybody = Given([tuple(range(40))], 1.0)
    run = played(row, make_engine, 1, everybody, population=population)
    backwards = played(row, lambda: Backwards(make_engine()), 1, everybody, population=population)
    assert_same_run(backwards, run)
    assert run.reports[0].cohort == tuple(range(40))


@rows
@engines
def test_an_engine_gives_the_results_of_clients_run_one_by_one_in_order(row, make_engine):
    """The plain twin: `run_client` in a loop. Faster engines may differ by roundings."""
    run = usual(row, Sequential)
    context = RoundContext(
        program=run.program,
        engine=make_engine(),
        population=run.population,
        store=run.store,
        server=run.server,
        clients=(4, 0, 2),
        inclusion=0.6,
    )
    results = list(context.engine.run(run.program, context.visits()))
    assert [result.client for result in results] == [4, 0, 2]
    for visit, result in zip(context.visits(), results, strict=True):
        twin = run_client(run.program.method, run.program.binding(visit.client), visit)
        assert_near(result.upload.values, twin.upload.values, 1e-10)
        assert_states_near(row, {0: result.state}, {0: twin.state}, 1e-10)
        assert_near(result.buffers, twin.buffers, 1e-10)
        assert_states_near(row, {0: result.trained}, {0: twin.trained}, 1e-10)
        assert {phase: float(loss) for phase, loss in result.losses.items()} == pytest.approx(
            {phase: float(loss) for phase, loss in twin.losses.items()}, rel=1e-10
        )
        assert result.passes == twin.passes
    assert list(context.engine.map(lambda visit: visit.client, context.visits())) == [4, 0, 2]
