"""Looks at the files that a run appends to: lines of JSON, and tables whose every append is packed by itself."""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from plures.recipes.doctor_findings import Done, Finding
from plures.recipes.doctor_repairs import replaced
from plures.report import records

COLUMNS: dict[str, Sequence[str]] = {
    records.FEDERATION: records.FEDERATION_COLUMNS,
    records.CLIENTS: records.CLIENT_COLUMNS,
    records.CHOICES: records.CHOICE_COLUMNS,
    records.VISITS: records.VISIT_COLUMNS,
}
"""Of each table; that of clients has further ones."""
GZIP = 31
"""For zlib: one gzip member, whose checksum and length are compared."""
MAGIC = b"\x1f\x8b\x08"
CHUNK = 2**16
HEADING_BYTES = 2**14


class Span(NamedTuple):
    """A member of a gzip file that is whole."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Content:
    """What of a file can be read."""

    path: Path
    size: int
    whole: tuple[Span, ...]
    problem: str = ""
    """Beside that some of it is not whole."""

    @property
    def unread(self) -> int:
        return self.size - sum(end - start for start, end in self.whole)

    @property
    def is_cut(self) -> bool:
        """Only its end cannot be read."""
        return self.unread == self.size - (self.whole[-1].end if self.whole else 0)


def table_finding(path: Path) -> Finding:
    """A table as it stands; what of it is whole can be kept without the rest."""
    content = table_content(path)
    if content.problem:
        return Finding(file=path.name, state="damaged", meaning=content.problem)
    if not content.unread:
        return Finding(file=path.name, state="fine", meaning="can be read to its end")
    found = f"{content.unread} of {content.size} bytes are no whole part"
    return Finding(
        file=path.name,
        state="cut" if content.is_cut else "damaged",
        meaning=f"{found}: the last write was cut off" if content.is_cut else f"{found}; there are whole ones after",
        remedy=f"leave these {content.unread} bytes out",
        repair=lambda: keep_whole(content),
    )


def table_content(path: Path) -> Content:
    packed = path.read_bytes()
    whole = tuple(members(packed))
    if not whole or whole[0].start > 0:
        what = "nothing of it can be read" if not whole else "its beginning, with the names of the columns, is lost"
        return Content(path=path, size=len(packed), whole=whole, problem=what)
    expected = COLUMNS[path.name]
    found = heading(packed[slice(*whole[0])])
    if found[: len(expected)] != list(expected) or (path.name != records.CLIENTS and len(found) > len(expected)):
        return Content(path=path, size=len(packed), whole=whole, problem="its columns are not those that runs write")
    return Content(path=path, size=len(packed), whole=whole)


def members(packed: bytes) -> Iterator[Span]:
    """Every whole member; where one is damaged, the next is looked for."""
    place = 0
    while 0 <= place < len(packed):
        end = member_end(packed, place)
        if end is not None:
            yield Span(place, end)
        place = end if end is not None else packed.find(MAGIC, place + 1)


def member_end(packed: bytes, start: int) -> int | None:
    """Where the member that begins here ends; None: it is cut or damaged. What is unpacked is not kept."""
    unpacker = zlib.decompressobj(wbits=GZIP)
    for place in range(start, len(packed), CHUNK):
        chunk = packed[place : place + CHUNK]
        try:
            unpacker.decompress(chunk)
        except zlib.error:
            return None
        if unpacker.eof:
            return place + len(chunk) - len(unpacker.unused_data)
    return None


def heading(member: bytes) -> list[str]:
    """The names of the columns."""
    text = zlib.decompressobj(wbits=GZIP).decompress(member, HEADING_BYTES).decode("utf-8", errors="replace")
    return next(csv.reader(text.splitlines()[:1]), [])


def keep_whole(content: Content) -> Done:
    packed = content.path.read_bytes()
    replaced(content.path, b"".join(packed[slice(*span)] for span in content.whole))
    return Done(file=content.path.name, what=f"left out {content.unread} bytes that could not be read")


# Rounds


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What rounds.jsonl tells."""

    last: int
    """The last round that can be read."""
    whole_bytes: int
    """Up to the last line that can be read."""
    problem: str = ""
    """Before that."""


def rounds_finding(path: Path, told: int | None) -> Finding:
    """How rounds.jsonl stands; `told` is how many rounds the result tells of."""
    content = path.read_bytes()
    rounds = rounds_in(content)
    left = len(content) - rounds.whole_bytes
    missing = "" if told in (None, rounds.last) else f"{rounds.last} rounds can be read, but result.json has {told}"
    if rounds.problem or missing:
        return Finding(file=path.name, state="damaged", meaning=rounds.problem or missing)
    if not left:
        return Finding(file=path.name, state="fine", meaning=f"{rounds.last} rounds")
    return Finding(
        file=path.name,
        state="cut",
        meaning=f"{left} bytes after round {rounds.last} are no whole line: the last write was cut off",
        remedy=f"leave these {left} bytes out",
        repair=lambda: keep_lines(path, rounds.whole_bytes, left),
    )


def rounds_in(content: bytes) -> Rounds:
    """Line by line; what cannot be read is the end, unless a line that can be comes after it."""
    last, whole_bytes, place, problem = 0, 0, 0, ""
    for line in content.splitlines(keepends=True):
        place += len(line)
        round = round_in(line)
        if round is None:
            continue
        if not problem and (round != last + 1 or place - len(line) != whole_bytes):
            problem = f"the line of round {last + 1} is damaged or missing, and more come after it"
        last, whole_bytes = round, place
    return Rounds(last=last, whole_bytes=whole_bytes, problem=problem)


def round_in(line: bytes) -> int | None:
    """Of a whole line."""
    try:
        told: Any = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    round = told.get("round") if isinstance(told, dict) else None
    return round if type(round) is int and round > 0 else None


def keep_lines(path: Path, num_bytes: int, left: int) -> Done:
    replaced(path, path.read_bytes()[:num_bytes])
    return Done(file=path.name, what=f"left out {left} bytes that were no whole line")
