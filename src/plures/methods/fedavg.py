"""FedAvg: one model for everybody, the average of what the clients trained.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

    w  <-  w - server_lr * sum_i q_i (w - w_i),    w_i = w after local SGD on client i

Deviations from the paper: none. Rates and budgets differ between all papers that use it; the defaults are one
epoch with batches of 32 at rate 0.1.
"""

from __future__ import annotations

from plures.core.method import Method, Phase
from plures.core.types import SHARED
from plures.local import as_optimizer, delta
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.server.weights import samples


@register(
    title="FedAvg",
    paper="McMahan et al. 2017",
    shared="everything",
    personal="nothing",
    sent="change of all weights",
)
def fedavg(
    *,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
) -> Method:
    """Average the clients' models; `adapt` fine-tunes a copy for evaluation and newcomers."""
    train = Phase(train=SHARED, budget=budget, optimizer=as_optimizer(lr), clip_norm=clip_norm)
    tune = Phase(train=SHARED, budget=adapt, optimizer=as_optimizer(lr), clip_norm=clip_norm)
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(train,),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        adapt=(tune,),
        judged_by="global",
    )
