"""LEAF's json files of texts by user: {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plures.core.errors import InvalidData
from plures.data.sources.json_files import read_json, taken
from plures.data.sources.reading import wrong

FORM = 'A file of LEAF is {"users": [...], "user_data": {user: {"x": [...]}}}: give one, or fetch it again'


class Share(NamedTuple):
    """What one file has of one user."""

    path: Path
    user: str
    x: list[Any]
    y: list[Any]
    """Empty where the file has none."""
    test: bool


def leaf_shares(place: Path) -> Iterator[Share]:
    """Every user of one file, or of all files in a folder; those below a folder "test" are to be tested on."""
    for path in leaf_files(place):
        content = read_json(path)
        users = taken(path, content, "users", list, "it", FORM)
        data = taken(path, content, "user_data", dict, "it", FORM)
        for user in users:
            yield _share(path, str(user), data, test="test" in path.relative_to(place).parts[:-1])


def leaf_files(place: Path) -> list[Path]:
    """A file by itself, or the json files of a folder: those of its train and test if it has them."""
    if not place.is_dir():
        return [place]
    for patterns in (("train/*.json*", "test/*.json*"), ("all_data/*.json*",), ("*.json*",)):
        found = [sorted(place.glob(pattern)) for pattern in patterns]
        if found[0]:
            return [path for paths in found for path in paths]
    raise InvalidData(f"{place} has no json files. Give a folder with train/*.json and test/*.json, as LEAF makes it.")


def _share(path: Path, user: str, data: dict[str, Any], *, test: bool) -> Share:
    where = f"user '{user}'"
    own = taken(path, data, user, dict, "user_data", FORM)
    x = taken(path, own, "x", list, where, FORM)
    y = taken(path, own, "y", list, where, FORM) if "y" in own else []
    if not x:
        raise wrong(path, f"has no texts of {where}", "Remove the user from 'users', or give texts")
    return Share(path, user, x, y, test)
