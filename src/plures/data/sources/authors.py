"""A user's own texts, by author: the next word or character."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plures.core.errors import InvalidData
from plures.data.corpora import UNITS, Text, Unit, text_dataset, tokens_of, usual_length
from plures.data.datasets import DataSet
from plures.data.sources.finding import given_path
from plures.data.sources.json_files import read_json_lines, taken
from plures.data.sources.reading import check_choice, check_count, open_file, reading, wrong
from plures.data.sources.registry import source


@source(
    "text-by-author",
    about="your own texts, next word or character; clients are their authors",
    files=("path: a folder with a folder of .txt files for each author, or a .jsonl file with author and text",),
)
def text_by_author(
    path: str | Path,
    *,
    author: str = "author",
    text: str = "text",
    unit: Unit = "word",
    min_words: int = 100,
    whole_texts: bool = False,
    length: int | None = None,
    vocabulary: int = 10_000,
) -> DataSet:
    """Texts count as written in the order of their files' names, or of their lines.

    `author` and `text` are the names used in a .jsonl file. With `whole_texts`, no text is in both train and test,
    for which every author must have several. Authors of fewer than `min_words` (between white space) are left out.
    """
    check_choice("unit", unit, UNITS)
    check_count("min_words", min_words)
    check_count("vocabulary", vocabulary)
    check_count("length", length := usual_length(unit) if length is None else length)
    place = given_path(path)
    written = texts_in_folders(place) if place.is_dir() else texts_in_lines(place, author, text)
    busy = {name: texts for name, texts in written.items() if sum(len(one.split()) for one in texts) >= min_words}
    if not busy:
        raise InvalidData(f"No author of {place} has {min_words} words: lower min_words, or give more text.")
    texts = (Text(owner=name, tokens=tokens_of(one, unit)) for name, texts in busy.items() for one in texts)
    return text_dataset("text-by-author", texts, length=length, vocabulary=vocabulary, whole_texts=whole_texts)


def texts_in_folders(place: Path) -> dict[str, list[str]]:
    """By name of the folder; one without text is an error."""
    folders = sorted(folder for folder in place.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not folders:
        raise wrong(place, "has no folders", "Give each author a folder with .txt files")
    written = {folder.name: [_text(path) for path in sorted(folder.glob("*.txt"))] for folder in folders}
    for folder in folders:
        if not any(text.strip() for text in written[folder.name]):
            raise wrong(folder, "has no .txt file with text in it", "Put some there, or remove the folder")
    return written


def _text(path: Path) -> str:
    with reading(path, remedy="Save it as text in UTF-8"), open_file(path) as file:
        return file.read().decode("utf-8-sig")


def texts_in_lines(path: Path, author: str, text: str) -> dict[str, list[str]]:
    """By author; one without text is an error."""
    remedy = f"Give each line '{author}' and '{text}', or name them otherwise by the options author and text"
    written: dict[str, list[str]] = {}
    for where, line in read_json_lines(path):
        if author not in line:
            raise wrong(path, f"has no '{author}' in {where}", remedy)
        written.setdefault(str(line[author]), []).append(taken(path, line, text, str, where, remedy))
    for name in _silent(written):
        raise wrong(path, f"has no text of author '{name}'", "Give some, or remove the author's lines")
    return written


def _silent(written: dict[str, list[str]]) -> Iterator[str]:
    return (name for name, texts in written.items() if not any(text.strip() for text in texts))
