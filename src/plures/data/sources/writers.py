"""Characters by writer in one npz file; UNIPEN's come in this form."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np

from plures.data.datasets import DataSet, Scaled
from plures.data.sources.finding import find_form
from plures.data.sources.images import LIKE_THE_OTHERS, image_batch
from plures.data.sources.reading import read_npz, wrong
from plures.data.sources.registry import source

CHARACTERS = tuple(digits + ascii_uppercase + ascii_lowercase)


@source(
    "unipen",
    about="105,382 characters drawn from pen strokes, 1x28x28, 62 classes; clients are 317 writers",
    files=("unipen-chars/unipen-chars.npz with x, y, writer and writers",),
)
def unipen() -> DataSet:
    """Pixels from 0 to 1, ink bright; writers of 20 to 4,885 characters, in very different classes."""
    _, paths = find_form("unipen", {"npz": ("unipen-chars/unipen-chars.npz",)})
    return by_writer("unipen", paths[0])


def by_writer(name: str, path: Path) -> DataSet:
    """Images x, class numbers y, of each the place of its writer among the names in `writers`; maybe class names."""
    arrays = read_npz(path, "x", "y", "writer", "writers", optional=["classes"])
    writers = tuple(map(str, arrays["writers"].reshape(-1)))
    class_names = tuple(map(str, arrays["classes"].reshape(-1))) if "classes" in arrays else CHARACTERS
    examples = image_batch(path, arrays["x"], arrays["y"], len(class_names))
    owners = arrays["writer"].reshape(-1)
    if len(owners) != examples.num_examples:
        raise wrong(path, f"has {examples.num_examples} images but {len(owners)} writers of images", LIKE_THE_OTHERS)
    if owners.dtype.kind not in "iu" or owners.min() < 0 or owners.max() >= len(writers):
        raise wrong(path, f"has writers of images that are no places among its {len(writers)} writers", LIKE_THE_OTHERS)
    return DataSet(
        name=name,
        examples=examples,
        owners=owners.astype(np.int64),
        owner_names=writers,
        class_names=class_names,
        prepare=Scaled(),
    )
