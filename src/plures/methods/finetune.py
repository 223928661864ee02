"""FedAvg-FT: train one model as FedAvg does, then let each client fine-tune a copy of it.

    w as in FedAvg;    w_i  <-  w after `tune` epochs of SGD on client i, for evaluation only

Full: all parameters move. Partial ("FT (part.)" of Pillutla et al., "Federated Learning with Partial Model
Personalization", ICML 2022): only the selected ones do, all others keep FedAvg's values.

Deviations from the papers: none. One epoch of fine-tuning is the default of the pFedGate paper, five that of
Pillutla et al.
"""

from __future__ import annotations

from plures.core.method import Method, Phase
from plures.core.types import SHARED
from plures.local import as_optimizer, delta
from plures.methods.options import ONE_EPOCH, Duration, Rule, Selection, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, NamedSplit, all_personal, as_selector
from plures.server.weights import samples

TUNED = "shared.tuned"
"""Shared like the rest while it is trained together; the only part that moves afterwards."""


@register(
    title="FedAvg-FT",
    paper="McMahan et al. 2017 + fine-tuning",
    shared="everything",
    personal="a fine-tuned copy",
    sent="change of all weights",
)
def finetune(
    *,
    personal: Selection | None = None,
    lr: Rule = 0.1,
    tune_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
    tune: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
) -> Method:
    """FedAvg, and after it fine-tuning of the `personal` selection (None: of everything)."""
    selected = all_personal() if personal is None else as_selector(personal)
    tuning = as_optimizer(lr if tune_lr is None else tune_lr)
    return Method(
        split=NamedSplit(rules={TUNED: selected}, buffers=buffers),
        local=(Phase(train=(SHARED, TUNED), budget=budget, optimizer=as_optimizer(lr), clip_norm=clip_norm),),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        adapt=(Phase(train=TUNED, budget=tune, optimizer=tuning, clip_norm=clip_norm),),
        judged_by="finetuned",
    )
