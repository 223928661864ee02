"""Writes a page to a file, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plures.core.errors import InvalidConfig, RunFolderError
from plures.report.comparing import Asked
from plures.report.page.building import page_html
from plures.report.page.gathered import gather
from plures.report.writing import write_whole

REPORT = "report.html"
ENDINGS = (".html", ".htm")


def write_report(
    folders: Sequence[Path], out: Path | None, against: str | None, asked: Asked, *, alone: bool = False
) -> Path:
    """The page about some folders; by default it lies in the first of them."""
    path = out or folders[0] / REPORT
    if path.is_dir():
        raise RunFolderError(f"{path} is a folder. Give the name of a file, such as --out {path / REPORT}.")
    if path.suffix.lower() not in ENDINGS:
        raise InvalidConfig(
            f"Cannot write {path}: a report is a page. Give a name that ends in {' or '.join(ENDINGS)}."
        )
    page = page_html(gather(folders, against, asked, alone=alone))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"Cannot write {path}: {error.strerror}. Choose another file with --out.") from error
    write_whole(path, page)
    return path
