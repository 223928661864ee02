"""What a shell offers after Tab, found without torch: names from source files, files and run folders from the disk."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from plures.report.finding import folders_below, is_run, is_study

MOST_FOLDERS = 500
"""So many are looked at, so that a shell never waits."""
NO_EXPERIMENTS = ("pyproject.toml",)


def offered(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Those of the names that begin as the word does."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def names_in(package: str, pattern: str) -> list[str]:
    """What a pattern finds in the source files of a package, which is not imported."""
    spec = find_spec(package)
    found: set[str] = set()
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        for path in Path(folder).glob("*.py"):
            found |= set(re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    return sorted(found)


def method_names() -> list[str]:
    return names_in("plures.methods", r"^@register\(\n.*?^\)\ndef (\w+)")


def source_names() -> list[str]:
    return names_in("plures.data.sources", r'^ *(?:@source|source)\(\s*"([\w-]+)"')


def keys_of(module: str, table: str) -> list[str]:
    """The names in a table of a module, which is not imported."""
    spec = find_spec(module.rpartition(".")[0])
    places = [] if spec is None else spec.submodule_search_locations or []
    for path in [Path(place) / f"{module.rpartition('.')[2]}.py" for place in places]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Dict):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                if any(isinstance(target, ast.Name) and target.id == table for target in targets):
                    return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    return []


def model_names() -> list[str]:
    return keys_of("plures.models.__init__", "MODELS")


def engine_names() -> list[str]:
    return ["auto", "trial", *keys_of("plures.recipes.engines", "ENGINES")]


def tracker_names() -> list[str]:
    return keys_of("plures.recipes.tracking", "TRACKERS")


methods, sources, models = map(offered, (method_names, source_names, model_names))
engines, trackers = map(offered, (engine_names, tracker_names))


def run_folders(incomplete: str) -> list[str]:
    """Runs and studies whose path begins as the word does; without a word those below runs/."""
    return [text for text, path in below(incomplete, "runs/") if is_run(path) or is_study(path)]


def experiment_files(incomplete: str) -> list[str]:
    """TOML files near by whose path begins as the word does; those of run folders if asked for."""
    found = []
    for text, folder in [(os.path.dirname(incomplete), Path(incomplete).parent), *below(incomplete, "")]:
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
