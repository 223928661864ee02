"""SGD and Adam as pure functions with a rate; they work on one client and, under vmap, on many."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plures.core.clipping import clip_by_norm
from plures.core.errors import InvalidConfig
from plures.core.method import Optimizer, OptimizerState
from plures.core.rates import as_schedule, check_decay, check_positive, check_rate, check_schedule
from plures.core.types import Params, Schedule

__all__ = ["OPTIMIZERS", "Adam", "Sgd", "adam", "as_optimizer", "clip_by_norm", "sgd"]

COUNT = "count"
"""The state that counts updates has this name, and one tensor that belongs to no parameter."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """The rule of torch.optim.SGD without dampening."""

    lr: Schedule
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_schedule("lr of Sgd", self.lr)
        check_decay("momentum of Sgd", self.momentum)
        check_rate("weight_decay of Sgd", self.weight_decay)
        if self.nesterov and not self.momentum:
            raise InvalidConfig("nesterov of Sgd needs momentum: give a momentum above 0, or leave nesterov out.")

    def init(self, params: Params) -> OptimizerState:
        return {"momentum": _zeros(params)} if self.momentum else {}

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        steps = _decayed(grads, params, self.weight_decay)
        if self.momentum:
            past = state["momentum"]
            velocity = {name: torch.add(step, past[name], alpha=self.momentum) for name, step in steps.items()}
            state, steps = {"momentum": velocity}, self._directions(steps, velocity)
        return {name: torch.add(value, steps[name], alpha=-lr) for name, value in params.items()}, state

    def _directions(self, steps: Params, velocity: Params) -> Params:
        if not self.nesterov:
            return velocity
        return {name: torch.add(step, velocity[name], alpha=self.momentum) for name, step in steps.items()}


@dataclass(frozen=True, kw_only=True)
class Adam:
    """The rule of torch.optim.Adam: bias correction, and weight decay added to the gradient."""

    lr: Schedule
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_schedule("lr of Adam", self.lr)
        _pair(self.betas)
        check_positive("eps of Adam", self.eps)
        check_rate("weight_decay of Adam", self.weight_decay)

    def init(self, params: Params) -> OptimizerState:
        device = next((value.device for value in params.values()), None)
        count = torch.zeros((), dtype=torch.int64, device=device)
        return {"first": _zeros(params), "second": _zeros(params), COUNT: {"": count}}

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        beta1, beta2 = self.betas
        steps = _decayed(grads, params, self.weight_decay)
        count = state[COUNT][""] + 1
        first = {name: torch.lerp(state["first"][name], step, 1 - beta1) for name, step in steps.items()}
        second = {
            name: torch.addcmul(beta2 * state["second"][name], step, step, value=1 - beta2)
            for name, step in steps.items()
        }
        corrections = {dtype: self._corrections(count, dtype) for dtype in {value.dtype for value in params.values()}}
        moved: Params = {}
        for name, value in params.items():
            of_first, of_second = corrections[value.dtype]
            size = second[name].sqrt() / of_second.sqrt() + self.eps
            moved[name] = value - first[name] / size * (lr / of_first)
        return moved, {"first": first, "second": second, COUNT: {"": count}}

    def _corrections(self, count: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        beta1, beta2 = self.betas
        return _faded(beta1, count.to(dtype)), _faded(beta2, count.to(dtype))


def _pair(betas: tuple[float, float]) -> tuple[float, float]:
    if len(betas) != 2:
        raise InvalidConfig(f"betas of Adam are two numbers, not {betas!r}.")
    return check_decay("beta 1 of Adam", betas[0]), check_decay("beta 2 of Adam", betas[1])


def _faded(beta: float, count: Tensor) -> Tensor:
    """1 - beta ** count; by expm1, since the difference itself loses four digits in single precision."""
    return -torch.expm1(count * (math.log(beta) if beta else -math.inf))


def _zeros(params: Params) -> Params:
    return {name: torch.zeros_like(value) for name, value in params.items()}


def _decayed(grads: Params, params: Params, weight_decay: float) -> Params:
    if not weight_decay:
        return grads
    return {name: torch.add(grad, params[name], alpha=weight_decay) for name, grad in grads.items()}


def sgd(lr: float | Schedule, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent, with momentum if asked."""
    return Sgd(lr=as_schedule(lr), momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)


def adam(
    lr: float | Schedule,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Adam with bias correction."""
    return Adam(lr=as_schedule(lr), betas=_pair(betas), eps=eps, weight_decay=weight_decay)


def as_optimizer(value: float | Schedule | Optimizer) -> Optimizer:
    """An optimiser as it is; a rate as plain SGD."""
    if isinstance(value, int | float) or callable(value):
        return sgd(value)
    if not hasattr(value, "update"):
        raise InvalidConfig(f"an optimiser must be a rate, a schedule or an optimiser such as sgd(0.1), not {value!r}.")
    return value


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": sgd, "adam": adam}
