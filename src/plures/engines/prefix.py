"""Run what a phase holds still once: a problem on what lies behind a network's frozen prefix, or why there is none."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.core.layout import PORTION, has_convolutions, is_large
from plures.core.method import Budget, own_parameters
from plures.core.problem import Problem
from plures.core.types import Batch, Params
from plures.engines.prefix_checks import difference, moving_names
from plures.engines.prefix_graph import Cut, Steps, cut_before
from plures.engines.prefix_trace import plain_state, trace
from plures.engines.prefix_tracer import FAILURES
from plures.engines.prefix_trials import same_rows, unmoved_draws
from plures.local.heads import HeadProblem

MOST_BYTES = 512 * 2**20
"""What may be kept of one client's examples."""
AT_ONCE = 1024
"""Examples that pass a prefix without convolutions together."""
FEW = 3
"""Examples on which a cut network is compared with the whole one."""
STEPS_KEPT = 16
"""Of one network, for so many shapes of inputs and modes the steps are kept."""
LOOKS_KEPT = 4096
"""For so many numbers of examples it is known how often a phase looks at them."""

_KNOWN: WeakKeyDictionary[nn.Module, dict[Hashable, Steps | str]] = WeakKeyDictionary()
_CHECKED: WeakKeyDictionary[Cut, str] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class BehindPrefix(Problem):
    """A problem whose network is only what lies behind the prefix; the inputs of its batches are rows of what is kept.

    Batches, losses and passes are those of the problem that was given: costs are the method's, not the engine's.
    """

    given: Problem
    cut: Cut
    values: tuple[Tensor, ...]
    """What is kept, one row for each example of the client."""
    constants: tuple[Any, ...]

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """The loss of the phase, from what is kept of the batch."""
        phase, task, inputs, kept = self.phase, self.binding.task, self.given.visit.data.inputs, self.values
        if batch.inputs is not self.visit.data.inputs:
            kept = tuple(value[batch.inputs] for value in kept)
            inputs = inputs if phase.view is own_parameters else inputs[batch.inputs]
        shown = phase.view(params, inputs)
        output = run(self.cut.rest, self.cut.rest_names, shown, (*kept, *self.constants))
        value = task.loss_function(output, batch.targets)
        return value if phase.penalty is None else value + phase.penalty(params, self.given.visit)


def behind_prefix(problem: Problem) -> Problem | str:
    """The same problem with what it holds still run once, or why that is not possible or of no use."""
    if type(problem) is not Problem:
        return "the problem has a network of its own already"
    if problem.binding.task.augment is not None:
        return "examples are augmented in each step, so what becomes of them does not stay"
    with unmoved_draws():
        try:
            return found_problem(problem)
        except FAILURES as error:
            return f"the attempt failed ({type(error).__name__}: {error})".splitlines()[0]


def found_problem(problem: Problem) -> Problem | str:
    """Asks first what is answered fast: most phases move everything, or look at everything once."""
    moving, num_examples = moving_names(problem), problem.visit.data.num_examples
    if isinstance(moving, str):
        return moving
    budget = problem.phase.budget
    known = looks(budget, num_examples) if isinstance(budget, Hashable) else looks.__wrapped__(budget, num_examples)
    num_seen, num_different = known
    if num_seen <= num_different:
        return "no example is looked at twice, so there is nothing to gain"
    cut = found_cut(problem, moving)
    if isinstance(cut, str):
        return cut
    indexed = by_rows(problem)
    rows = indexed.visit.data.inputs if num_different == num_examples else rows_seen(indexed)
    return kept_problem(problem, cut, rows)


@lru_cache(maxsize=LOOKS_KEPT)
def looks(budget: Budget, num_examples: int) -> tuple[int, int]:
    """How many looks a phase takes at examples, and at how many different ones; chance mostly has no say in that."""
    seen, num_seen = torch.zeros(num_examples, dtype=torch.bool), 0
    for indices in budget.batches(num_examples, torch.Generator()):
        places = slice(None) if indices is None else indices
        seen[places] = True
        num_seen += num_examples if indices is None else len(indices)
    return num_seen, int(seen.sum())


def rows_seen(indexed: Problem) -> Tensor:
    """Which examples the phase looks at."""
    every = indexed.visit.data.inputs
    seen = torch.zeros_like(every, dtype=torch.bool)
    for batch in indexed.batches():
        seen[batch.inputs] = True
    return every[seen]


def by_rows(problem: Problem) -> Problem:
    """The problem with numbers of examples as its inputs."""
    data = problem.visit.data
    rows = torch.arange(data.num_examples, device=data.inputs.device)
    return replace(problem, visit=replace(problem.visit, data=Batch(rows, data.targets)))


def found_cut(problem: Problem, moving: frozenset[str]) -> Cut | str:
    """The network cut before what moves, once it is sure that the pieces do what the whole does."""
    module, inputs = problem.binding.task.module, problem.visit.data.inputs
    steps = known_steps(module, inputs)
    cut = steps if isinstance(steps, str) else cut_before(steps, moving)
    if isinstance(cut, str):
        return cut
    if cut.example_bytes * len(inputs) > MOST_BYTES:
        return f"what would be kept takes more than {MOST_BYTES // 2**20} MB"
    if cut not in _CHECKED:
        _CHECKED[cut] = tried(problem, cut)
    return _CHECKED[cut] or cut


