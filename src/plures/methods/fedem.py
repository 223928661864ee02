"""FedEM: every client's model is a mixture of a few shared networks, with shares of its own.

Marfoq, Neglia, Bellet, Kameni, Vidal, "Federated Multi-Task Learning under a Mixture of Distributions", NeurIPS 2021.

    p_i(y | x) = sum_m pi_im p_m(y | x);    received: all networks w_m
    E step, all examples j:  q_jm = pi_im exp(-loss_jm) / sum_l pi_il exp(-loss_jl),    pi_im <- mean_j q_jm
    on each batch B:         w_im <- w_im - lr * (1 / |B|) sum_{j in B} q_jm grad loss_jm
    server:                  w_m <- w_m - server_lr * mean_i (w_m - w_im), by examples and whatever pi is

Deviations from the paper: none known. Classes are chosen by the mixture's probabilities.
"""

from __future__ import annotations

from typing import Literal

from plures.core.method import Method, Phase
from plures.core.rates import check_count
from plures.core.types import SHARED
from plures.local import as_optimizer, delta, steps
from plures.local.mixture import MIXING, ExpectationMaximisation, ShareSteps
from plures.methods.options import ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.parts.mixture import mixing_shares, mixture_of
from plures.server.weights import samples


@register(
    title="FedEM",
    paper="Marfoq et al. 2021",
    shared="several networks",
    personal="the share of each",
    sent="change of all networks",
)
def fedem(
    *,
    components: int = 3,
    outputs: Literal["classes", "values"] = "classes",
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt_steps: int = 10,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """`components` networks are mixed; `adapt_steps` E steps give a newcomer its shares."""
    check_count("components of fedem", components, least=1)
    check_count("adapt_steps of fedem", adapt_steps, least=1)
    train = Phase(
        train=SHARED,
        budget=budget,
        optimizer=as_optimizer(lr),
        clip_norm=clip_norm,
        solver=ExpectationMaximisation(real=outputs == "values"),
    )
    # Shares are computed, not stepped: the optimiser has nothing to do.
    tune = Phase(
        train=MIXING, budget=steps(adapt_steps), optimizer=as_optimizer(0.0), solver=ShareSteps(count=adapt_steps)
    )
    return Method(
        split=split(all_shared(), buffers=buffers, mixing=mixing_shares()),
        local=(train,),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        wrap=mixture_of(components, outputs),
        adapt=(tune,),
        stateful=stateful,
    )
