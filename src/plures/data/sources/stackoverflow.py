"""StackOverflow: the next word, by user, with the rules by which the FedAlt paper chooses its users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plures.core.errors import InvalidData
from plures.data.corpora import Text, text_dataset
from plures.data.datasets import DataSet
from plures.data.dealing import keyed_generator
from plures.data.sources.finding import find_form, given_path
from plures.data.sources.json_files import read_json_lines
from plures.data.sources.leaf_text import leaf_shares
from plures.data.sources.reading import check_count, optional_package, reading, wrong
from plures.data.sources.registry import source
from plures.data.text import OOV, SPECIAL, WORDS_PER_SEQUENCE, words_of

LINES = (".jsonl", ".ndjson")
LINE_FORM = 'A line is {"user": ..., "text": ..., "split": "train" or "test"}: correct it'
TOKEN_FORM = "A text is a string or a list of words: write it so"

FILLING = ("<pad>", "<bos>", "<eos>")
UNKNOWN = ("<unk>", "<oov>")


class Written(NamedTuple):
    """One text as a file has it."""

    user: str
    text: str | list[str]
    test: bool


@source(
    "stackoverflow",
    about="questions and answers on StackOverflow, next word; clients are 1,000 users",
    files=(
        "stackoverflow/*.jsonl with user, text and split in each line, or stackoverflow/train/*.json and"
        " stackoverflow/test/*.json in the form of LEAF, or stackoverflow/stackoverflow_train.h5 and"
        " stackoverflow_test.h5 in that of TensorFlow Federated",
    ),
)
def stackoverflow(
    *,
    path: str | Path | None = None,
    users: int = 1000,
    min_train: int = 100,
    min_test: int = 10,
    max_sequences: int = 1000,
    length: int = WORDS_PER_SEQUENCE,
    vocabulary: int = 10_000,
    seed: int = 0,
) -> DataSet:
    """Each text is one sequence: its first `length` words, what follows is dropped, as in TensorFlow Federated's form.

    A client has `min_train` training and `min_test` test sequences (where a file has no test texts: as many as both
    together). Of more such users than `users`, so many are drawn. Of each, the first `max_sequences` to train on and
    as many to test on are kept.
    """
    counts = {"users": users, "min_train": min_train, "max_sequences": max_sequences, "length": length}
    for option, count in (counts | {"vocabulary": vocabulary}).items():
        check_count(option, count)
    check_count("min_test", min_test, 0)
    place = _found() if path is None else given_path(path)
    chosen = chosen_users(place, users, min_train, min_test, seed)
    texts = _texts(place, chosen, max_sequences, length)
    return text_dataset("stackoverflow", texts, length=length, vocabulary=vocabulary)


def _found() -> Path:
    forms = {
        "lines": ("stackoverflow/*.jsonl*",),
        "leaf": ("stackoverflow/**/train/*.json*", "stackoverflow/**/test/*.json*"),
        "hdf5": ("stackoverflow/*_train.h5", "stackoverflow/*_test.h5"),
    }
    form, paths = find_form("stackoverflow", forms)
    return {"lines": paths[0], "leaf": paths[0].parent.parent, "hdf5": paths[0].parent}[form]


def written_in(place: Path) -> Iterator[Written]:
    """All texts with something in them, from any form of file."""
    packed = [place] if place.suffix == ".h5" else sorted([*place.glob("*_train.h5"), *place.glob("*_test.h5")])
    if place.is_file() and any(ending in LINES for ending in place.suffixes):
        texts = _from_lines(place)
    elif packed:
        texts = chain.from_iterable(map(_from_hdf5, packed))
    else:
        texts = _from_leaf(place)
    return (written for written in texts if (written.text.strip() if isinstance(written.text, str) else written.text))


def _from_lines(path: Path) -> Iterator[Written]:
    for where, line in read_json_lines(path):
        absent = next((key for key in ("user", "text") if key not in line), None)
        if absent:
            raise wrong(path, f"has no '{absent}' in {where}", LINE_FORM)
        split = line.get("split", "train")
        if split not in ("train", "test"):
            raise wrong(path, f"has the split {split!r} in {where}", LINE_FORM)
        yield Written(str(line["user"]), _checked(path, line["text"], where), split == "test")


def _from_leaf(place: Path) -> Iterator[Written]:
    for share in leaf_shares(place):
        for text in share.x:
            yield Written(share.user, _checked(share.path, text, f"user '{share.user}'"), share.test)


def _from_hdf5(path: Path) -> Iterator[Written]:
    """TensorFlow Federated's form: examples/USER/tokens, each a text whose words are parted by spaces."""
    h5py = optional_package("h5py", "An HDF5 file")
    with reading(path):
        file = h5py.File(path, "r")
    with file:
        with reading(path):
            clients = file.get("examples", {})
        if not clients:
            raise wrong(path, "is no per-client file of TFF: it has no clients in a group 'examples'")
        for user in clients:
            with reading(path):
                texts = [text.decode("utf-8") for text in clients[user]["tokens"][()]]
            yield from (Written(user, text.split(" "), path.stem.endswith("test")) for text in texts if text.strip())


def _checked(path: Path, text: Any, where: str) -> str | list[str]:
    if isinstance(text, str) or (isinstance(text, list) and all(isinstance(word, str) for word in text)):
        return text
    raise wrong(path, f"has in {where} a text that is {str(text)[:40]!r}", TOKEN_FORM)


def chosen_users(place: Path, users: int, min_train: int, min_test: int, seed: int) -> set[str]:
    """The users with texts enough, or so many of them; texts are only counted, since a file may not fit into memory."""
    counts: dict[str, list[int]] = {}
    for written in written_in(place):
        counts.setdefault(written.user, [0, 0])[written.test] += 1
    if not any(test for _, test in counts.values()):
        min_train, min_test = min_train + min_test, 0
    enough = sorted(user for user, (train, test) in counts.items() if train >= min_train and test >= min_test)
    if not enough:
        most = max(counts.values(), default=[0, 0])
        problem = f"No user of {place} has {min_train} texts to train and {min_test} to test on"
        raise InvalidData(f"{problem} (the busiest has {most[0]} and {most[1]}): lower min_train or min_test.")
    if len(enough) <= users:
        return set(enough)
    return set(keyed_generator(seed, "stackoverflow users").choice(np.array(enough), users, replace=False).tolist())


def _texts(place: Path, users: set[str], max_sequences: int, length: int) -> Iterator[Text]:
    taken_already: dict[tuple[str, bool], int] = {}
    for written in written_in(place):
        whose = (written.user, written.test)
        if written.user in users and taken_already.get(whose, 0) < max_sequences:
            taken_already[whose] = taken_already.get(whose, 0) + 1
            yield Text(owner=written.user, tokens=words_in(written.text)[:length], test=written.test)


def words_in(text: str | list[str]) -> Sequence[str]:
    """Words by our rule, or those of a list, without the filling that some files have."""
    if isinstance(text, str):
        return words_of(text)
    words = [word.lower() for word in text if word.lower() not in FILLING]
    return [SPECIAL[OOV] if word in UNKNOWN else word for word in words]
