"""Per-FedAvg: a shared start from which one gradient step makes each client a good model.

Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning: A Meta-Learning Approach", NeurIPS 2020.

    F_i(w) = f_i(w - inner_lr * grad f_i(w));    on batches D, D', D'':    w~ = w_i - inner_lr * grad f_i(w_i; D)
    first order:    w_i <- w_i - lr * grad f_i(w~; D')
    Hessian-free:   w_i <- w_i - lr * (g - inner_lr * (grad f_i(w_i + d g; D'') - grad f_i(w_i - d g; D'')) / (2 d)),
                    g = grad f_i(w~; D')
    server:         w <- sum_i q_i w_i;    client i for evaluation: w after `adapt` at inner_lr

Deviations from the paper: weights by examples (the paper has 1/m). Each step takes 2 (first order) or 3 batches of the
budget; a few left over at its end are not used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.method import Budget, Method
from plures.core.rates import check_positive
from plures.local import sgd, steps
from plures.local.meta import MetaDescent
from plures.methods.fedavg import fedavg
from plures.methods.options import Duration, Rate, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy
from plures.server.weights import samples

THIRTY_BATCHES: Budget = steps(30, batch=32)
ONE_STEP: Budget = steps(1, batch=32)


@register(
    title="Per-FedAvg",
    paper="Fallah et al. 2020",
    shared="everything",
    personal="one step from the shared model",
    sent="change of all weights",
)
def per_fedavg(
    *,
    variant: Literal["first_order", "hessian_free"] = "first_order",
    inner_lr: Rate = 0.01,
    lr: Rule = 0.1,
    difference: float = 1e-3,
    budget: Duration = THIRTY_BATCHES,
    adapt: Duration = ONE_STEP,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
) -> Method:
    """`inner_lr` is the rate of the step a client takes by itself, `lr` that of the shared model."""
    check_positive("difference of per_fedavg", difference)
    inner = sgd(inner_lr)
    meta = MetaDescent(inner_lr=inner.lr, hessian_free=variant == "hessian_free", difference=difference)
    base = fedavg(lr=lr, budget=budget, adapt=adapt, server=server, weight=weight, buffers=buffers)
    return replace(
        base,
        local=(replace(base.local[0], solver=meta),),
        adapt=(replace(base.adapt[0], optimizer=inner),),
        judged_by="finetuned",
    )
