"""The data set that comes with a dependency and needs no file."""

from __future__ import annotations

import numpy as np

from plures.data.datasets import DataSet
from plures.data.examples import from_arrays
from plures.data.sources.registry import source


@source("digits", about="1,797 handwritten digits of scikit-learn, 1x8x8 pixels from 0 to 1, ten classes")
def digits() -> DataSet:
    """The handwritten digits that come with scikit-learn: real data that need no file."""
    # Not at the top: it would more than double the time of `import plures`.
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    examples = from_arrays((images / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels)
    return DataSet(name="digits", examples=examples, class_names=tuple("0123456789"))
