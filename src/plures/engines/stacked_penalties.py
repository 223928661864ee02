"""The penalty of a phase for several clients at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import torch
from torch import Tensor
from torch.func import vmap

from plures.core.method import Penalty
from plures.core.problem import Problem
from plures.core.types import Params
from plures.core.visit import Visit
from plures.engines.stacking import Stack, stacked
from plures.local.penalties import Proximal


class OnlyItsOwn:
    """Stands for what every client has of its own, where one function is asked for all of them at once."""

    def refuse(self, *asked: object) -> NoReturn:
        raise TypeError("the penalty asks for more of a visit than what was received, kept or there at first")

    __getattr__ = __eq__ = __hash__ = __bool__ = __index__ = __float__ = __len__ = refuse


class Memory:
    """What penalties may ask of the visits: what was received, kept, and there at first."""

    def __init__(self, penalty: Penalty, problems: Sequence[Problem]) -> None:
        self.penalty = penalty
        visits = [problem.visit for problem in problems]
        self.received = stacked([visit.received for visit in visits])
        self.state = stacked([visit.state for visit in visits])
        asked = asks_for_initial(penalty, problems[0])
        self.initial = stacked([visit.initial for visit in visits]) if asked else Stack(own={}, common={})
        own = cast(Any, OnlyItsOwn())
        self.visit: Visit = replace(visits[0], client=own, data=own, facts=own, capacity=own, down=own, name=own)

    def penalties(self, own: Params, common: Params, active: int) -> Tensor:
        """The penalty of each of the first clients."""

        def one(params: Params, received: Params, state: Params, initial: Params) -> Tensor:
            visit = replace(
                self.visit,
                received=received | self.received.common,
                state=state | self.state.common,
                begin=lambda: initial | self.initial.common,
            )
            return self.penalty(params | common, visit)

        memories = (self.received.first(active), self.state.first(active), self.initial.first(active))
        result: Tensor = vmap(one)(own, *memories)
        return result

    def gradients(self, own: Params, common: Params, names: Sequence[str], active: int) -> tuple[Params, Tensor]:
        """Of each of the first clients, the gradients of its penalty alone, and the penalty."""
        leaves = {name: own[name].detach().requires_grad_() for name in names}
        values = self.penalties(own | leaves, common, active)
        grads = torch.autograd.grad(values.sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, grads, strict=True)), values.detach()


class Anchored:
    """The proximal penalty by hand: autograd would write down a dozen tensors of everybody's size in each step."""

    def __init__(self, penalty: Proximal, problems: Sequence[Problem]) -> None:
        params, statistics = problems[0].params, problems[0].visit.statistics
        anchors = [{penalty.of(n): value for n, value in one.visit.received.items()} for one in problems]
        held = [n for n, value in anchors[0].items() if value.is_floating_point() and n not in statistics]
        self.anchors = stacked([{n: each[n] for n in held if n in params} for each in anchors])
        self.strength = penalty.strength if penalty.half else 2 * penalty.strength

    def gradients(self, own: Params, common: Params, names: Sequence[str], active: int) -> tuple[Params, Tensor]:
        params, anchors = common | own, self.anchors.common | self.anchors.first(active)
        apart = {name: params[name] - anchor for name, anchor in anchors.items()}
        squares = torch.zeros(())
        for name, value in apart.items():
            rows = value.flatten(1) if name in own or name in self.anchors.own else value.reshape(1, -1)
            squares = squares + torch.linalg.vector_norm(rows, dim=1).square()
        pulls = {name: apart[name].mul_(self.strength) for name in names if name in apart}
        return pulls, self.strength / 2 * squares


def pull_of(problems: Sequence[Problem]) -> Memory | Anchored | None:
    """By hand where that is known, else by autograd; None: the phase has no penalty."""
    penalty = problems[0].phase.penalty
    return Anchored(penalty, problems) if type(penalty) is Proximal else memory_of(problems)


def memory_of(problems: Sequence[Problem]) -> Memory | None:
    """None: the phase has no penalty."""
    penalty = problems[0].phase.penalty
    return None if penalty is None else Memory(penalty, problems)


def asks_for_initial(penalty: Penalty, problem: Problem) -> bool:
    """Whether a penalty looks at what a client held at first, which takes time to make."""
    asked: list[bool] = []

    def begin() -> Params:
        asked.append(True)
        return problem.visit.initial

    penalty(problem.params, replace(problem.visit, begin=begin))
    return bool(asked)
