"""The generalised additive model: a shared model and a personal one, whose outputs are fused.

Figure 2b of Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plures.core.errors import InvalidModel, did_you_mean

Fusion = Literal["sum", "logits", "probabilities"]


class Additive(nn.Module):
    """Parameters are `shared.*`, `personal.*`, perhaps `input_layer.*`, and `mixing` unless outputs are summed."""

    mixing: nn.Parameter | None

    def __init__(
        self,
        shared: nn.Module,
        personal: nn.Module,
        *,
        fusion: Fusion = "logits",
        input_layer: nn.Module | None = None,
        shared_weight: float = 0.5,
    ) -> None:
        super().__init__()
        self.fusion = fusion
        self.input_layer = input_layer
        self.shared = shared
        self.personal = personal
        start = None if fusion == "sum" else nn.Parameter(logit(shared_weight, self))
        self.register_parameter("mixing", start)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs if self.input_layer is None else self.input_layer(inputs)
        common, own = self.shared(hidden), self.personal(hidden)
        if common.shape != own.shape:
            raise InvalidModel(
                f"The shared model gives outputs of shape {tuple(common.shape)}, the personal one of "
                f"{tuple(own.shape)}. They are added up, so give them the same."
            )
        if self.mixing is None:
            return torch.add(common, own)
        weight = torch.sigmoid(self.mixing)
        if self.fusion == "logits":
            return torch.add(weight * common, (1 - weight) * own)
        return log_mixture(self.mixing, common, own)


def additive(
    shared: nn.Module,
    personal: nn.Module,
    *,
    fusion: Fusion = "logits",
    input_layer: nn.Module | None = None,
    shared_weight: float = 0.5,
) -> Additive:
    """A shared and a personal model side by side, perhaps behind a shared input layer.

    With h and h_i for their outputs and theta = sigmoid(mixing), which starts at `shared_weight`, the output is

        "sum"              h + h_i                                             for regression
        "logits"           theta h + (1 - theta) h_i                           for classification
        "probabilities"    log(theta softmax(h) + (1 - theta) softmax(h_i))    for classification, as in the paper

    The last are logarithms of probabilities: cross-entropy takes them as they are.

    `personal_branch()` of `plures.parts` selects the personal model and the mixing weight; for a shared mixing weight
    use the pattern "personal.*".

    Regression: with "sum" and the squared error the loss of client i is |y - h(u, x) - h_i(v_i, x)|^2. FedAlt's
    personal phase holds u still, so there h(u, x) is a constant and v_i is fitted to y - h(u, x), the residual of the
    shared model; its shared phase fits u to y - h_i(v_i, x) in turn. Nothing need be detached. FedSim moves both at
    once, and each takes part of the same residual.
    """
    if fusion not in get_args(Fusion):
        raise InvalidModel(f"There is no fusion '{fusion}'. {did_you_mean(fusion, get_args(Fusion))}")
    if not 0.0 < shared_weight < 1.0:
        raise InvalidModel(f"The weight of the shared model is between 0 and 1, not {shared_weight}.")
    if {id(value) for value in shared.parameters()} & {id(value) for value in personal.parameters()}:
        raise InvalidModel("The shared and the personal model have parameters in common. Make two models.")
    return Additive(shared, personal, fusion=fusion, input_layer=input_layer, shared_weight=shared_weight)


def logit(weight: float, model: nn.Module) -> Tensor:
    """The value whose sigmoid is the weight, in the model's precision."""
    like = next(model.parameters(), torch.empty(0))
    return torch.logit(torch.tensor(weight, dtype=like.dtype, device=like.device))


def log_mixture(mixing: Tensor, common: Tensor, own: Tensor) -> Tensor:
    """log(theta p + (1 - theta) q) from logits, by logarithms throughout; classes are the last dimension."""
    first = F.logsigmoid(mixing) + F.log_softmax(common, dim=-1)
    second = F.logsigmoid(-mixing) + F.log_softmax(own, dim=-1)
    return torch.logaddexp(first, second)
