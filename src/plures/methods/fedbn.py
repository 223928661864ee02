"""FedBN: everything is shared but the normalisation layers, statistics included.

Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021.

    (v_i, u_i)  <-  (v_i, u) after local SGD on both;    u  <-  sum_i q_i u_i    (v: scales, shifts, running statistics)

Deviations from the paper: any normalisation layer counts (batch, group, layer norm), not only batch normalisation. A
network without one is an error: FedBN would silently be FedAvg.
"""

from __future__ import annotations

from plures.core.method import Method
from plures.methods.fedsim import fedsim
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import norms
from plures.server.weights import samples


@register(
    title="FedBN",
    paper="Li et al. 2021",
    shared="all but the norms",
    personal="normalisation layers",
    sent="change of the shared part",
)
def fedbn(
    *,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    stateful: bool = True,
) -> Method:
    """FedSim with the norms as the personal part and personal running statistics."""
    return fedsim(
        personal=norms(),
        lr=lr,
        budget=budget,
        clip_norm=clip_norm,
        adapt=adapt,
        server=server,
        weight=weight,
        buffers="personal",
        stateful=stateful,
    )