def tried(problem: Problem, cut: Cut) -> str:
    """What the cut network does otherwise than the whole one, on a few examples; empty if nothing."""
    data = problem.visit.data
    rows = torch.arange(FEW, device=data.inputs.device) % data.num_examples
    few = Batch(data.inputs[rows], data.targets[rows])
    small = replace(problem, visit=replace(problem.visit, data=few))
    every = torch.arange(FEW, device=rows.device)
    version = few.inputs._version
    pieces = behind(small, cut, *kept_of(small, cut, few.inputs, every))
    versions = [value._version for value in pieces.values]
    found = difference(small, pieces)
    if version != few.inputs._version or versions != [value._version for value in pieces.values]:
        return "the network writes into its inputs, or into what would be kept"
    return found


def known_steps(module: nn.Module, inputs: Tensor) -> Steps | str:
    """The steps of a network as it is now: its modes and simple attributes are part of what is followed."""
    known = _KNOWN.setdefault(module, {})
    key = (inputs.shape[1:], inputs.dtype, inputs.device, state_key(module))
    if key not in known:
        if len(known) >= STEPS_KEPT:
            known.clear()
        traced = trace(module, inputs)
        known[key] = traced if isinstance(traced, str) else Steps(traced=traced)
    return known[key]


def state_key(module: nn.Module) -> Hashable:
    return tuple(value for state in plain_state(module).values() for value in state.values())


def run(piece: nn.Module, names: Any, shown: Params, inputs: tuple[Any, ...]) -> Any:
    return functional_call(piece, {own: shown[name] for own, name in names.items()}, inputs)


def kept_problem(problem: Problem, cut: Cut, rows: Tensor) -> Problem | str:
    """The problem with all that is kept of the examples that the phase looks at."""
    data = problem.visit.data
    values, constants = kept_of(problem, cut, data.inputs, rows)
    alone, _ = kept_of(problem, cut, data.inputs[rows[:2]], torch.arange(len(rows[:2]), device=rows.device))
    if not all(same_rows(few, every[rows[:2]]) for few, every in zip(alone, values, strict=True)):
        return "what becomes of an example depends on the other examples of its batch"
    if is_linear_head(problem, cut, values):
        return on_head(problem, cut, values[0])
    return behind(problem, cut, values, constants)


def kept_of(problem: Problem, cut: Cut, inputs: Tensor, rows: Tensor) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
    """What the prefix makes of some of the inputs, each in its row, and what is the same for all of them."""
    values: list[Tensor] = []
    constants: tuple[Any, ...] = ()
    with torch.no_grad():
        shown = problem.phase.view(problem.params, inputs)
        for chunk in torch.split(rows, at_once(problem)):
            given = inputs if len(chunk) == len(inputs) else inputs[chunk]
            found = run(cut.prefix, cut.prefix_names, shown, (given,))
            own, constants = found[: cut.num_values], found[cut.num_values :]
            if len(chunk) == len(inputs):
                return own, constants
            values = values or [value.new_zeros(len(inputs), *value.shape[1:]) for value in own]
            for value, part in zip(values, own, strict=True):
                value[chunk] = part
    return tuple(values), constants


def at_once(problem: Problem) -> int:
    """How many examples pass the prefix together."""
    divided = has_convolutions(problem.binding.task.module) and is_large(problem.visit.data.inputs)
    return PORTION if divided else AT_ONCE


def behind(problem: Problem, cut: Cut, values: tuple[Tensor, ...], constants: tuple[Any, ...]) -> BehindPrefix:
    indexed = by_rows(problem)
    return BehindPrefix(
        phase=problem.phase,
        visit=indexed.visit,
        binding=problem.binding,
        params=problem.params,
        gradient=problem.gradient,
        taken=problem.taken,
        given=problem,
        cut=cut,
        values=values,
        constants=constants,
    )


def is_linear_head(problem: Problem, cut: Cut, values: tuple[Tensor, ...]) -> bool:
    """Whether gradients have the closed form of a linear layer under cross-entropy."""
    phase, targets = problem.phase, problem.visit.data.targets
    plain = phase.view is own_parameters and phase.penalty is None and phase.observe is None
    if cut.head is None or not plain or problem.binding.task.loss_function is not F.cross_entropy:
        return False
    of_classes = targets.dim() == 1 and not targets.is_floating_point() and values[0].dim() == 2
    own = [name for name in cut.head if name is not None]
    return of_classes and sorted(own) == sorted(problem.moving_names()) and bool((targets >= 0).all())


def on_head(problem: Problem, cut: Cut, features: Tensor) -> HeadProblem:
    assert cut.head is not None
    return HeadProblem(
        phase=problem.phase,
        visit=replace(problem.visit, data=Batch(features, problem.visit.data.targets)),
        binding=problem.binding,
        params=problem.params,
        weight=cut.head.weight,
        bias=cut.head.bias,
    )
