"""The pages of the site: those of docs/, some texts of the root, and a nav that finds new pages by itself."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

OF_THE_ROOT = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages whose text stays where a code forge looks for it."""
REPRODUCED = ("reproductions/*.md", "reproductions/*/*.md", "reproductions/*/figures/*.svg")
"""Files that are on the site where they are in the repository, so that links between them hold."""

Nav = list[Any]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """An event of MkDocs: texts of the root become pages, and patterns in the nav those that they match."""
    root = Path(config.docs_dir).parent
    for name, source in OF_THE_ROOT.items():
        files.append(File.generated(config, name, abs_src_path=str(root / source)))
    for path in sorted(found for pattern in REPRODUCED for found in root.glob(pattern)):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    config.nav = expanded(config.nav or [], [file.src_uri for file in files.documentation_pages()])
    return files


def expanded(nav: Nav, pages: list[str]) -> Nav:
    """The nav with every pattern, such as methods/*.md, replaced by the pages that nothing else in it names."""
    named = set(entries(nav))
    return [found for entry in nav for found in expanded_entry(entry, [page for page in pages if page not in named])]


def entries(nav: Nav) -> list[str]:
    """All names of files in a nav, however deep."""
    found: list[str] = []
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += entries(value) if isinstance(value, list) else [value]
    return found


def expanded_entry(entry: Any, free: list[str]) -> Nav:
    if isinstance(entry, dict):
        ((title, value),) = entry.items()
        below = [found for one in value for found in expanded_entry(one, free)] if isinstance(value, list) else value
        return [{title: below}]
    return matching(entry, free) if "*" in entry else [entry]


def matching(pattern: str, pages: list[str]) -> list[str]:
    """Pages of the pattern's own folder, an index before the others."""
    depth = pattern.count("/")
    found = [page for page in pages if fnmatchcase(page, pattern) and page.count("/") == depth]
    return sorted(found, key=lambda page: (not page.endswith(("README.md", "index.md")), page))
