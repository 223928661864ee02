"""FedSpa: every client trains a sparse model of its own, cut from one dense shared model by a mask that moves.

Huang et al., "Achieving Personalized Federated Learning with Sparse Local Models", 2022.

    received m_i * w;    w_i <- w_i - lr * m_i * grad F_i(w_i);    server:  w <- w - server_lr * mean_i m_i * (w - w_i)
    next mask of each tensor (DST): drop the ceil(a_t |m_i|) smallest weights, take as many with the largest gradient,
    a_t = a_0 / 2 * (1 + cos(pi t / (T - 1))) in round t + 1, a_0 = 0.5;    RSM: the mask stays

Deviations from the paper: none known. Its text leaves open that ties go to the first coordinate, that a weight just
pruned may come back, that the gradient is that of the visit's first batch in evaluation mode, and that new masks are
evaluated. `per_coordinate` divides by those who held a coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import torch

from plures.core.method import Capacity, Method, Phase
from plures.core.networks import Network
from plures.core.rates import check_positive
from plures.core.types import SHARED, Params
from plures.core.visit import Beginning, common_draws
from plures.local import as_optimizer, as_schedule, own_visits
from plures.local.mask_search import Annealed, MaskRefresh, MaskSearch, search_named
from plures.local.masks import mask_of, masked, masked_delta, masked_download, random_mask, with_masks
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rate, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.parts.densities import DENSITIES, check_density, counts
from plures.server.weights import uniform


@register(
    title="FedSpa",
    paper="Huang et al. 2022",
    shared="everything, dense at the server",
    personal="a mask",
    sent="masked change, next mask",
)
def fedspa(
    *,
    density: float = 0.5,
    densities: Literal["erk", "uniform"] = "erk",
    search: Literal["dst", "rsm"] | MaskSearch = "dst",
    regrow: Literal["gradient", "random"] = "gradient",
    prune_rate: Rate | None = None,
    same_masks: bool = True,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = uniform,
    per_coordinate: bool = False,
    buffers: BufferPolicy | None = None,
) -> Method:
    """`density` is the share of weights a client keeps, where [capacity] does not say. No `prune_rate`: annealed."""
    usual = check_density(check_positive("density of fedspa", density))

    def sizes(network: Network, capacity: float) -> Mapping[str, int]:
        shapes = {n: tuple(value.shape) for n, value in network.params.items() if network.parts[n] == SHARED}
        return counts(shapes, DENSITIES[densities](shapes, capacity))

    def drawn(network: Network, capacity: float, draws: torch.Generator) -> Params:
        kept = sizes(network, capacity)
        return {mask_of(n): random_mask(network.params[n], count, draws) for n, count in kept.items()}

    @lru_cache(maxsize=16)  # clients with the same masks share them in memory
    def common(network: Network, capacity: float, seed: int) -> Params:
        return drawn(network, capacity, common_draws(seed))

    def first_masks(beginning: Beginning) -> Params:
        network, capacity = beginning.network, beginning.capacity
        if same_masks:
            return beginning.state | common(network, capacity, beginning.seed)
        return beginning.state | drawn(network, capacity, beginning.own_draws())

    rate = Annealed(start=0.5) if prune_rate is None else as_schedule(prune_rate)
    train = Phase(train=SHARED, budget=budget, optimizer=as_optimizer(lr), view=masked, clip_norm=clip_norm)
    tune = Phase(train=SHARED, budget=adapt, optimizer=as_optimizer(lr), view=masked, clip_norm=clip_norm)
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(train,),
        upload=masked_delta,
        weight=weight,
        server=as_optimizer(server),
        download=masked_download,
        per_coordinate=per_coordinate,
        extend=with_masks,
        start=first_masks,
        refresh=MaskRefresh(search=search_named(search, regrow), rate=rate),
        predict=masked,
        adapt=(tune,),
        welcome=own_visits(0 if search == "rsm" else 1),  # a visit searches for masks
        capacity=Capacity(unit="density", usual=usual, sizes=sizes),
    )
