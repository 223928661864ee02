"""What a shell offers after Tab, found without torch: names from source files, files and run folders from the disk."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from plures.report.finding import folders_below, is_run, is_study

PACKAGE = Path(__file__).parents[1]
MOST_FOLDERS = 500
"""So many are looked at, so that a shell never waits."""
NO_EXPERIMENTS = ("pyproject.toml",)


def offered(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Those of the names that begin as the word does."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def names_in(folder: str, pattern: str) -> list[str]:
    """What a pattern finds in the source files of a package, which is not imported."""
    texts = [path.read_text(encoding="utf-8") for path in (PACKAGE / folder).glob("*.py")]
    return sorted({name for text in texts for name in re.findall(pattern, text, re.MULTILINE | re.DOTALL)})


def keys_of(file: str, table: str) -> list[str]:
    """The names in a table of a module, which is not imported."""
    for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Dict):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            if any(isinstance(target, ast.Name) and target.id == table for target in targets):
                return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    return []


def method_names() -> list[str]:
    return names_in("methods", r"^@register\(\n.*?^\)\ndef (\w+)")


def source_names() -> list[str]:
    return names_in("data/sources", r'^ *(?:@source|source)\(\s*"([\w-]+)"')


def model_names() -> list[str]:
    return keys_of("models/__init__.py", "MODELS")


def engine_names() -> list[str]:
    return ["auto", "trial", *keys_of("recipes/engines.py", "ENGINES")]


def tracker_names() -> list[str]:
    return keys_of("recipes/tracking.py", "TRACKERS")


def paper_names() -> list[str]:
    """Every paper is a package that has a file of published numbers."""
    return ["list", "check", "all", *sorted(path.stem for path in (PACKAGE / "papers/published").glob("*.toml"))]


papers = offered(paper_names)
methods, sources, models = map(offered, (method_names, source_names, model_names))
engines, trackers = map(offered, (engine_names, tracker_names))


def run_folders(incomplete: str) -> list[str]:
    """Runs and studies whose path begins as the word does; without a word those below runs/."""
    return [text for text, path in below(incomplete, "runs/") if is_run(path) or is_study(path)]


def experiment_files(incomplete: str) -> list[str]:
    """TOML files near by whose path begins as the word does; those of run folders if asked for."""
    found = []
    here = os.path.dirname(incomplete)
    for text, folder in [(here, Path(here)), *below(incomplete, "")]:
        if not is_run(folder) or incomplete.startswith(text):
            found += [os.path.join(text, path.name) for path in sorted(folder.glob("*.toml"))]
    return [path for path in found if path.startswith(incomplete) and os.path.basename(path) not in NO_EXPERIMENTS]


def below(incomplete: str, usual: str) -> Iterator[tuple[str, Path]]:
    """Folders whose path begins as the word does, as the user would write them."""
    start = os.path.dirname(incomplete or usual)
    for path in folders_below(Path(start), most=MOST_FOLDERS):
        text = os.path.join(start, path.relative_to(start or "."))
        if text.startswith(incomplete) or incomplete.startswith(text + os.sep):
            yield text, path
