"""LG-FedAvg: each client has its own representation; the layers on top of it are shared.

Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020.

    (v_i, u_i)  <-  (v_i, u) after local SGD on both;    u  <-  sum_i q_i u_i    (v: lower layers, u: upper layers)

Deviations from the paper: which layers are lower is the user's choice; by default all up to the last convolution, or
all but the head where there is none. The original starts from a FedAvg model: give one as the network, or in a file
[model] weights = "RUN/shared.safetensors".
"""

from __future__ import annotations

from plures.core.method import Method
from plures.methods.fedsim import fedsim
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, Selection, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, representation
from plures.server.weights import samples


@register(
    title="LG-FedAvg",
    paper="Liang et al. 2020",
    shared="upper layers",
    personal="representation (lower layers)",
    sent="change of the upper layers",
)
def lg_fedavg(
    *,
    personal: Selection = representation(),  # noqa: B008 - a frozen value
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = "personal",
    stateful: bool = True,
) -> Method:
    """FedSim's simultaneous steps with the lower layers as the personal part."""
    return fedsim(
        personal=personal,
        lr=lr,
        budget=budget,
        clip_norm=clip_norm,
        adapt=adapt,
        server=server,
        weight=weight,
        buffers=buffers,
        stateful=stateful,
    )
