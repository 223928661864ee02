"""FedRep: many head steps for each client, then a few on the shared representation.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021.

    W_i <- W_i after `head_budget` on l_i(., theta);    theta_i <- theta after `budget` on l_i(W_i, .)
    server:  theta <- sum_i q_i theta_i

Deviations from the paper: weights by examples, as its code has them (the text has 1/m).
"""

from __future__ import annotations

from plures.core.method import Budget, Method
from plures.local import epochs
from plures.methods.fedalt import fedalt
from plures.methods.options import ONE_EPOCH, Duration, Rule, Selection, StartName, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, head
from plures.server.weights import samples

TEN_EPOCHS: Budget = epochs(10, batch=32)


@register(
    title="FedRep",
    paper="Collins et al. 2021",
    shared="body",
    personal="head",
    sent="change of the body",
)
def fedrep(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    lr: Rule = 0.1,
    head_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
    head_budget: Duration = TEN_EPOCHS,
    clip_norm: float | None = None,
    start: StartName = "common",
    adapt: Duration = TEN_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """FedAlt with the head as the personal part and a budget of its own for it."""
    return fedalt(
        personal=personal,
        lr=lr,
        personal_lr=head_lr,
        budget=budget,
        personal_budget=head_budget,
        clip_norm=clip_norm,
        start=start,
        adapt=adapt,
        server=server,
        weight=weight,
        buffers=buffers,
        stateful=stateful,
    )
