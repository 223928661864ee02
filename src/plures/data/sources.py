"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from plures.core.types import Batch
from plures.data.examples import from_arrays


def digits() -> Batch:
    """The 1,797 handwritten digits that come with scikit-learn: 1x8x8 pixels from 0 to 1, ten classes."""
    # Not at the top: it would more than double the time of `import plures`.
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return from_arrays((images / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels)


SOURCES: dict[str, Callable[[], Batch]] = {"digits": digits}
