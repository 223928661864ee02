"""FedAlt: each client first moves its personal part, then, with that held still, the shared one.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022, Algorithms 1 and 3.

    v_i <- v_i after SGD on F_i(u, .);    u_i <- u after SGD on F_i(., v_i);    u <- sum_i q_i u_i

With `mean_regularised` (the paper's formulation (2) as a case of (3)) v_i is a whole twin of the shared model u and
the loss is F_i(v_i) + mean_regularised / 2 |v_i - u|^2.

Deviations from the paper: weights by examples (Algorithm 1 has 1/m, Appendix B and the text weigh by examples); the
paper tunes one rate per data set (0.001 to 0.1), here it is 0.1. As in the paper, a round makes two passes over the
data where FedSim makes one, and the personal regulariser acts in the personal phase only.
"""

from __future__ import annotations

from dataclasses import replace

from plures.core.method import Method, Phase
from plures.core.types import PERSONAL, SHARED
from plures.local import as_optimizer, delta, twin_distance
from plures.methods.options import (
    FIVE_EPOCHS,
    ONE_EPOCH,
    STARTS,
    Duration,
    Rule,
    Selection,
    StartName,
    WeightOption,
    mean_regularised_objective,
    partial_objective,
)
from plures.methods.registry import register
from plures.parts import BufferPolicy, head
from plures.server.weights import samples


@register(
    title="FedAlt",
    paper="Pillutla et al. 2022",
    shared="all but the personal part",
    personal="any part (default: head)",
    sent="change of the shared part",
)
def fedalt(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    lr: Rule = 0.1,
    personal_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
    personal_budget: Duration | None = None,
    clip_norm: float | None = None,
    personal_l2: float = 0.0,
    mean_regularised: float | None = None,
    start: StartName = "common",
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """Alternating steps; the personal phase takes the shared phase's rate and budget unless given its own."""
    if mean_regularised is None:
        objective, coupling = partial_objective(personal, personal_l2=personal_l2, buffers=buffers), None
    else:
        objective = mean_regularised_objective(mean_regularised, personal_l2=personal_l2, buffers=buffers)
        coupling = twin_distance(mean_regularised)
    personal_phase = Phase(
        train=PERSONAL,
        budget=budget if personal_budget is None else personal_budget,
        optimizer=as_optimizer(lr if personal_lr is None else personal_lr),
        view=objective.view,
        penalty=objective.penalty,
        clip_norm=clip_norm,
    )
    shared_phase = Phase(
        train=SHARED,
        budget=budget,
        optimizer=as_optimizer(lr),
        view=objective.view,
        penalty=coupling,
        clip_norm=clip_norm,
    )
    return Method(
        split=objective.split,
        local=(personal_phase, shared_phase),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        extend=objective.extend,
        start=STARTS[start],
        predict=objective.view,
        adapt=(replace(personal_phase, budget=adapt),),
        stateful=stateful,
    )
