"""A user's own pictures: folders of classes, or folders of clients that hold folders of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from plures.core.types import Batch
from plures.data.datasets import DataSet, Scaled
from plures.data.sources.finding import given_path
from plures.data.sources.images import number_owners
from plures.data.sources.pictures import ENDINGS, read_pictures
from plures.data.sources.reading import check_choice, check_count, wrong
from plures.data.sources.registry import source


@source(
    "image-folder",
    about="your own pictures: path=FOLDER with <class>/*.png, or with by=client <client>/<class>/*.png",
)
def image_folder(
    path: str | Path, by: Literal["class", "client"] = "class", size: int | None = None, grey: bool = False
) -> DataSet:
    """Pixels from 0 to 1. With `size` the shorter side becomes that many pixels and the centre square is kept."""
    check_choice("by", by, ("class", "client"))
    if size is not None:
        check_count("size", size)
    folder = given_path(path)
    paths = sorted(file for file in folder.glob("*/*" if by == "class" else "*/*/*") if _is_picture(file))
    if not paths:
        layout = "<class>" if by == "class" else "<client>/<class>"
        raise wrong(
            folder, f"has no pictures in folders {layout}", f"Put them there as {layout}/NAME.png, or change by"
        )
    class_names, (labels,) = number_owners([file.parent.name for file in paths])
    images = read_pictures(paths, grey=grey, resize=size, crop=size)
    clients = [file.parent.parent.name for file in paths]
    names, owners = number_owners(clients) if by == "client" else ((), [None])
    return DataSet(
        name="image-folder",
        examples=Batch(torch.from_numpy(images), torch.from_numpy(labels)),
        owners=owners[0],
        owner_names=names,
        class_names=class_names,
        prepare=Scaled(),
    )


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")
