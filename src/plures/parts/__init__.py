"""Which parameters are whose, and adapters to add to those that there are."""

from plures.parts.adapters import bottleneck_adapters, conv_adapters, lora, num_groups
from plures.parts.insertion import input_dropout
from plures.parts.layers import Adapter
from plures.parts.selectors import (
    Selector,
    adapters,
    adapters_and_norms,
    all_personal,
    all_shared,
    as_selector,
    first_block,
    first_layer,
    head,
    input_layer,
    last_block,
    norms,
    output_layer,
    patterns,
    personal_branch,
    representation,
)
from plures.parts.split import BufferPolicy, NamedSplit, combine, partition, split, split_table

__all__ = [
    "Adapter",
    "BufferPolicy",
    "NamedSplit",
    "Selector",
    "adapters",
    "adapters_and_norms",
    "all_personal",
    "all_shared",
    "as_selector",
    "bottleneck_adapters",
    "combine",
    "conv_adapters",
    "first_block",
    "first_layer",
    "head",
    "input_dropout",
    "input_layer",
    "last_block",
    "lora",
    "norms",
    "num_groups",
    "output_layer",
    "partition",
    "patterns",
    "personal_branch",
    "representation",
    "split",
    "split_table",
]
