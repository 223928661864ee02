"""Links that work on a code forge and on the site: those that leave docs/ are turned into what the site has."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """An event of MkDocs: every link of a page, as the site needs it."""
    source = page.file.abs_src_path
    if source is None:
        return markdown
    root = Path(config.docs_dir).parent.resolve()
    pages = {Path(file.abs_src_path).resolve(): file.src_uri for file in files if file.abs_src_path}
    return relinked(markdown, Path(source).resolve(), page.file.src_uri, root, pages, config.repo_url)


def relinked(
    markdown: str, source: Path, uri: str, root: Path, pages: Mapping[Path, str], repository: str | None
) -> str:
    """A text with its links changed; what stands in fenced code stays as it is."""

    def changed(match: re.Match[str]) -> str:
        text, link = match.groups()
        path, _, heading = link.partition("#")
        target = (source.parent / path).resolve()
        if not path or "://" in link or link.startswith("mailto:") or not target.exists():
            return match[0]
        if target in pages:
            return f"[{text}]({relative(pages[target], uri)}{'#' if heading else ''}{heading})"
        return outside(text, target.relative_to(root).as_posix(), repository)

    pieces = FENCED.split(markdown)
    return "".join(piece if piece.startswith("```") else LINK.sub(changed, piece) for piece in pieces)


def relative(target: str, uri: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(uri) or ".")


def outside(text: str, path: str, repository: str | None) -> str:
    """A file that is no page: where it is in the repository, or, if that has no address, its name."""
    if repository:
        return f"[{text}]({repository.rstrip('/')}/blob/main/{path})"
    told = text.strip("`")
    return f"`{path}`" if path.endswith(told) else f"{text} (`{path}`)"


def on_config(config: MkDocsConfig, **_: Any) -> MkDocsConfig:
    """An event of MkDocs: without an address of the repository there is nothing to edit there."""
    config.edit_uri = config.edit_uri if config.repo_url else ""
    return config
