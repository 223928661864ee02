"""Short digests by which two runs can tell whether they had the same data, dealt the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from plures.core.types import Batch
    from plures.data.dealing import Indices

Fingerprint = dict[str, str]
"""`data`: the examples themselves; `split`: who has which, for what, and the label space. Both are sha256."""


def digest_of_examples(batches: Iterable[Batch]) -> str:
    """Depends on every value, shape and dtype, and on the order."""
    digest = hashlib.sha256()
    for batch in batches:
        for tensor in batch:
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def digest_of_split(label_space: str, clients: Iterable[Iterable[Indices]]) -> str:
    """Depends on the label space and on every position, client by client and split by split."""
    digest = hashlib.sha256(label_space.encode())
    for splits in clients:
        for indices in splits:
            digest.update(f"|{len(indices)}:".encode())
            digest.update(np.ascontiguousarray(indices, dtype=np.int64).data)
    return digest.hexdigest()


def digest_of_text(*words: object) -> str:
    """For what is no array: sizes and names."""
    return hashlib.sha256("\x1f".join(str(word) for word in words).encode()).hexdigest()


def _bytes_of(tensor: Tensor) -> memoryview:
    # Through uint8, because numpy does not know all of torch's dtypes.
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
