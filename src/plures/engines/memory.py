"""Memory of processes that are ours: what steps free stays at hand."""

from __future__ import annotations

import ctypes

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
KEPT_BYTES = 2**30


def keep_freed_memory() -> None:
    """Steps free large tensors and want them again at once; what went back to the system would have to be cleared."""
    try:
        mallopt = ctypes.CDLL(None).mallopt  # of the GNU C library
    except (OSError, TypeError, AttributeError):  # Windows, macOS, other libraries
        return
    for setting in (MMAP_THRESHOLD, TRIM_THRESHOLD):
        mallopt(setting, KEPT_BYTES)
