"""SCAFFOLD: FedAvg whose steps are corrected by what each client's gradient differs from everybody's.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020 (option II).

    on each batch:    w_i <- w_i - lr * (grad F_i(w_i) - c_i + c)
    after K steps:    c_i' = c_i - c + (w - w_i) / (K lr)
    server:           w <- w - server_lr * mean_i (w - w_i);    c <- c + (cohort / population) * mean_i (c_i' - c_i)

Deviations from the paper: none. The reported training loss includes the correction as the linear term <c - c_i, w>.
"""

from __future__ import annotations

from plures.core.method import Method, OfAllClients, Phase
from plures.core.types import SHARED
from plures.local import as_optimizer, delta, sgd
from plures.local.controls import CONTROL, correction, refreshed_controls, with_controls
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rate, Rule
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.server.weights import uniform


@register(
    title="SCAFFOLD",
    paper="Karimireddy et al. 2020",
    shared="everything, a control variate",
    personal="a control variate",
    sent="change of all weights, twice",
)
def scaffold(
    *,
    lr: Rate = 0.1,
    budget: Duration = ONE_EPOCH,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    buffers: BufferPolicy | None = None,
) -> Method:
    """Plain SGD on clients, since the controls are read off its steps."""
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(Phase(train=SHARED, budget=budget, optimizer=sgd(lr), penalty=correction),),
        upload=delta,
        weight=uniform,
        server={SHARED: as_optimizer(server), CONTROL: OfAllClients(rule=sgd(1.0))},
        extend=with_controls,
        refresh=refreshed_controls,
        adapt=(Phase(train=SHARED, budget=adapt, optimizer=sgd(lr)),),
        judged_by="global",
    )
