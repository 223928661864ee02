"""A client's whole work in a round: what it receives, keeps, changes and sends."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from plures.core.client import arrival, run_client, run_phases
from plures.core.context import lone_facts, make_visit
from plures.core.errors import ClientFailed, InvalidModel
from plures.core.loop import start
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.types import FROZEN, PERSONAL, SHARED
from plures.core.visit import Upload
from plures.local import (
    delta,
    epochs,
    gradient,
    original,
    sgd,
    start_from_received,
    steps,
    twin,
    uniform_start,
    with_twin,
)
from plures.methods import apfl, ditto, scaffold
from plures.parts import NamedSplit, all_personal, head, split
from plures.server import samples, uniform
from plures.stores.memory import MemoryStore
from tests.core.helpers import (
    Clients,
    Given,
    Pair,
    class_clients,
    class_program,
    copied,
    half_square,
    mean_output,
    method,
    network,
    numbers,
    pair_clients,
    pair_program,
    phase,
    rounds_of,
    same_bits,
    visit_to,
)

ONES = pair_clients([(1, 1, 0)])
"""One example at x = (1, 1) with target 0: the residual is a + b = 3, and so are both gradients."""


def run(program, clients=ONES, client=0, **changes):
    return run_client(program.method, program.binding(client), visit_to(program, clients, client, **changes))


def test_a_client_keeps_the_personal_part_and_sends_how_the_shared_part_moved():
    result = run(pair_program(phase((SHARED, PERSONAL))))
    assert result.state.keys() == {"b"}
    assert result.state["b"].item() == pytest.approx(0.7, rel=1e-15)
    assert result.upload.values.keys() == {"a"}
    assert result.upload.values["a"].item() == pytest.approx(0.3, rel=1e-15)
    assert result.upload.held is None
    assert result.trained.keys() == {"a", "b"}
    assert (result.client, result.passes, result.buffers) == (0, 1.0, {})


def test_the_same_visit_twice_gives_the_same_bits_and_changes_nothing_it_was_given():
    training = phase((SHARED, PERSONAL), budget=epochs(2, batch=2), optimizer=sgd(0.1, momentum=0.9))
    program = class_program(method(training, personal=("3.*",)), network(dropout=0.4))
    visit = visit_to(program, class_clients((7,)))
    given = copied(visit.received | visit.state), copied(visit.initial), copied(program.binding(0).values)
    first, second = (run_client(program.method, program.binding(0), visit) for _ in range(2))
    assert same_bits(first.trained, second.trained)
    assert same_bits(first.upload.values, second.upload.values)
    assert same_bits(visit.received | visit.state, given[0])
    assert same_bits(visit.initial, given[1])
    assert same_bits(program.binding(0).values, given[2])


def test_results_hold_no_graph():
    result = run(class_program(method(phase((SHARED, PERSONAL)), personal=("3.*",))), class_clients((4,)))
    kept = [*result.trained.values(), *result.upload.values.values(), *result.losses.values()]
    assert not any(value.requires_grad for value in kept)


def test_an_observed_gradient_can_be_the_upload():
    program = pair_program(phase(PERSONAL, observe=SHARED), upload=gradient)
    assert run(program).upload.values["a"].item() == 3.0


def test_frozen_parameters_never_move_and_never_travel():
    module = network()
    module[0].weight.requires_grad_(False)
    of = method(phase((SHARED, PERSONAL), budget=steps(3)), personal=("3.*",))
    program, clients, store = class_program(of, module), class_clients((4, 5)), MemoryStore()
    assert program.binding(0).parts["0.weight"] == FROZEN
    visit = visit_to(program, clients)
    result = run_client(program.method, program.binding(0), visit)
    done = rounds_of(program, clients, 2, store=store)[-1]
    for sent in (visit.received, result.upload.values, result.state, done.server.shared, store.get(0)):
        assert "0.weight" not in sent
    assert torch.equal(result.trained["0.weight"], module[0].weight)
    assert done.report.bytes_down == 2 * 4 * 8, "only the body's bias of 4 values goes down to each of 2 clients"


def test_a_common_head_may_be_frozen_by_the_split():
    # FedBABU's head: the same for everybody, though the module would train it.
    frozen_head = NamedSplit(rules={FROZEN: head()})
    program = class_program(replace(method(phase()), split=frozen_head))
    result = run(program, class_clients((4,)))
    assert torch.equal(result.trained["3.weight"], network()[3].weight)
    assert result.upload.values.keys() == {"0.weight", "0.bias"}
    assert result.state == {}


# Refresh: a toy mask search. Four weights, gradient 1 each, rate 0.1; after training the smallest active one goes.

ALL_ONES = Clients(batches=pair_clients([(1, 1, 0)]).batches)
WEIGHTS = numbers(4, 3, 2, 1)


def four_weights():
    layer = nn.Linear(4, 1, bias=False).double()
    layer.weight.data = WEIGHTS[None].clone()
    return layer


def ones_clients(*sizes):
    batch = ALL_ONES.batches[0]
    return Clients(batches=tuple(type(batch)(torch.ones(size, 4).double(), torch.zeros(size)) for size in sizes))


def with_mask(network):
    masks = {f"mask.{name}": torch.ones_like(value, dtype=torch.bool) for name, value in network.params.items()}
    return {"known": masks}


def masked(params, inputs):
    return params | {"weight": params["weight"] * params["mask.weight"]}


def masked_download(shared, known):
    held = {"weight": known["mask.weight"]}
    return Upload({"weight": shared["weight"] * held["weight"]}, held)


def prune_smallest(problem, params):
    weight, mask = params["weight"], params["mask.weight"]
    smallest = torch.where(mask, weight.abs(), torch.inf).argmin()
    return params | {"mask.weight": mask & (torch.arange(4) != smallest)}


def delta_where_held(visit, trained):
    return Upload(delta(visit, trained).values, {"weight": visit.state["mask.weight"]})


def sparse_method(**changes):
    return method(
        phase(view=masked),
        personal=(),
        **{
            "extend": with_mask,
            "download": masked_download,
            "refresh": prune_smallest,
            "upload": delta_where_held,
            "per_coordinate": True,
            "weight": uniform,
            "predict": masked,
        }
        | changes,
    )


def sparse_program(**changes):
    return Program(sparse_method(**changes), OneNetwork(module=four_weights()), loss=mean_output, seed=1)


def test_a_new_mask_is_stored_and_used_in_the_next_visit():
    store = MemoryStore()
    first, second = rounds_of(sparse_program(), ones_clients(1), 2, store=store)
    # Round 1 with the full mask: every weight moves by 0.1; then the last one is pruned.
    torch.testing.assert_close(first.server.shared["weight"][0], WEIGHTS - 0.1, rtol=1e-14, atol=0)
    # Round 2: three weights move; what is off the mask stays in the dense shared weights to the last bit.
    torch.testing.assert_close(second.server.shared["weight"][0, :3], WEIGHTS[:3] - 0.2, rtol=1e-14, atol=0)
    assert torch.equal(second.server.shared["weight"][0, 3], first.server.shared["weight"][0, 3])
    assert store.get(0)["mask.weight"].tolist() == [[True, True, False, False]]


def test_a_download_may_differ_by_what_the_client_keeps():
    program, store = sparse_program(), MemoryStore()
    store.commit(1, {1: {"mask.weight": torch.tensor([[True, False, False, True]])}})
    clients = ones_clients(1, 1)
    received = [visit_to(program, clients, client, store=store).received["weight"].tolist() for client in (0, 1)]
    assert received == [[[4, 3, 2, 1]], [[4, 0, 0, 1]]]


def test_clients_with_masks_of_their_own_share_what_they_have_in_common():
    # Client 0 holds the first two weights, client 1 the middle two; each moves what it holds by 0.1.
    store = MemoryStore()
    masks = [torch.tensor([[True, True, False, False]]), torch.tensor([[False, True, True, False]])]
    store.commit(0, {client: {"mask.weight": mask} for client, mask in enumerate(masks)})
    done = rounds_of(sparse_program(refresh=None), ones_clients(1, 5), store=store)[-1]
    torch.testing.assert_close(done.server.shared["weight"][0], WEIGHTS - numbers(0.1, 0.1, 0.1, 0), rtol=1e-14, atol=0)
    assert done.server.shared["weight"][0, 3] == WEIGHTS[3]


def test_without_per_coordinate_the_same_uploads_are_divided_by_the_cohort():
    store = MemoryStore()
    masks = [torch.tensor([[True, True, False, False]]), torch.tensor([[False, True, True, False]])]
    store.commit(0, {client: {"mask.weight": mask} for client, mask in enumerate(masks)})
    program = sparse_program(refresh=None, per_coordinate=False)
    done = rounds_of(program, ones_clients(1, 5), store=store)[-1]
    expected = WEIGHTS - numbers(0.05, 0.1, 0.05, 0)
    torch.testing.assert_close(done.server.shared["weight"][0], expected, rtol=1e-14, atol=0)


def test_a_refresh_may_change_what_is_uploaded():
    # Sub-FedAvg's order: prune first, then send; the upload sees the pruned weights.
    def prune_weights(problem, params):
        pruned = prune_smallest(problem, params)
        return pruned | {"weight": pruned["weight"] * pruned["mask.weight"]}

    def by_new_mask(visit, trained):
        held, weight = {"weight": trained.known["mask.weight"]}, trained.shared["weight"]
        return Upload({"weight": (visit.received["weight"] - weight) * held["weight"]}, held)

    done = rounds_of(sparse_program(refresh=prune_weights, upload=by_new_mask), ones_clients(1))[-1]
    torch.testing.assert_close(done.server.shared["weight"][0], WEIGHTS - numbers(0.1, 0.1, 0.1, 0), rtol=1e-14, atol=0)
    assert done.server.shared["weight"][0, 3] == WEIGHTS[3]


def test_a_refresh_may_ask_for_gradients_and_batches_of_the_last_phase():
    asked = []

    def ask(problem, params):
        batch = next(problem.batches())
        grads, loss = problem.gradients(params, batch, ["weight"])
        asked.append((batch.num_examples, grads["weight"].tolist(), loss.item()))
        return params

    run_client((program := sparse_program(refresh=ask)).method, program.binding(0), visit_to(program, ones_clients(3)))
    # At the trained weights (3.9, 2.9, 1.9, 0.9) the mean output is 9.6.
    assert asked == [(3, [[1, 1, 1, 1]], pytest.approx(9.6, rel=1e-15))]


def test_masks_stay_on_the_client():
    program = sparse_program()
    visit = visit_to(program, ones_clients(1))
    result = run_client(program.method, program.binding(0), visit)
    assert "mask.weight" not in start(program).shared
    assert visit.received.keys() == result.upload.values.keys() == {"weight"}
    assert result.state.keys() == {"mask.weight"}


# Extensions


def test_a_twin_is_kept_and_trained_beside_the_original():
    # Ditto's shape: the shared a moves by its own loss, the twin by the same loss and a pull to the received one.
    program = Program(
        method(phase(view=original), phase(PERSONAL, view=twin), personal=(), extend=with_twin, predict=twin),
        OneNetwork(module=Pair()),
        loss=half_square,
        seed=1,
    )
    result = run(program)
    assert result.state.keys() == {"twin.a", "twin.b"}
    assert result.upload.values.keys() == {"a", "b"}
    # Both start at (2, 1), where both gradients are 3.
    assert all(value.item() == pytest.approx(0.3, rel=1e-14) for value in result.upload.values.values())
    assert result.state["twin.a"].item() == pytest.approx(1.7, rel=1e-15)
    output = program.binding(0).predict(twin, result.trained, numbers(1, 1)[None])
    assert output.item() == pytest.approx(2.4, rel=1e-15)


def test_a_method_may_add_parts_with_names_of_its_own_which_stay():
    def gated(params, inputs):
        return params | {"a": params["a"] * params["gate.a"]}

    training = phase((SHARED, "gate"), view=gated, optimizer={SHARED: sgd(0.1), "gate": sgd(0.01)})
    program = pair_program(training, extend=lambda network: {"gate": {"gate.a": numbers(1)[0]}})
    result = run(program)
    # d/da = 3 * gate = 3, d/dgate = 3 * a = 6.
    assert result.trained["a"].item() == pytest.approx(1.7, rel=1e-15)
    assert result.state["gate.a"].item() == pytest.approx(0.94, rel=1e-15)
    assert result.state.keys() == {"b", "gate.a"}
    assert result.upload.values.keys() == {"a"}


def test_an_added_part_below_shared_travels():
    program = pair_program(extend=lambda network: {"shared.control": {"control.a": numbers(0)[0]}})
    assert start(program).shared.keys() == {"a", "control.a"}
    result = run(program)
    assert result.upload.values.keys() == {"a", "control.a"}
    assert "control.a" not in result.state


def test_an_extension_knows_the_parts_and_may_give_other_start_values():
    # FedBABU's orthonormal head in small: what the split calls personal begins at 5.
    def at_five(network):
        return {
            PERSONAL: {
                name: torch.full_like(v, 5.0) for name, v in network.params.items() if network.parts[name] == PERSONAL
            }
        }

    program = pair_program(extend=at_five)
    assert program.initial_state(0)["b"].item() == 5.0
    assert start(program).shared["a"].item() == 2.0


def test_statistics_of_an_extension_are_copied_for_a_visit_too():
    # A gating layer with a batch norm, as pFedGate has it.
    def with_statistics(network):
        return {"gate.buffers": {"gate.mean": numbers(0, 0)}}

    def gated(params, inputs):
        nn.functional.batch_norm(inputs, params["gate.mean"], numbers(1, 1), training=True)
        return params

    program = pair_program(phase(view=gated), extend=with_statistics)
    run(program, pair_clients([(1, 1, 0), (3, 5, 0)]))
    assert program.initial_state(0)["gate.mean"].tolist() == [0.0, 0.0]


def test_what_is_added_does_not_follow_the_model_it_was_made_from():
    program = Program(method(personal=(), extend=with_twin), OneNetwork(module=Pair()), loss=half_square, seed=1)
    values = program.binding(0).values
    assert values["twin.a"].data_ptr() != values["a"].data_ptr()


# Starts, states


def test_by_default_every_client_starts_from_the_models_own_values():
    program = class_program(method(personal=("3.*",)))
    for client in (0, 5):
        state = program.initial_state(client)
        assert torch.equal(state["3.weight"], network()[3].weight)


def test_a_start_is_drawn_for_each_client_and_always_the_same():
    program = class_program(method(personal=("3.*",), start=uniform_start))
    first, second = program.initial_state(0), program.initial_state(1)
    assert not same_bits(first, second)
    assert same_bits(program.initial_state(0), first)
    assert same_bits(class_program(program.method).initial_state(0), first)
    assert not same_bits(class_program(program.method, seed=2).initial_state(0), first)
    assert all(value.min() >= 0 and value.max() < 1 for value in first.values())


def test_a_start_may_depend_on_what_the_client_receives_first():
    # A newcomer's twin is a copy of the model of its first round, not of the model before round 1.
    of = method(
        phase(view=original), phase(PERSONAL, view=twin), personal=(), extend=with_twin, start=start_from_received
    )
    program, store = Program(of, OneNetwork(module=Pair()), loss=half_square, seed=1), MemoryStore()
    clients, seen = pair_clients([(1, 1, 0)], [(1, 1, 0)]), []
    done = rounds_of(
        program,
        clients,
        2,
        store=store,
        sampler=Given((0,), (0, 1)),
        on_result=lambda visit, _: seen.append((visit.round, visit.client, visit.state["twin.a"].item())),
    )
    # In round 1 the shared a and the first client's twin both go from 2 to 1.7.
    assert done[0].server.shared["a"].item() == pytest.approx(1.7, rel=1e-14)
    assert seen == [
        (1, 0, 2.0),
        (2, 0, pytest.approx(1.7, rel=1e-14)),
        (2, 1, done[0].server.shared["a"].item()),
    ]


def test_a_visit_knows_the_initial_state_beside_the_present_one():
    program, store = pair_program(phase(PERSONAL)), MemoryStore()
    rounds_of(program, ONES, 2, store=store)
    visit = visit_to(program, ONES, store=store)
    assert visit.initial["b"].item() == 1.0
    # b = 1 - 0.3, then the residual is 2.7.
    assert visit.state["b"].item() == pytest.approx(0.43, rel=1e-14)


def test_a_client_that_forgets_begins_every_visit_at_its_start():
    store = MemoryStore()
    seen = []
    forgetful = class_program(method(phase(PERSONAL), personal=("3.*",), start=uniform_start, stateful=False))
    rounds_of(forgetful, class_clients((4, 4)), 3, store=store, on_result=lambda visit, _: seen.append(visit))
    assert list(store.clients()) == []
    for visit in seen:
        assert same_bits(visit.state, forgetful.initial_state(visit.client))


def test_a_client_that_forgets_does_not_look_into_the_store():
    store = MemoryStore()
    store.commit(1, {0: {"b": numbers(9)[0]}})
    assert visit_to(pair_program(stateful=False), ONES, store=store).state["b"].item() == 1.0
    assert visit_to(pair_program(stateful=True), ONES, store=store).state["b"].item() == 9.0


def test_a_client_that_is_not_visited_keeps_nothing_and_changes_nothing():
    store = MemoryStore()
    program = class_program(method(phase((SHARED, PERSONAL)), personal=("3.*",)))
    list(rounds_of(program, class_clients((4, 4, 4)), 1, store=store, sampler=Given((2,))))
    assert list(store.clients()) == [2]
    kept = copied(store.get(2))
    other = rounds_of(program, class_clients((4, 4, 4)), 1, store=store, sampler=Given((0, 1)))
    assert len(other) == 1
    assert same_bits(store.get(2), kept)


def test_the_same_run_twice_has_the_same_bits():
    training = phase((SHARED, PERSONAL), budget=epochs(1, batch=2), optimizer=sgd(0.1, momentum=0.5))
    runs = []
    for _ in range(2):
        store = MemoryStore()
        of = method(training, personal=("3.*",), start=uniform_start, weight=samples)
        done = rounds_of(class_program(of, network(dropout=0.2)), class_clients((3, 4, 5)), 3, store=store)
        runs.append((done, [copied(store.get(client)) for client in range(3)]))
    (first, states), (second, again) = runs
    assert [done.report for done in first] == [done.report for done in second]
    assert same_bits(first[-1].server.shared, second[-1].server.shared)
    assert all(same_bits(left, right) for left, right in zip(states, again, strict=True))


# Newcomers


def test_a_newcomer_gets_its_personal_part_with_the_shared_part_held_still():
    program = pair_program(phase((SHARED, PERSONAL)), adapt=(phase(PERSONAL, budget=steps(2)),))
    server = rounds_of(program, pair_clients([(1, 1, 0)]))[-1].server
    newcomers = pair_clients([(1, 1, 0)], [(0, 1, 0)])
    visit = make_visit(program, newcomers, MemoryStore(), server, 1, server.round, lone_facts(newcomers, 1))
    binding = program.binding(1)
    work = run_phases(program.method.adapt, binding, visit, arrival(binding, visit))
    params, passes = work.params, work.passes
    assert torch.equal(params["a"], server.shared["a"])
    # The newcomer's residual is b alone: 1 -> 0.9 -> 0.81.
    assert params["b"].item() == pytest.approx(0.81, rel=1e-15)
    assert passes == 2.0


def test_whether_the_shared_part_is_a_whole_network():
    assert class_program(method(personal=())).has_global_model()
    assert not class_program(method(personal=("3.*",))).has_global_model()
    assert not class_program(replace(method(), split=split(all_personal()))).has_global_model()
    assert sparse_program().has_global_model(), "a mask is not part of the network"


class Counting(nn.Module):
    """Pair, with a buffer whose name a method may want."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.pair = Pair()
        *path, last = name.split(".")
        owner = self
        for step in path:
            owner.add_module(step, nn.Module())
            owner = owner.get_submodule(step)
        owner.register_buffer(last, numbers(3))

    def forward(self, inputs):
        return self.pair(inputs)


@pytest.mark.parametrize(
    ("make", "name"),
    [(apfl, "alpha"), (scaffold, "control.pair.a"), (ditto, "twin.k")],
    ids=["alpha", "control", "twin"],
)
def test_a_buffer_with_a_name_that_the_method_needs_is_an_error_and_never_overwritten(make, name):
    program = Program(make(), OneNetwork(module=Counting(name)), loss=half_square, seed=1)
    with pytest.raises(InvalidModel, match=rf"'{name}'"):
        program.binding(0)


@pytest.mark.parametrize("door", ["upload", "refresh"])
def test_an_error_in_a_methods_own_function_is_told_with_client_and_round(door):
    program = pair_program(**{door: lambda *given: {}["no such name"]})
    with pytest.raises(ClientFailed, match=f"KeyError: 'no such name'.*round 1, phase {door}"):
        run(program, pair_clients([(1, 1, 0)]))
