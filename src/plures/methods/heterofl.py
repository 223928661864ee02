"""HeteroFL: clients of different means train narrower slices of one model, the first channels of every layer.

Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous Clients",
ICLR 2021.

    s_i: the first ceil(r_i C) of the C channels of every layer; all inputs of the first, all classes of the last
    w_i = w[s_i] after local SGD, with hidden layers divided by r_i and logits of classes that i has not set to 0
    server, each coordinate:  w <- w - server_lr * mean of (w - w_i) over those who hold it; held by nobody, it stays

Deviations from the paper: a client has one width for good (the paper also draws widths anew), and predicts with its
own slice over all classes (the public code tests the whole model). The slice is the whole network with zeros, so that
a layer norm, and a group norm whose group is cut, take their means over these too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from plures.core.errors import InvalidConfig
from plures.core.method import Capacity, Method, Phase
from plures.core.networks import Network
from plures.core.rates import check_positive
from plures.core.types import KNOWN, SHARED, Params, Part
from plures.core.visit import Beginning
from plures.local import as_optimizer
from plures.local.masks import mask_of, masked, masked_delta, masked_download, masks_in, with_masks
from plures.local.widths import NarrowDescent, class_marks, own_rows_delta
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, head, split
from plures.parts.widths import TRANSPOSED, check_slices, hidden_layers, output_path, sizes, slices
from plures.server.weights import uniform


@register(
    title="HeteroFL",
    paper="Diao et al. 2021",
    shared="everything, at full width",
    personal="a width",
    sent="change of its slice",
)
def heterofl(
    *,
    width: float = 1.0,
    scaler: bool = True,
    mask_logits: bool = True,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = 1.0,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = uniform,
    buffers: BufferPolicy = "reset",
) -> Method:
    """`width` is the share of channels a client has, where [capacity] does not say."""
    if check_positive("width of heterofl", width) > 1:
        raise InvalidConfig(f"width of heterofl is a share of channels, above 0 and at most 1, not {width!r}.")
    sliced = lru_cache(maxsize=16)(slices)  # clients of the same width have the same masks

    def own_slice(beginning: Beginning) -> Params:
        found, masks = sliced(beginning.network.module, beginning.capacity), masks_in(beginning.state)
        return beginning.state | {mask_of(name): found[name] for name in masks}

    steps = NarrowDescent(hidden=hidden_layers if scaler else None, mask_logits=mask_logits, check_slices=check_slices)
    tune = Phase(train=SHARED, budget=adapt, optimizer=as_optimizer(lr), view=masked, clip_norm=clip_norm)
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(replace(tune, budget=budget, solver=steps),),
        upload=own_rows_delta if mask_logits else masked_delta,
        weight=weight,
        server=as_optimizer(server),
        download=masked_download,
        per_coordinate=True,
        extend=with_slices,
        start=own_slice,
        predict=masked,
        adapt=(tune,),
        capacity=Capacity(unit="width", usual=width, sizes=slice_sizes),
    )


def with_slices(network: Network) -> Mapping[Part, Params]:
    """Masks, and marks of the output layer; the rows of a transposed convolution are inputs and not classes."""
    output = network.module.get_submodule(output_path(network.module))
    rows = [] if isinstance(output, TRANSPOSED) else sorted(head()(network.module))
    return {KNOWN: {**with_masks(network)[KNOWN], **class_marks(network, rows)}}


def slice_sizes(network: Network, width: float) -> Mapping[str, int]:
    found = sizes(network.module, width)
    return {name: found[name] for name, part in network.parts.items() if part == SHARED}
