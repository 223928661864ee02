"""Cohorts that are hard to stack: unequal clients, a single one, several architectures, blocks of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.client import run_client
from plures.core.context import lone_facts, make_visit
from plures.core.errors import ClientFailed
from plures.core.goals import squared_error
from plures.core.loop import start
from plures.core.losses import Lost
from plures.core.method import Method
from plures.core.networks import NetworkPerClient, OneNetwork
from plures.core.problem import descend
from plures.core.program import Program
from plures.core.roles import Engine
from plures.core.types import PERSONAL, SHARED, Batch
from plures.engines import lockstep as lockstep_module
from plures.engines import vectorised
from plures.engines.sequential import Sequential
from plures.engines.vectorised import Vectorised
from plures.local import adam, add, epochs, proximal, pull_to_initial, sgd, steps, uniform_start
from plures.stores.memory import MemoryStore
from tests.core.helpers import Clients, class_clients, method, phase
from tests.engines.test_vectorised import assert_agree, lockstep

__all__ = ["lockstep"]

BOTH = (SHARED, PERSONAL)
UNEQUAL = class_clients((7, 1, 50, 10, 23, 2, 31, 11, 50, 40))
TEN = epochs(2, batch=10)
HEAD = {"personal": ("5.*",)}


class Wide(nn.Module):
    """Not a chain: its features are used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 4), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        features = torch.tanh(self.body(inputs))
        return self.head(torch.cat([features, features.square()], dim=1))


