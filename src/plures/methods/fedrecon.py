"""FedRecon: clients reconstruct their own part from scratch at each visit, and train the shared part with it.

Singhal et al., "Federated Reconstruction: Partially Local Federated Learning", NeurIPS 2021.

    v_i <- start after `recon_budget` on the support half, u held still
    u_i <- u after `budget` on the query half, v_i held still;   u <- server(u, sum_i q_i (u - u_i));   v_i is forgotten

Variant `pflego` (the PFLEGO papers' Algorithm 4): clients keep v_i; tau full-batch steps on it, then the gradient of
the shared part on the same data, which the server sums and hands to Adam.

Deviations from the papers: the halves are every other example, as in the reference library. In `pflego` the sum is
weighted as in PFLEGO's preset `paper`; its text has that factor, its code has not, and Adam hardly sees it. For
evaluation a client reconstructs its part from all its training examples. `pflego` reads neither `budget` nor `weight`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.errors import InvalidConfig
from plures.core.method import Budget, Method, Phase
from plures.core.types import PERSONAL, SHARED
from plures.local import FULL, adam, as_optimizer, cached_descent, delta, epochs, gradient, query, steps, support
from plures.local.budgets import Epochs, Steps
from plures.methods.options import STARTS, Duration, Rule, Selection, StartName, WeightOption
from plures.methods.pflego import server_optimizer
from plures.methods.registry import register
from plures.parts import BufferPolicy, head, split
from plures.server.weights import round_ht, samples

ONE_EPOCH: Budget = epochs(1, batch=32)
FIFTY_STEPS: Budget = steps(50, batch=FULL)
PFLEGO_RATE = 0.007


@register(
    title="FedRecon",
    paper="Singhal et al. 2021",
    shared="all but the personal part",
    personal="any part, rebuilt at each visit",
    sent="change (or gradient) of the shared part",
)
def fedrecon(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    variant: Literal["recon", "pflego"] = "recon",
    lr: Rule = 0.1,
    recon_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
    recon_budget: Duration | None = None,
    start: StartName | None = None,
    server: Rule | None = None,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
) -> Method:
    """Stateless with halves by default; `variant = "pflego"` keeps the personal part and sends gradients."""
    original = variant == "recon"
    length = recon_budget or (ONE_EPOCH if original else FIFTY_STEPS)
    recon_rate: Rule = (lr if original else PFLEGO_RATE) if recon_lr is None else recon_lr
    rebuild = Phase(
        train=PERSONAL,
        budget=length,
        optimizer=as_optimizer(recon_rate),
        solver=cached_descent,
    )
    base = Method(
        split=split(personal, buffers=buffers),
        local=(rebuild,),
        upload=gradient,
        weight=round_ht,
        server=adam(0.001) if server is None else server_optimizer(server, exact=False),
        start=STARTS[start or ("common" if original else "uniform")],
        adapt=(rebuild,),
    )
    if not original:
        observe = Phase(train=(), observe=SHARED, budget=steps(1, FULL), optimizer=as_optimizer(0.0))
        return replace(base, local=(rebuild, observe))
    if not isinstance(length, Epochs | Steps) or not isinstance(budget, Epochs | Steps):
        raise InvalidConfig("The budgets of fedrecon are epochs(...) or steps(...): it halves the data itself.")
    shared_phase = Phase(train=SHARED, budget=query(budget), optimizer=as_optimizer(lr))
    return replace(
        base,
        local=(replace(rebuild, budget=support(length), solver=None), shared_phase),
        upload=delta,
        weight=weight,
        server=as_optimizer(1.0 if server is None else server),
        stateful=False,
        judged_by="finetuned",
    )
