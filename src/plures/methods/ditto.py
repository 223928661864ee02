"""Ditto: a shared model as in FedAvg, and beside it a whole personal model held near it.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021.

    w as in FedAvg;    v_i  <-  v_i - personal_lr * (grad F_i(v_i) + lam * (v_i - w))

Variant `online` (the original): both in every round; the centre w is the model `received` in the round, or the client's
own `trained` copy of it (Nikoloutsopoulos et al. describe that). Variant `ft` (Pillutla et al.): FedAvg, then
fine-tuning on F_i(v) + lam |v - w|^2, without the half.

Deviations from the paper: a client's v_i starts from the first model it receives. Some public code applies the pull as
a separate step after the gradient step; here they are one step, as in the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.method import Method, Phase
from plures.core.types import PERSONAL
from plures.local import as_optimizer, proximal, start_from_received, twin, twin_distance, twin_of, with_twin
from plures.methods.fedavg import fedavg
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy
from plures.server.weights import samples


@register(
    title="Ditto",
    paper="Li et al. 2021",
    shared="everything",
    personal="a whole twin",
    sent="change of all weights",
)
def ditto(
    *,
    lam: float = 0.1,
    variant: Literal["online", "ft"] = "online",
    centre: Literal["received", "trained"] = "received",
    lr: Rule = 0.1,
    personal_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
    personal_budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """FedAvg for everybody, and a pulled twin (or pulled fine-tuning) for each."""
    base = fedavg(lr=lr, budget=budget, clip_norm=clip_norm, adapt=adapt, server=server, weight=weight, buffers=buffers)
    rule = as_optimizer(lr if personal_lr is None else personal_lr)
    if variant == "ft":
        tune = replace(base.adapt[0], optimizer=rule, penalty=proximal(lam, half=False))
        return replace(base, adapt=(tune,), judged_by="finetuned")
    pull = proximal(lam, of=twin_of) if centre == "received" else twin_distance(lam)
    own = Phase(train=PERSONAL, budget=personal_budget, optimizer=rule, view=twin, penalty=pull, clip_norm=clip_norm)
    return replace(
        base,
        local=(*base.local, own),
        extend=with_twin,
        start=start_from_received,
        predict=twin,
        adapt=(replace(own, budget=adapt, penalty=proximal(lam, of=twin_of)),),
        stateful=stateful,
        judged_by="personal",
    )