def chain(classes: int = 3) -> nn.Module:
    """What is trained by hand: a first layer "1", a middle layer "3", a head "5"."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        layers = [nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, classes)]
    return nn.Sequential(nn.Flatten(), *layers).double()


def wide() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Wide().double()


def program(of: Method, module: nn.Module | None = None, **options) -> Program:
    options = {"loss": F.cross_entropy, "seed": 1} | options
    return Program(of, OneNetwork(module=chain() if module is None else module), **options)


def visits_to(of: Program, clients: Clients):
    numbers, server = range(clients.num_clients), start(of)
    return [make_visit(of, clients, MemoryStore(), server, n, 1, lone_facts(clients, n)) for n in numbers]


def assert_engines_agree(of: Program, clients: Clients, engine: Engine | None = None, rel: float = 1e-10) -> None:
    found = list((engine or Vectorised()).run(of, visits_to(of, clients)))
    for wanted, one in zip(Sequential().run(of, visits_to(of, clients)), found, strict=True):
        assert_agree(wanted, one, rel)


PHASES = {
    "plain": phase(BOTH, budget=TEN),
    "decay": phase(BOTH, budget=TEN, optimizer=sgd(0.1, weight_decay=0.1)),
    "momentum": phase(BOTH, budget=TEN, optimizer=sgd(0.1, momentum=0.9, nesterov=True)),
    "adam": phase(BOTH, budget=TEN, optimizer=adam(0.01)),
    "two rules": phase(BOTH, budget=TEN, optimizer={SHARED: sgd(0.1), PERSONAL: adam(0.02)}),
    "two rates": phase(BOTH, budget=TEN, optimizer={SHARED: sgd(0.1), PERSONAL: sgd(0.3, weight_decay=0.1)}),
    "clipped": phase(BOTH, budget=TEN, clip_norm=0.05),
    "clipped by part": phase(BOTH, budget=TEN, clip_norm={SHARED: 0.05}),
    "scaled": phase(BOTH, budget=TEN, scale=lambda facts: 1.0 / facts.examples),
    "observed": phase(PERSONAL, observe=SHARED, budget=TEN, scale=lambda facts: facts.examples / 10),
    "only observed": phase((), observe=SHARED, budget=TEN),
    "head": phase(PERSONAL, budget=TEN),
    "body": phase(SHARED, budget=TEN),
    "proximal": phase(BOTH, budget=TEN, penalty=proximal(0.5)),
    "pulled": phase(BOTH, budget=TEN, penalty=pull_to_initial(0.5)),
    "proximal, not halved": phase(SHARED, budget=TEN, penalty=proximal(0.5, half=False)),
    "scaled proximal": phase(BOTH, budget=TEN, penalty=proximal(0.5), scale=lambda facts: 2.0 / facts.examples),
    "two penalties": phase(BOTH, budget=TEN, penalty=add(proximal(0.2), pull_to_initial(0.5))),
    "full batches": phase(BOTH, budget=steps(4)),
    "capped": phase(BOTH, budget=epochs(3, batch=4, cap=5)),
    "nothing": phase(BOTH, budget=steps(0)),
}
phases = pytest.mark.parametrize("name", PHASES)


@pytest.mark.parametrize("make", [chain, wide], ids=["chain", "no chain"])
@phases
def test_clients_of_one_to_fifty_examples_are_as_by_themselves(name, make: Callable[[], nn.Module], lockstep):
    personal = ("5.*",) if make is chain else ("head.*",)
    assert_engines_agree(program(method(PHASES[name], personal=personal, start=uniform_start), make()), UNEQUAL)
    assert sum(lockstep.values()) == 1


@phases
def test_any_block_gives_the_same_but_for_roundings(name):
    of = program(method(PHASES[name], **HEAD))
    fours, all_at_once = (Vectorised(block=block).run(of, visits_to(of, UNEQUAL)) for block in (4, 32))
    for wanted, found in zip(all_at_once, fours, strict=True):
        assert_agree(wanted, found, 1e-10)


def test_results_come_in_the_order_of_the_visits_and_blocks_are_asked_for_one_at_a_time():
    of, asked = program(method(PHASES["plain"], **HEAD)), []

    def watched():
        for visit in reversed(visits_to(of, UNEQUAL)):
            asked.append(visit.client)
            yield visit

    results = Vectorised(block=4).run(of, watched())
    assert asked == []
    assert next(results).client == 9
    assert asked == [9, 8, 7, 6]
    assert [result.client for result in results] == [8, 7, 6, 5, 4, 3, 2, 1, 0]


BY_HAND = ["plain", "decay", "two rates", "scaled", "head", "body", "proximal", "pulled", "full batches"]


@pytest.mark.parametrize("name", BY_HAND)
def test_plain_steps_on_a_chain_are_taken_by_hand(name, monkeypatch):
    monkeypatch.setattr(lockstep_module, "MappedSteps", None)
    monkeypatch.setattr(vectorised, "FAILURES", ())
    of = program(method(PHASES[name], **HEAD))
    assert len(list(Vectorised().run(of, visits_to(of, UNEQUAL)))) == 10


def test_layers_below_what_moves_may_be_common_or_everybodys_own(lockstep):
    """A personal first layer differs between clients, a shared one does not; of either, weight and bias may part."""
    for personal in (("1.*",), ("1.weight", "3.bias"), ("5.bias", "1.bias"), ("3.weight",)):
        for part in (SHARED, PERSONAL):
            of = program(method(phase(part, budget=TEN), personal=personal, start=uniform_start))
            assert_engines_agree(of, UNEQUAL)
    assert sum(lockstep.values()) == 8


def test_a_client_alone_is_run_as_the_plain_engine_runs_it(lockstep):
    of = program(method(PHASES["plain"], **HEAD))
    (visit,) = visits_to(of, class_clients((9,)))
    (found,) = Vectorised().run(of, [visit])
    assert torch.equal(found.trained["1.weight"], run_client(of.method, of.binding(0), visit).trained["1.weight"])
    assert not lockstep


def test_no_visits_give_no_results():
    assert list(Vectorised().run(program(method()), [])) == []


def test_architectures_are_stacked_apart(lockstep):
    """Clients 0, 2, 4, ... have three classes, the others two: two stacks of five, one phase each."""
    networks = NetworkPerClient(make=lambda key: chain(int(key)), key_of=lambda client: 3 - client % 2)
    of = Program(method(PHASES["plain"], **HEAD), networks, loss=F.cross_entropy, seed=1)
    clients = class_clients((7, 4, 5, 10, 23, 2, 31, 11, 50, 40), classes=(3, 2) * 5)
    assert_engines_agree(of, clients)
    assert sum(lockstep.values()) == 2


def test_augmented_batches_are_those_of_each_client(lockstep):
    def augment(inputs: Tensor, draws: torch.Generator) -> Tensor:
        return inputs + torch.randn(inputs.shape, generator=draws, dtype=inputs.dtype)

    for name in ("plain", "full batches"):
        assert_engines_agree(program(method(PHASES[name], **HEAD), augment=augment), UNEQUAL)
    assert sum(lockstep.values()) == 2


@pytest.mark.parametrize("shape", [(), (2,)], ids=["one target", "two targets"])
def test_the_squared_error_is_a_mean_over_what_is_no_padding(shape, lockstep):
    module = chain(2 if shape else 1)
    data = [Batch(batch.inputs, torch.randn(batch.num_examples, *shape).double()) for batch in UNEQUAL.batches]
    of = program(method(PHASES["plain"], **HEAD), module, loss=squared_error)
    assert_engines_agree(of, Clients(batches=tuple(data)))
    assert lockstep


@pytest.mark.parametrize("options", [{"ignore_index": 0}, {"label_smoothing": 0.2}, {"ignore_index": 2}], ids=str)
def test_cross_entropy_with_options_is_a_mean_over_labels_that_count(options, lockstep):
    """No batch of these consists of one label alone, whose mean would be of nothing."""
    of = program(method(phase(BOTH, budget=steps(3)), **HEAD), loss=partial(F.cross_entropy, **options))
    assert_engines_agree(of, class_clients((12, 20, 16)))
    assert lockstep


def test_tokens_that_are_padding_have_no_say(lockstep):
    """Outputs of shape (examples, vocabulary, time)."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(6, 4), nn.Linear(4, 6)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.head(torch.tanh(self.table(inputs))).mT

    torch.manual_seed(0)
    texts = [torch.randint(6, (size, 5)) for size in (3, 8, 5)]
    clients = Clients(batches=tuple(Batch(text[:, :-1], text[:, 1:]) for text in texts))
    of = program(method(phase(BOTH, budget=epochs(2, batch=3)), personal=("head.*",)), Tokens().double())
    of.loss = partial(F.cross_entropy, ignore_index=0)
    assert_engines_agree(of, clients)
    assert lockstep


