"""Products of matrices on processors: by oneDNN where that is faster than the BLAS of this build of torch.

The usual builds have MKL, which leaves half of what AMD's wide registers can do unused; oneDNN comes with torch too.
Which of the two multiplies depends on the machine and on shapes alone, so that a run gives the same bits again.
"""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

LEAST_ROWS = 8
"""Below it memory is the limit, whoever multiplies."""
LEAST_WORK = 2**21
"""Multiplications of a product that is worth the call."""
LEAST_WEIGHTS = 2**14
"""Of the largest matrix of a network that is worth a look at each of its calls."""
PLAIN = (Tensor, nn.Parameter)


@cache
def is_faster() -> bool:
    """Whether oneDNN is the faster one here."""
    return (
        bool(torch._C._has_mkldnn and torch._C.has_mkl)
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and is_from_amd()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def is_from_amd() -> bool:
    info = Path("/proc/cpuinfo")
    told = info.read_text("utf-8", errors="replace") if info.is_file() else platform.processor()
    return "AuthenticAMD" in told


def by_rows(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What `F.linear` gives for a matrix; factors may lie in any order, but oneDNN reads a bias as it lies."""
    bias = None if bias is None else bias.contiguous()
    result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return result


def suits(inputs: Any, weight: Any, bias: Any = None) -> bool:
    """Whether this product is worth while, and is one of plain numbers: nothing of functorch, no subclass, no trace.

    What does not fit together is left to torch, which says so.
    """
    if type(inputs) not in PLAIN or type(weight) not in PLAIN or weight.dim() != 2:
        return False
    rows = inputs.numel() // max(1, weight.shape[1])
    return (
        rows * weight.numel() >= LEAST_WORK  # most that do not suit are too small
        and rows >= LEAST_ROWS
        and is_faster()
        and inputs.shape[-1] == weight.shape[1]
        and is_single(inputs)
        and is_single(weight)
        and (bias is None or (type(bias) in PLAIN and is_single(bias) and bias.shape == weight.shape[:1]))
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch.is_autocast_enabled("cpu")
    )


def is_single(value: Tensor) -> bool:
    return value.dtype == torch.float32 and value.device.type == "cpu"


class Linear(torch.autograd.Function):
    """A linear layer whose three products are by oneDNN."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return by_rows(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (error,), (inputs, weight) = errors, ctx.saved_tensors
        wanted = ctx.needs_input_grad
        # With gradients on, somebody will ask for gradients of these: oneDNN has none to give.
        product = F.linear if torch.is_grad_enabled() else by_rows
        return (
            product(error, weight.T) if wanted[0] else None,
            product(error.T, inputs.T) if wanted[1] else None,
            error.sum(dim=0) if wanted[2] else None,
        )


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, by oneDNN where that suits."""
    if not suits(inputs, weight, bias):
        return F.linear(inputs, weight, bias)
    rows = inputs.reshape(-1, inputs.shape[-1])
    asked = torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in (rows, weight, bias))
    found: Tensor = Linear.apply(rows, weight, bias) if asked else by_rows(rows, weight, bias)  # type: ignore[no-untyped-call]
    return found.view(*inputs.shape[:-1], weight.shape[0])


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, where nobody asks for gradients."""
    return by_rows(left, right.T) if suits(left, right.T) else left @ right


def add_product(into: Tensor, left: Tensor, right: Tensor, *, alpha: float, beta: float = 1.0) -> Tensor:
    """beta times `into`, plus alpha times left @ right, in place; where nobody asks for gradients."""
    if not suits(left, right.T):
        return into.addmm_(left, right, beta=beta, alpha=alpha)
    if beta != 1.0:
        into.mul_(beta)
    return into.add_(by_rows(left, right.T), alpha=alpha)


class FasterLinear(TorchFunctionMode):
    """While it is on, linear layers of whatever network are by oneDNN where that suits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            return linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def faster_products(module: nn.Module) -> AbstractContextManager[Any]:
    """For the steps and the answers of a network; nothing where there is nothing to be gained."""
    return FasterLinear() if is_faster() and has_large_matrix(module) else nullcontext()


def has_large_matrix(module: nn.Module) -> bool:
    return any(value.dim() == 2 and value.numel() >= LEAST_WEIGHTS for value in module.parameters())
