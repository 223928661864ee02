"""Opens files so that whatever is wrong with one is a single error that names it and what to do."""

from __future__ import annotations

import gzip
import importlib
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plures.core.errors import InvalidConfig, InvalidData, did_you_mean

Array = NDArray[Any]

FETCH_AGAIN = "It is damaged, or not what its name says: fetch it again"
GZIP_MAGIC = b"\x1f\x8b"
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK"

BROKEN: tuple[type[Exception], ...] = (
    *(OSError, EOFError, MemoryError, ArithmeticError, RuntimeError, SyntaxError),
    *(KeyError, IndexError, TypeError, ValueError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error),
)
"""What the readers of gzip, zip, npz, mat, HDF5 and images raise for a file that is not whole."""


@contextmanager
def reading(path: Path, *more: type[Exception], remedy: str = FETCH_AGAIN) -> Iterator[None]:
    """Around the reading of one file, and nothing else: what a reader raises becomes one error of ours."""
    try:
        yield
    except (*BROKEN, *more) as error:
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InvalidData(f"Cannot read {path}: {what.rstrip('.')}. {remedy}.") from None


Unpacked = gzip.GzipFile | io.BufferedReader
"""The bytes of an open file, packed or not."""


def wrong(path: Path, what: str, remedy: str = FETCH_AGAIN) -> InvalidData:
    """A file that can be read but does not hold what it should."""
    return InvalidData(f"{path} {what}. {remedy}.")


def open_file(path: Path) -> Unpacked:
    """The bytes of a file, unpacked if it is a gzip file, whatever its name."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    return gzip.open(path) if packed else path.open("rb")


def read_npz(path: Path, *names: str, optional: Collection[str] = (), remedy: str = FETCH_AGAIN) -> dict[str, Array]:
    """The named arrays of an npz file, and those of `optional` that it has; pickled objects are never read."""
    # Opened here, for numpy leaves a file that it cannot read open.
    with reading(path, remedy=remedy), path.open("rb") as file:
        check_npz(path, file, remedy)
        loaded = np.load(file, allow_pickle=False)
        absent = [name for name in names if name not in loaded.files]
        if absent:
            has = ", ".join(loaded.files) or "none"
            raise wrong(path, f"has no array '{absent[0]}' (it has: {has})", "Name the array, or fetch the file again")
        return {name: numbers_of(path, loaded, name, remedy) for name in (*names, *optional) if name in loaded.files}


def check_npz(path: Path, file: io.BufferedReader, remedy: str) -> None:
    """Told in our words: numpy takes what is no zip file for a pickle, and advises to load it."""
    first = file.read(len(NPY_MAGIC))
    if first == NPY_MAGIC:
        raise wrong(path, "is no npz file", "Save the arrays with numpy.savez")
    if not (first.startswith(ZIP_MAGIC) and zipfile.is_zipfile(file)):
        raise InvalidData(f"Cannot read {path}: it is no npz file. {remedy}.")
    file.seek(0)


def numbers_of(path: Path, loaded: Mapping[str, Array], name: str, remedy: str) -> Array:
    try:
        return loaded[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise wrong(path, f"has Python objects in the array '{name}'", remedy) from None


def optional_package(package: str, what: str) -> Any:
    """A package that Plures does not always need, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        name = {"PIL": "Pillow"}.get(package.partition(".")[0], package)
        raise InvalidConfig(f"{what} needs the package {name}: pip install 'plures[data]'.") from None


def check_choice(option: str, value: object, known: Collection[str]) -> None:
    """An error unless an option is one of a few words."""
    if value not in known:
        raise InvalidConfig(f"{option} is {value!r}. {did_you_mean(str(value), known)}")


def check_count(option: str, value: object, least: int = 1) -> None:
    """An error unless an option is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidConfig(f"{option} is {value!r}: it must be a whole number of at least {least}.")
