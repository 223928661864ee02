"""Writes a page to a file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from plures.core.errors import RunFolderError
from plures.report.comparing import Asked
from plures.report.page.building import page_html
from plures.report.page.gathered import gather

REPORT = "report.html"


def write_report(folders: Sequence[Path], out: Path | None, against: str | None, asked: Asked) -> Path:
    """The page about some folders; by default it lies in the first of them."""
    path = out or folders[0] / REPORT
    page = page_html(gather(folders, against, asked))
    write_whole(path, page)
    return path


def write_whole(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.is_dir():
            raise RunFolderError(f"{path} is a folder. Give the name of a file, such as --out {path / REPORT}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise RunFolderError(f"Cannot write {path}: {error.strerror}. Choose another file with --out.") from error
