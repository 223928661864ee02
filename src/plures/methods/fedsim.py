"""FedSim: shared and personal parts move together, each with its gradient at the same point.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022, Algorithms 1 and 2.

    v_i <- v_i - personal_lr * grad_v F_i(u_i, v_i),  u_i <- u_i - lr * grad_u F_i(u_i, v_i);    u <- sum_i q_i u_i

With `mean_regularised` (the paper's formulation (2) as a case of (3)) v_i is a whole twin of the shared model u and
the loss is F_i(v_i) + mean_regularised / 2 |v_i - u|^2.

Deviations from the paper: weights by examples (Algorithm 1 has 1/m, Appendix B and the text weigh by examples); the
paper tunes one rate per data set (0.001 to 0.1), here it is 0.1.
"""

from __future__ import annotations

from dataclasses import replace

from plures.core.method import Method, Phase
from plures.core.types import PERSONAL, SHARED
from plures.local import as_optimizer, delta
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
    title="FedSim",
    paper="Pillutla et al. 2022",
    shared="all but the personal part",
    personal="any part (default: head)",
    sent="change of the shared part",
)
def fedsim(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    lr: Rule = 0.1,
    personal_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
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
    """Simultaneous steps on both parts; one optimiser for both unless `personal_lr` is given."""
    if mean_regularised is None:
        objective = partial_objective(personal, personal_l2=personal_l2, buffers=buffers)
    else:
        objective = mean_regularised_objective(mean_regularised, personal_l2=personal_l2, buffers=buffers)
    shared_rule = as_optimizer(lr)
    personal_rule = shared_rule if personal_lr is None else as_optimizer(personal_lr)
    together = Phase(
        train=(SHARED, PERSONAL),
        budget=budget,
        optimizer=shared_rule if personal_lr is None else {SHARED: shared_rule, PERSONAL: personal_rule},
        view=objective.view,
        penalty=objective.penalty,
        clip_norm=clip_norm,
    )
    alone = replace(together, train=PERSONAL, budget=adapt, optimizer=personal_rule)
    return Method(
        split=objective.split,
        local=(together,),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        extend=objective.extend,
        start=STARTS[start],
        predict=objective.view,
        adapt=(alone,),
        stateful=stateful,
    )
