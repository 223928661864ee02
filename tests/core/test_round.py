"""One round: server steps, failures that commit nothing, and what is counted."""

import pytest
import torch

from plures.core.errors import ClientFailed, Diverged, PluresError
from plures.core.loop import start, train
from plures.core.types import PERSONAL, SHARED
from plures.core.visit import Upload
from plures.engines.sequential import Sequential
from plures.local import adam, epochs, exponential, gradient, sgd, steps
from plures.server import uniform
from plures.stores.memory import MemoryStore
from tests.core.helpers import (
    Clients,
    Given,
    class_clients,
    class_program,
    copied,
    mean_output,
    method,
    network,
    numbers,
    pair_clients,
    pair_program,
    phase,
    rounds_of,
    same_bits,
)

ONES = pair_clients([(1, 1, 0)])
"""One example at x = (1, 1) with target 0: the residual is a + b = 3, and so are both gradients."""
THREE_FOUR = pair_clients([(3, 4, 0)])
"""With the mean output as the loss, the gradients are 3 and 4 at any point."""
NAN = float("nan")


def shared_a(done):
    return done.server.shared["a"].item()


def test_the_server_moves_against_the_mean_of_the_uploads():
    # Client 0: residual 3, moves by 0.3. Client 1 (two examples, target 1): residual 2, by 0.2. (0.3 + 2 * 0.2) / 3.
    clients = pair_clients([(1, 1, 0)], [(1, 1, 1)] * 2)
    assert shared_a(rounds_of(pair_program(), clients)[-1]) == pytest.approx(2 - 0.7 / 3, rel=1e-14)
    assert shared_a(rounds_of(pair_program(weight=uniform), clients)[-1]) == pytest.approx(2 - 0.25, rel=1e-14)


def test_a_server_rate_of_zero_keeps_the_shared_part():
    done = rounds_of(pair_program(server=sgd(0.0)), ONES, 3)[-1]
    assert same_bits(done.server.shared, start(pair_program()).shared)


def test_the_server_rate_is_that_of_the_round():
    # Each upload is 0.1 * 3; the rates are 1, 0.5, 0.25.
    program = pair_program(loss=mean_output, server=sgd(exponential(1.0, 0.5)))
    moved = [2 - 0.3, 2 - 0.45, 2 - 0.525]
    assert [shared_a(done) for done in rounds_of(program, THREE_FOUR, 3)] == pytest.approx(moved, rel=1e-14)


def test_the_server_optimiser_keeps_its_state_over_rounds():
    # Constant uploads d = 0.3 with momentum 0.5: velocities d, 1.5 d, 1.75 d.
    program = pair_program(loss=mean_output, server=sgd(1.0, momentum=0.5))
    done = rounds_of(program, THREE_FOUR, 3)
    assert [shared_a(one) for one in done] == pytest.approx([2 - 0.3, 2 - 0.75, 2 - 1.275], rel=1e-14)
    assert done[-1].server.optimizer[SHARED]["momentum"]["a"].item() == pytest.approx(1.75 * 0.3, rel=1e-14)


def test_a_gradient_upload_with_adam_at_the_server_moves_by_the_rate_at_first():
    # Adam's first step is lr * g / (|g| + eps).
    observing = phase(PERSONAL, observe=SHARED)
    program = pair_program(observing, upload=gradient, server=adam(0.01))
    assert shared_a(rounds_of(program, ONES)[-1]) == pytest.approx(2 - 0.01 * 3 / (3 + 1e-8), rel=1e-14)


def with_control(**changes):
    """A second shared part, "shared.control", which the network sees added to a; both move by 0.1 * 3."""
    return pair_program(
        phase(
            (SHARED, "shared.control"), view=lambda params, inputs: params | {"a": params["a"] + params["control.a"]}
        ),
        loss=mean_output,
        extend=lambda network: {"shared.control": {"control.a": torch.zeros_like(network.params["a"])}},
        **changes,
    )


