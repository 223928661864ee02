"""FedAdam, FedYogi and FedAdagrad: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.

With delta = -gradient: first <- beta1 first + (1 - beta1) delta; second by the rule of each;
shared <- shared + lr first / (sqrt(second) + tau). There is no bias correction.

Deviations from the paper: `second` starts at 0, as in most code; the paper asks for tau^2 or more, which
`initial_second` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plures.core.method import Optimizer, OptimizerState
from plures.core.rates import as_schedule, check_decay, check_positive, check_rate, check_schedule
from plures.core.types import Params, Schedule

__all__ = ["SERVER_OPTIMIZERS", "FedAdagrad", "FedAdam", "FedYogi", "fedadagrad", "fedadam", "fedyogi"]

SecondMoment = Callable[[Tensor, Tensor], Tensor]
"""(second moment so far, square of the gradient) -> second moment."""


@dataclass(frozen=True, kw_only=True)
class FedAdam:
    """second <- beta2 second + (1 - beta2) delta^2."""

    lr: Schedule
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    initial_second: float = 0.0

    def __post_init__(self) -> None:
        _check("FedAdam", self.lr, self.beta1, self.beta2, self.tau, self.initial_second)

    def init(self, params: Params) -> OptimizerState:
        return _start(params, self.initial_second)

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        return _move(grads, state, params, lr, beta1=self.beta1, tau=self.tau, rule=self._second)

    def _second(self, second: Tensor, square: Tensor) -> Tensor:
        return torch.lerp(second, square, 1 - self.beta2)


@dataclass(frozen=True, kw_only=True)
class FedYogi:
    """second <- second - (1 - beta2) delta^2 sign(second - delta^2)."""

    lr: Schedule
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    initial_second: float = 0.0

    def __post_init__(self) -> None:
        _check("FedYogi", self.lr, self.beta1, self.beta2, self.tau, self.initial_second)

    def init(self, params: Params) -> OptimizerState:
        return _start(params, self.initial_second)

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        return _move(grads, state, params, lr, beta1=self.beta1, tau=self.tau, rule=self._second)

    def _second(self, second: Tensor, square: Tensor) -> Tensor:
        return torch.addcmul(second, square, torch.sign(second - square), value=self.beta2 - 1)


@dataclass(frozen=True, kw_only=True)
class FedAdagrad:
    """second <- second + delta^2; without momentum, as in the paper's experiments."""

    lr: Schedule
    beta1: float = 0.0
    tau: float = 1e-3
    initial_second: float = 0.0

    def __post_init__(self) -> None:
        _check("FedAdagrad", self.lr, self.beta1, 0.0, self.tau, self.initial_second)

    def init(self, params: Params) -> OptimizerState:
        return _start(params, self.initial_second)

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        return _move(grads, state, params, lr, beta1=self.beta1, tau=self.tau, rule=torch.add)


def _check(who: str, lr: Schedule, beta1: float, beta2: float, tau: float, initial_second: float) -> None:
    check_schedule(f"lr of {who}", lr)
    check_decay(f"beta1 of {who}", beta1)
    check_decay(f"beta2 of {who}", beta2)
    check_positive(f"tau of {who}", tau)
    check_rate(f"initial_second of {who}", initial_second)


def _start(params: Params, initial_second: float) -> OptimizerState:
    return {
        "first": {name: torch.zeros_like(value) for name, value in params.items()},
        "second": {name: torch.full_like(value, initial_second) for name, value in params.items()},
    }


def _move(
    grads: Params, state: OptimizerState, params: Params, lr: float, *, beta1: float, tau: float, rule: SecondMoment
) -> tuple[Params, OptimizerState]:
    first = {name: torch.lerp(state["first"][name], -grad, 1 - beta1) for name, grad in grads.items()}
    second = {name: rule(state["second"][name], grad.square()) for name, grad in grads.items()}
    moved = {
        name: torch.addcdiv(value, first[name], second[name].sqrt() + tau, value=lr) for name, value in params.items()
    }
    return moved, {"first": first, "second": second}


def fedadam(
    lr: float | Schedule, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, initial_second: float = 0.0
) -> Optimizer:
    """FedAdam by the rule of Reddi et al.; for Adam with bias correction use the `adam` of clients."""
    return FedAdam(lr=as_schedule(lr), beta1=beta1, beta2=beta2, tau=tau, initial_second=initial_second)


def fedyogi(
    lr: float | Schedule, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, initial_second: float = 0.0
) -> Optimizer:
    """FedYogi by the rule of Reddi et al."""
    return FedYogi(lr=as_schedule(lr), beta1=beta1, beta2=beta2, tau=tau, initial_second=initial_second)


def fedadagrad(lr: float | Schedule, beta1: float = 0.0, tau: float = 1e-3, initial_second: float = 0.0) -> Optimizer:
    """FedAdagrad by the rule of Reddi et al."""
    return FedAdagrad(lr=as_schedule(lr), beta1=beta1, tau=tau, initial_second=initial_second)


SERVER_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
}
