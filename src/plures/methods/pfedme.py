"""pFedMe: descent on the clients' Moreau envelopes.

Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020.

    for each batch:  theta ~ argmin f(theta; batch) + lam / 2 |theta - w_i|^2   by some steps from w_i
                     w_i  <-  w_i - lr * lam * (w_i - theta)
    server:          w  <-  (1 - b) w + b * mean_i w_i

The personal model is the last theta, or (`personal_model = "finetuned"`) the shared one fine-tuned with the same pull.

Deviations from the paper: none by default. `detached_prox` leaves the pull out of theta's gradient, as the public code
of Pillutla et al. does: lam then acts in the step of w only, and in fine-tuning. b is the server's rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.method import Method
from plures.core.types import PERSONAL
from plures.local import original, proximal, sgd, start_from_received, twin, twin_of, with_twin
from plures.local.moreau import MoreauDescent
from plures.methods.fedavg import fedavg
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rate, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy
from plures.server.weights import uniform


@register(
    title="pFedMe",
    paper="Dinh et al. 2020",
    shared="everything",
    personal="the last theta",
    sent="change of all weights",
)
def pfedme(
    *,
    lam: float = 15.0,
    inner_steps: int = 5,
    inner_lr: Rate = 0.01,
    lr: Rate = 0.005,
    personal_model: Literal["theta", "finetuned"] = "theta",
    detached_prox: bool = False,
    budget: Duration = ONE_EPOCH,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = uniform,
    buffers: BufferPolicy | None = None,
) -> Method:
    """`lr` is eta of the formula, `inner_lr` the rate of theta's steps: rates alone, for all steps are plain."""
    base = fedavg(lr=sgd(lr), budget=budget, adapt=adapt, server=server, weight=weight, buffers=buffers)
    inner, keeps = sgd(inner_lr), personal_model == "theta"
    envelope = MoreauDescent(
        lam=lam, inner_steps=inner_steps, inner_lr=inner.lr, detached_prox=detached_prox, keep_theta=keeps
    )
    tune = replace(base.adapt[0], optimizer=inner, penalty=proximal(lam))
    if not keeps:
        return replace(base, local=(replace(base.local[0], solver=envelope),), adapt=(tune,), judged_by="finetuned")
    return replace(
        base,
        local=(replace(base.local[0], view=original, solver=envelope),),
        extend=with_twin,
        start=start_from_received,
        predict=twin,
        adapt=(replace(tune, train=PERSONAL, view=twin, penalty=proximal(lam, of=twin_of)),),
        judged_by="personal",
    )