def test_each_shared_part_may_have_a_server_optimiser_of_its_own():
    program = with_control(server={SHARED: sgd(1.0), "shared.control": sgd(0.5, momentum=0.5)})
    first, second = rounds_of(program, THREE_FOUR, 2)
    assert shared_a(first) == pytest.approx(2 - 0.3, rel=1e-14)
    assert shared_a(second) == pytest.approx(2 - 0.6, rel=1e-14)
    # Velocities 0.3 and 0.45 at rate 0.5.
    assert second.server.shared["control.a"].item() == pytest.approx(-0.375, rel=1e-14)
    assert second.server.optimizer.keys() == {SHARED, "shared.control"}


def test_one_server_optimiser_moves_every_shared_part():
    done = rounds_of(with_control(server=sgd(1.0)), THREE_FOUR)[-1]
    assert {name: value.item() for name, value in done.server.shared.items()} == pytest.approx(
        {"a": 1.7, "control.a": -0.3}, rel=1e-14
    )


def test_a_shared_part_without_a_server_optimiser_holds_still():
    done = rounds_of(with_control(server={SHARED: sgd(1.0)}), THREE_FOUR)[-1]
    assert done.server.shared["control.a"].item() == 0.0


def test_a_method_that_shares_nothing_has_nothing_to_step():
    done = rounds_of(pair_program(phase(PERSONAL), personal=("a", "b")), ONES, 2)[-1]
    assert (done.server.round, done.server.shared, done.server.optimizer) == (2, {}, {})
    assert (done.report.bytes_down, done.report.bytes_up) == (0, 0)


def test_an_empty_cohort_skips_the_server_step_and_counts_the_round():
    program = pair_program(loss=mean_output, server=sgd(1.0, momentum=0.5))
    store = MemoryStore()
    first, empty, third = rounds_of(program, THREE_FOUR, 3, sampler=Given((0,), (), (0,)), store=store)
    assert empty.server.round == 2
    assert same_bits(empty.server.shared, first.server.shared)
    assert same_bits(empty.server.optimizer[SHARED]["momentum"], first.server.optimizer[SHARED]["momentum"])
    assert (empty.report.round, empty.report.cohort, empty.report.losses) == (2, (), {})
    assert (empty.report.bytes_down, empty.report.bytes_up, empty.report.network_passes) == (0, 0, 0.0)
    # No velocity is lost: 0.3, nothing, 0.45.
    assert shared_a(third) == pytest.approx(2 - 0.75, rel=1e-14)
    assert store.round == 3


def test_a_run_of_nothing_but_empty_cohorts_ends_where_it_began():
    program = pair_program()
    done = rounds_of(program, ONES, 2, sampler=Given((), ()))[-1]
    assert same_bits(done.server.shared, start(program).shared)


# Failures

NAMED = pair_clients([(1, 1, 0)], [(1, 1, NAN)], names=("writer-3", "writer-7"))


def test_a_loss_that_is_not_a_number_names_client_round_and_phase_and_commits_nothing():
    store = MemoryStore()
    program = pair_program(phase(PERSONAL), phase(SHARED))
    run = train(program, NAMED, rounds=3, sampler=Given((0,), (0, 1)), engine=Sequential(), store=store)
    committed = next(run)
    kept = copied(store.get(0))
    with pytest.raises(
        Diverged, match=r"loss is not a finite number \(client writer-7, round 2, phase personal\)\. Lower"
    ) as error:
        next(run)
    assert (error.value.client, error.value.round, error.value.phase) == ("writer-7", 2, PERSONAL)
    assert isinstance(error.value, ClientFailed)
    assert store.round == committed.server.round == 1
    assert list(store.clients()) == [0]
    assert same_bits(store.get(0), kept)


def test_the_phase_named_is_the_first_whose_loss_is_not_finite():
    spoiled = phase(SHARED, penalty=lambda params, visit: params["a"] * NAN)
    with pytest.raises(Diverged, match="phase shared"):
        rounds_of(pair_program(phase(PERSONAL), spoiled, phase(PERSONAL)), ONES)


