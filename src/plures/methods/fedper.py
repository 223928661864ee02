"""FedPer: a shared body, a personal head, trained together.

Arivazhagan et al., "Federated Learning with Personalization Layers", 2019; defaults as in the PFLEGO papers.

    (theta_i, W_i)  <-  (theta, W_i) after local descent on both;    theta  <-  sum_i q_i theta_i

Deviations from the papers: none. Both gradients are taken at the old point, as the PFLEGO authors' code does; their
Algorithm 2 lists the head first.
"""

from __future__ import annotations

from plures.core.method import Budget, Method
from plures.local import FULL, steps
from plures.methods.fedsim import fedsim
from plures.methods.options import Duration, Rule, Selection, StartName, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, head
from plures.server.weights import samples

FIFTY_STEPS: Budget = steps(50, batch=FULL)


@register(
    title="FedPer",
    paper="Arivazhagan et al. 2019",
    shared="body",
    personal="head",
    sent="change of the body",
)
def fedper(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    lr: Rule = 0.007,
    budget: Duration = FIFTY_STEPS,
    clip_norm: float | None = None,
    start: StartName = "uniform",
    adapt: Duration = FIFTY_STEPS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """FedSim's simultaneous steps with the head as the personal part."""
    return fedsim(
        personal=personal,
        lr=lr,
        budget=budget,
        clip_norm=clip_norm,
        start=start,
        adapt=adapt,
        server=server,
        weight=weight,
        buffers=buffers,
        stateful=stateful,
    )