def test_a_phase_that_cannot_be_stacked_is_taken_client_by_client_between_those_that_can(lockstep):
    own = phase(PERSONAL, budget=TEN, solver=descend)
    of = program(method(PHASES["plain"], own, PHASES["plain"], **HEAD))
    assert_engines_agree(of, UNEQUAL)
    assert sum(lockstep.values()) == 2


def test_draws_of_a_solver_go_on_where_the_client_left_off():
    """Two phases that add noise from the global generator: the second must not draw the first one's again."""

    def noisy(problem):
        done = descend(problem)
        noise = {name: done.params[name] + torch.rand(()).double() for name in problem.moving_names()}
        return done._replace(params=done.params | noise)

    drawing = phase(SHARED, solver=noisy)
    assert_engines_agree(program(method(drawing, PHASES["plain"], drawing, **HEAD)), UNEQUAL)


def test_a_client_whose_data_does_not_fit_is_named():
    wrong = UNEQUAL.batches[3]._replace(targets=UNEQUAL.batches[3].targets + 7)
    clients = Clients(batches=(*UNEQUAL.batches[:3], wrong, *UNEQUAL.batches[4:]))
    of = program(method(PHASES["plain"], **HEAD))
    results = list(Vectorised().run(of, visits_to(of, clients)))
    (lost,) = [result for result in results if isinstance(result, Lost)]
    assert (lost.client, results.index(lost)) == (3, 3)
    with pytest.raises(ClientFailed, match="client-3, round 1, phase shared\\+personal"):
        raise lost.error


def test_labels_that_cross_entropy_passes_by_are_passed_by():
    """-100 is no class: what cannot be stacked is taken client by client, with the same result."""
    marked = [batch._replace(targets=torch.where(batch.targets == 1, -100, batch.targets)) for batch in UNEQUAL.batches]
    large = tuple(batch for batch in marked if batch.num_examples > 20)
    assert_engines_agree(program(method(phase(BOTH, budget=steps(3)), **HEAD)), Clients(batches=large))


def test_seconds_of_a_phase_are_shared_by_those_who_worked(lockstep):
    of = program(method(PHASES["plain"], **HEAD))
    results = list(Vectorised().run(of, visits_to(of, UNEQUAL)))
    assert all(result.seconds["shared+personal"] > 0 for result in results)
    assert len(results) <= vectorised.BLOCK


def test_what_a_client_takes_by_itself_it_takes_as_the_engine_is_told():
    taken = []

    def stepping(problem, watch):
        taken.append(problem.visit.client)
        return descend(replace(problem, stepping=None))

    of = program(method(phase(SHARED, solver=descend), **HEAD))
    assert_engines_agree(of, class_clients((3, 4)), Vectorised(stepping=stepping))
    assert taken == [0, 1]
