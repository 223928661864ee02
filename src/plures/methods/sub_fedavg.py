"""Sub-FedAvg: every client starts from the dense model and prunes its copy, little by little, to a network of its own.

Vahidian, Morafah, Lin, "Personalized Federated Learning by Structured and Unstructured Pruning under Data
Heterogeneity", ICDCS Workshops 2021.

    received m_i * w;    w_i <- w_i - lr * m_i * grad F_i(w_i)
    M1 after the first epoch, M2 after the last: m_i without what is below the p-percentile of each tensor's weights
    m_i <- M2 if distance(M1, M2) > d, density(m_i) > target and accuracy(M2 * w_i) > a
    server, coordinate by coordinate:    w <- w - server_lr * mean of (w - w_i) over clients that have it

Deviations from the paper: the accuracy is that on training examples, where the authors' code takes the test set; the
last step is cut short to end at the target; "hybrid" decides once, on channels and weights together. The values of p,
d, a and the target are those of the FedSpa paper.
"""

from __future__ import annotations

import math
from typing import Literal

from plures.core.errors import InvalidConfig
from plures.core.method import Method, Phase
from plures.core.rates import check_decay, check_positive, check_rate
from plures.core.types import SHARED
from plures.local import as_optimizer, own_visits
from plures.local.budgets import Epochs
from plures.local.masks import masked, masked_download, newly_masked_delta
from plures.local.pruning import ROUND_OFF, Pruner, PruningDescent, PruningRefresh, with_candidates
from plures.methods.options import FIVE_EPOCHS, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.server.weights import uniform


@register(
    title="Sub-FedAvg",
    paper="Vahidian et al. 2021",
    shared="everything, dense at the server",
    personal="a mask that shrinks",
    sent="masked change, next mask",
)
def sub_fedavg(
    *,
    target_density: float = 0.5,
    prune_share: float = 0.05,
    distance_threshold: float = 1e-4,
    accuracy_threshold: float = 0.5,
    variant: Literal["unstructured", "hybrid"] = "unstructured",
    lr: Rule = 0.1,
    budget: Duration = FIVE_EPOCHS,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = uniform,
    buffers: BufferPolicy | None = None,
) -> Method:
    """`prune_share` goes at a time: of each tensor's weights, or, if "hybrid", of each convolution's channels first."""
    if check_positive("target_density of sub_fedavg", target_density) > 1:
        raise InvalidConfig(f"target_density of sub_fedavg is a share, above 0 and at most 1, not {target_density!r}.")
    if target_density < 1 and isinstance(budget, Epochs) and budget.count < 2:
        told = (
            f"sub_fedavg compares the first epoch with the last, but epochs = {budget.count}: nobody would ever prune"
        )
        raise InvalidConfig(f"{told}. Give two epochs or more.")
    accuracy = check_rate("accuracy_threshold of sub_fedavg", accuracy_threshold)
    distance = check_rate("distance_threshold of sub_fedavg", distance_threshold)
    share = check_decay("prune_share of sub_fedavg", prune_share)
    pruner = Pruner(share=share, target=target_density, whole_channels=variant == "hybrid")
    noting = PruningDescent(pruner=pruner, accuracy=accuracy)
    rule = as_optimizer(lr)
    train = Phase(train=SHARED, budget=budget, optimizer=rule, view=masked, clip_norm=clip_norm, solver=noting)
    tune = Phase(train=SHARED, budget=adapt, optimizer=rule, view=masked, clip_norm=clip_norm)
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(train,),
        upload=newly_masked_delta,
        weight=weight,
        server=as_optimizer(server),
        download=masked_download,
        per_coordinate=True,
        extend=with_candidates,
        refresh=PruningRefresh(pruner=pruner, distance=distance, accuracy=accuracy),
        predict=masked,
        adapt=(tune,),
        welcome=own_visits(num_prunings(share, target_density)),
    )


def num_prunings(share: float, target: float) -> int:
    """How many it takes from the dense model to the target, if each leaves all but that share; 0 if none ever could."""
    return math.ceil(math.log(target) / math.log1p(-share) * (1.0 - ROUND_OFF)) if share else 0
