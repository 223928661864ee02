"""Subsampling: FedAvg whose clients send a random part of what they learnt.

Konečný et al., "Federated Learning: Strategies for Improving Communication Efficiency", 2016.

    w  <-  w - server_lr * mean_i B_i * (w - w_i),    B_i a fresh random mask with a share `keep` of ones

Deviations from the paper: what is sent is not divided by `keep`, which is what the results in the FedSpa paper need;
`rescale` divides it. The server divides by the cohort, not by those who sent a coordinate.
"""

from __future__ import annotations

from plures.core.errors import InvalidConfig
from plures.core.method import Method, Phase
from plures.core.rates import check_positive
from plures.core.types import SHARED
from plures.local import as_optimizer
from plures.local.subsampling import SubsampledDelta
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.server.weights import uniform


@register(
    title="Subsampling",
    paper="Konečný et al. 2016",
    shared="everything",
    personal="nothing",
    sent="a random part of the change",
)
def subsampling(
    *,
    keep: float = 0.5,
    exact: bool = True,
    rescale: bool = False,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = uniform,
    buffers: BufferPolicy | None = None,
) -> Method:
    """`keep` is the share of all values that a client sends; without `exact`, each is sent with that probability."""
    if check_positive("keep of subsampling", keep) > 1:
        raise InvalidConfig(f"keep of subsampling is the share that is sent: above 0 and at most 1, not {keep!r}.")
    train = Phase(train=SHARED, budget=budget, optimizer=as_optimizer(lr), clip_norm=clip_norm)
    tune = Phase(train=SHARED, budget=adapt, optimizer=as_optimizer(lr), clip_norm=clip_norm)
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(train,),
        upload=SubsampledDelta(keep=keep, exact=exact, rescale=rescale),
        weight=weight,
        server=as_optimizer(server),
        adapt=(tune,),
        judged_by="global",
    )
