"""FedBABU: only the body is trained together, under a head that nobody moves; clients fine-tune afterwards.

Oh, Kim, Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022.

    theta as in FedAvg with the head h fixed;    client i for evaluation: (theta, h) after `tune` on `finetune_part`

Deviations from the paper: none by default. `orthonormal` starts the head as U V^T of the singular value decomposition
of its initial [weight, bias] (the PFLEGO papers take a draw from U[0, 1) in its place): orthonormal rows, or columns
where classes outnumber those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from plures.core.errors import InvalidModel
from plures.core.method import Method, Phase, nothing_added
from plures.core.networks import Network
from plures.core.types import FROZEN, SHARED, Params, Part
from plures.local import as_optimizer, delta
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, Selection, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, NamedSplit, as_selector, head
from plures.server.weights import samples

HEAD: Part = FROZEN + ".head"


@register(
    title="FedBABU",
    paper="Oh et al. 2022",
    shared="body (the head is fixed)",
    personal="a fine-tuned copy",
    sent="change of the body",
)
def fedbabu(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    finetune_part: Literal["body", "head", "both"] = "both",
    orthonormal: bool = False,
    lr: Rule = 0.1,
    tune_lr: Rule | None = None,
    budget: Duration = ONE_EPOCH,
    tune: Duration = FIVE_EPOCHS,
    clip_norm: float | None = None,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
) -> Method:
    """FedAvg on the body; `personal` names the head that is fixed until fine-tuning."""
    tuned = {"body": (SHARED,), "head": (HEAD,), "both": (SHARED, HEAD)}[finetune_part]
    tuning = as_optimizer(lr if tune_lr is None else tune_lr)
    return Method(
        split=NamedSplit(rules={HEAD: as_selector(personal)}, buffers=buffers),
        local=(Phase(train=SHARED, budget=budget, optimizer=as_optimizer(lr), clip_norm=clip_norm),),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        extend=orthonormal_head if orthonormal else nothing_added,
        adapt=(Phase(train=tuned, budget=tune, optimizer=tuning, clip_norm=clip_norm),),
        judged_by="finetuned",
    )


def orthonormal_head(network: Network) -> Mapping[Part, Params]:
    """The nearest head with orthonormal rows (or columns, if those are fewer), bias as the last column."""
    head_params = {name: value for name, value in network.params.items() if network.parts[name] == HEAD}
    weights = [name for name, value in head_params.items() if value.dim() == 2]
    if len(weights) != 1 or len(head_params) > 2:
        raise InvalidModel(f"orthonormal needs a head of one linear layer, not {sorted(head_params)}.")
    columns = [head_params[weights[0]], *(value[:, None] for value in head_params.values() if value.dim() == 1)]
    # In double precision: in single, the rows of some heads miss being orthonormal by more than 1e-6.
    left, _, right = torch.linalg.svd(torch.cat(columns, dim=1).double(), full_matrices=False)
    rows = (left @ right).to(columns[0].dtype)
    width = columns[0].shape[1]
    started = {name: rows[:, :width] if name == weights[0] else rows[:, width] for name in head_params}
    return {HEAD: {name: value.contiguous() for name, value in started.items()}}
