"""Short names for series of runs, no two alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

SEED_ENDING = re.compile(r"[-_./=]*(seed)?[-_./=]*[0-9]*$")
"""What is left at the end of the common beginning of paths that end in the numbers of seeds."""


def unique_labels(groups: Sequence[tuple[str, Sequence[Path]]]) -> list[str]:
    """The wanted label of each group; those that several groups want are told apart by their folders."""
    labels = [label for label, _ in groups]
    wanted = Counter(labels)
    for label in [label for label, count in wanted.items() if count > 1]:
        rivals = [number for number, (own, _) in enumerate(groups) if own == label]
        endings = distinct_endings([groups[number][1] for number in rivals])
        for number, ending in zip(rivals, endings, strict=True):
            labels[number] = ending if label in ending else f"{label}:{ending}"
    return labels


def distinct_endings(groups: Sequence[Sequence[Path]]) -> list[str]:
    """As few last parts of each group's path as tell all groups apart."""
    paths = [common_path(folders) for folders in groups]
    if len(set(paths)) < len(paths):
        paths = [folders[0] for folders in groups]
    deepest = max(len(path.parts) for path in paths)
    tries = (["/".join(path.parts[-depth:]) for path in paths] for depth in range(1, deepest + 1))
    return next(endings for endings in tries if len(set(endings)) == len(endings))


def common_path(folders: Sequence[Path]) -> Path:
    """Of seeds in runs/fast/seed-0 and runs/fast/seed-1, or in runs/fast-0 and runs/fast-1, runs/fast."""
    paths = [str(folder) for folder in folders]
    if len(paths) == 1:
        return folders[0]
    common = SEED_ENDING.sub("", common_beginning(paths))
    return Path(common) if common else folders[0]


def common_beginning(texts: Sequence[str]) -> str:
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in alike)
