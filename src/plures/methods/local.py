"""Local: every client trains alone, from a common start; nothing is ever sent.

    w_i  <-  w_i after local SGD on client i

The baseline that tells whether taking part is worth it at all. Only clients of the cohort train in a round, so that
a client works as much as it would in the federated methods.

Deviations from the papers: none.
"""

from __future__ import annotations

from plures.core.method import Method, Phase
from plures.core.types import PERSONAL
from plures.local import as_optimizer, delta
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_personal, split
from plures.server.weights import samples


@register(
    title="Local",
    paper="baseline",
    shared="nothing",
    personal="everything",
    sent="nothing",
)
def local(
    *,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    buffers: BufferPolicy | None = "personal",
    stateful: bool = True,
) -> Method:
    """Train each client by itself."""
    train = Phase(train=PERSONAL, budget=budget, optimizer=as_optimizer(lr), clip_norm=clip_norm)
    tune = Phase(train=PERSONAL, budget=adapt, optimizer=as_optimizer(lr), clip_norm=clip_norm)
    return Method(
        split=split(all_personal(), buffers=buffers),
        local=(train,),
        upload=delta,
        weight=samples,
        server=as_optimizer(1.0),
        adapt=(tune,),
        stateful=stateful,
    )
