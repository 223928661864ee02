"""Which parameters are whose."""

from plures.parts.selectors import (
    Selector,
    all_personal,
    all_shared,
    as_selector,
    first_layer,
    head,
    norms,
    patterns,
    representation,
)
from plures.parts.split import BufferPolicy, NamedSplit, combine, partition, split, split_table

__all__ = [
    "BufferPolicy",
    "NamedSplit",
    "Selector",
    "all_personal",
    "all_shared",
    "as_selector",
    "combine",
    "first_layer",
    "head",
    "norms",
    "partition",
    "patterns",
    "representation",
    "split",
    "split_table",
]
