"""FedProx: FedAvg whose clients are held near the model they received.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.

    w_i  <-  w after local SGD on F_i(w_i) + mu / 2 |w_i - w|^2;    w  <-  sum_i q_i w_i

Deviations from the paper: none in the update; the paper also lets clients do unequal work, which here is a matter of
budgets. The papers that compare with it do not report mu; 0.001 to 1 is a usual grid.
"""

from __future__ import annotations

from dataclasses import replace

from plures.core.method import Method
from plures.local import proximal
from plures.methods.fedavg import fedavg
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy
from plures.server.weights import samples


@register(
    title="FedProx",
    paper="Li et al. 2020",
    shared="everything",
    personal="nothing",
    sent="change of all weights",
)
def fedprox(
    *,
    mu: float = 0.01,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
) -> Method:
    """FedAvg with a proximal term of strength `mu` in local training; fine-tuning is without it."""
    plain = fedavg(
        lr=lr, budget=budget, clip_norm=clip_norm, adapt=adapt, server=server, weight=weight, buffers=buffers
    )
    return replace(plain, local=tuple(replace(phase, penalty=proximal(mu)) for phase in plain.local))