@pytest.mark.parametrize("part", [SHARED, PERSONAL])
def test_parameters_that_overflow_after_a_finite_loss_stop_the_run_too(part):
    # One step of 1e308 * 3: the loss was 9/2, but no float64 is that large.
    store = MemoryStore()
    with pytest.raises(
        Diverged, match=rf"parameters are not finite numbers \(client client-0, round 1, phase {part}\)"
    ):
        rounds_of(pair_program(phase(part, optimizer=sgd(1e308))), ONES, store=store)
    assert (store.round, list(store.clients())) == (0, [])


def test_the_clients_before_the_failing_one_are_not_committed_either():
    store = MemoryStore()
    with pytest.raises(Diverged):
        rounds_of(pair_program(phase(PERSONAL)), NAMED, store=store)
    assert list(store.clients()) == []


def test_an_error_of_a_client_leaves_the_last_whole_round():
    class Breaks(Sequential):
        def run(self, program, visits):
            for visit in visits:
                if visit.round == 2:
                    raise OSError("the data has gone")
                yield from super().run(program, [visit])

    store = MemoryStore()
    with pytest.raises(OSError, match="gone"):
        rounds_of(pair_program(phase(PERSONAL)), ONES, 2, engine=Breaks(), store=store)
    assert store.round == 1


def test_an_error_in_a_clients_work_names_client_round_and_phase():
    # A label beyond the classes, in the second client only.
    good, other = class_clients((4, 3)).batches
    clients = Clients(batches=(good, other._replace(targets=other.targets + 7)))
    program = class_program(method(phase(PERSONAL), phase(), personal=("3.*",)))
    with pytest.raises(ClientFailed, match=r"IndexError: .*\(client client-1, round 1, phase personal\)") as error:
        rounds_of(program, clients)
    assert isinstance(error.value.__cause__, IndexError)
    assert not isinstance(error.value, Diverged)


def test_a_result_that_is_missing_is_not_taken_for_that_of_another_client():
    class Drops(Sequential):
        def run(self, program, visits):
            yield from list(super().run(program, visits))[1:]

    clients = pair_clients([(1, 1, 0)], [(1, 1, 1)] * 2, [(1, 1, 2)] * 6)
    try:
        done = rounds_of(pair_program(), clients, engine=Drops())[-1]
    except PluresError:
        return
    # Clients 1 and 2 move by 0.2 and 0.1, with 2 and 6 examples; by position they would count as 1 and 2.
    assert shared_a(done) == pytest.approx(2 - (2 * 0.2 + 6 * 0.1) / 8, rel=1e-14)


def test_a_shared_parameter_that_nobody_uploads_stays_as_it_was():
    # Weight decay at the server would move a = 2 even without an upload.
    only_control = with_control(
        upload=lambda visit, trained: Upload({"control.a": trained.shared["control.a"]}),
        server=sgd(1.0, weight_decay=0.1),
    )
    done = rounds_of(only_control, THREE_FOUR)[-1]
    assert shared_a(done) == 2.0
    # The upload is the trained control itself, -0.3, and the server moves against it.
    assert done.server.shared["control.a"].item() == pytest.approx(0.3, rel=1e-14)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (Upload({"a": numbers(1, 1, 1)}), r"'a' of shape \(3,\), but the shared part has \(\)"),
        (Upload({"b": numbers(1)[0]}), "'b', which is not shared"),
        (Upload({"a": numbers(1)[0]}, held={"a": numbers(1, 1)}), r"what it held of 'a' in shape \(2,\)"),
        (Upload({"a": numbers(1)[0]}, held={}), "not how much of 'a' it held"),
    ],
    ids=["shape", "name", "shape of what was held", "held missing"],
)
def test_an_upload_that_does_not_fit_the_shared_part_is_refused(sent, says):
    wrong = pair_program(upload=lambda visit, trained: sent, per_coordinate=True)
    with pytest.raises(ClientFailed, match=says) as found:
        rounds_of(wrong, ONES)
    assert (found.value.client, found.value.round) == ("client-0", 1)


