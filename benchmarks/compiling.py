"""Whether `torch.compile` pays for itself: a training step compiled, beside the same step as it is.

    python benchmarks/compiling.py

On one thread; medians of many steps, the steps in turns. Told is also after how many steps the time of compiling is
won back; a round of 20 clients with 600 examples has 1,200 steps of batch 10, or 380 of batch 32.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plures.models import leaf_cnn, mlp

STEPS = 40
CASES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "MLP 784-100-10, batch 10": (lambda: mlp(shape=(1, 28, 28), hidden=(100,), classes=10), 10),
    "CNN 32/64 5x5, batch 32": (lambda: leaf_cnn(shape=(1, 28, 28), classes=10), 32),
}


def stepper(module: nn.Module) -> Callable[[dict[str, Tensor], Tensor, Tensor], list[Tensor]]:
    """A pure step of SGD, from parameters to parameters."""

    def loss(params: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(module, params, (inputs,)), targets)

    def step(params: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> list[Tensor]:
        grads = torch.func.grad(loss)(params, inputs, targets)
        return [value - 0.01 * grads[name] for name, value in params.items()]

    return step


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(name: str, make: Callable[[], nn.Module], batch: int) -> None:
    module = make()
    params = {key: value.detach() for key, value in module.named_parameters()}
    inputs, targets = torch.rand(batch, 1, 28, 28), torch.arange(batch) % 10
    plain = stepper(module)
    compiled = torch.compile(plain)
    first = seconds(lambda: compiled(params, inputs, targets))
    turns = [
        [seconds(lambda step=step: step(params, inputs, targets)) for step in (plain, compiled)] for _ in range(STEPS)
    ]
    eager, fast = (statistics.median(turn[place] for turn in turns) for place in (0, 1))
    won = f"won back after {first / (eager - fast):,.0f} steps" if fast < eager else "never won back"
    print(f"{name}: {1e3 * eager:.2f} ms plain, {1e3 * fast:.2f} ms compiled; compiling {first:.1f} s, {won}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}")
    for name, (make, batch) in CASES.items():
        measure(name, make, batch)