# What is seen and counted


def test_every_result_is_seen_in_order_before_the_server_step():
    program, store = pair_program(phase((SHARED, PERSONAL))), MemoryStore()
    clients = pair_clients([(1, 1, 0)], [(1, 1, 1)], [(1, 1, 2)])
    seen = []

    def look(visit, result):
        seen.append((visit.round, visit.client, result.client))
        assert store.round == visit.round - 1, "nothing of this round is in force yet"

    done = rounds_of(program, clients, 2, store=store, on_result=look)
    assert seen == [(round, client, client) for round in (1, 2) for client in range(3)]
    assert len(done) == 2


def test_an_observer_that_stops_the_run_leaves_the_last_whole_round():
    store = MemoryStore()

    def stop(visit, result):
        if visit.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rounds_of(pair_program(phase(PERSONAL)), ONES, 3, store=store, on_result=stop)
    assert store.round == 1


def test_observing_changes_nothing():
    program, clients = class_program(method(phase(), personal=("3.*",))), class_clients((3, 4))
    watched = rounds_of(program, clients, 2, on_result=lambda visit, result: None)
    assert same_bits(watched[-1].server.shared, rounds_of(program, clients, 2)[-1].server.shared)


def test_a_report_adds_up_bytes_passes_and_losses_weighted_by_examples():
    # Shared a: 8 bytes down and 8 up for each of two clients. Losses: client 0 has residual 3 in both phases' first
    # point (9/2), then b = 0.7: 2.7^2/2. Client 1 (3 examples, target 1): 2^2/2, then b = 0.8: 1.8^2/2.
    clients = pair_clients([(1, 1, 0)], [(1, 1, 1)] * 3)
    report = rounds_of(pair_program(phase(PERSONAL), phase(SHARED)), clients)[-1].report
    assert (report.round, report.cohort) == (1, (0, 1))
    assert (report.bytes_down, report.bytes_up) == (16, 16)
    assert report.network_passes == 4.0
    assert report.losses == pytest.approx({PERSONAL: (4.5 + 3 * 2.0) / 4, SHARED: (3.645 + 3 * 1.62) / 4}, rel=1e-14)


def test_bytes_are_those_of_the_shared_part_and_of_its_precision():
    # The body has 5 * 4 + 4 = 24 values; two clients; 8 bytes in float64 and 4 in float32.
    for module, size in ((network(), 8), (network().float(), 4)):
        of = method(phase(), personal=("3.*",))
        report = rounds_of(class_program(of, module), class_clients((3, 4)))[-1].report
        assert (report.bytes_down, report.bytes_up) == (2 * 24 * size, 2 * 24 * size)


def test_passes_add_up_over_clients_phases_and_epochs():
    clients = class_clients((3, 4, 5))
    of = method(phase(PERSONAL, budget=epochs(2, batch=2)), phase(budget=steps(3)), personal=("3.*",))
    assert rounds_of(class_program(of), clients)[-1].report.network_passes == pytest.approx(3 * (2 + 3), rel=1e-14)


def test_facts_of_a_cohort_are_its_sizes_and_those_of_the_population():
    clients = class_clients((3, 4, 5))
    seen = {}
    rounds_of(
        class_program(method(phase(), personal=("3.*",))),
        clients,
        sampler=Given((0, 2)),
        on_result=lambda visit, _: seen.update({visit.client: visit.facts}),
    )
    assert {client: facts.examples for client, facts in seen.items()} == {0: 3, 2: 5}
    for facts in seen.values():
        assert (facts.cohort_examples, facts.cohort_clients) == (8, 2)
        assert (facts.all_examples, facts.all_clients, facts.inclusion) == (12, 3, 1.0)
