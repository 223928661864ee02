"""Opens the folder of a run: a new one, or one in which the run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig, RunFolderError
from plures.recipes.folder import RunFolder
from plures.recipes.resuming import Resumed, check_same, clear, find_resumable, is_begun
from plures.report import records


def prepared(
    out: str | Path | None, resume: bool, identity: Mapping[str, Any], configuration: str | None
) -> Resumed | None:
    """The checkpoint to go on from; None where the run begins, after what it had begun with was cleared away."""
    if not resume:
        return None
    if out is None:
        raise InvalidConfig("To resume a run, give the folder that it is in: out = ....")
    folder = Path(out)
    if not is_begun(folder):
        return None
    resumed = find_resumable(folder)
    if resumed is not None:
        check_same(folder, resumed.manifest, identity, configuration)
    elif (folder / records.RESULT).is_file():
        raise RunFolderError(f"The run in {folder} has ended, and has no checkpoint to go on from.")
    else:
        clear(folder)
    return resumed


def open_folder(out: str | Path | None, configuration: str | None, resumed: Resumed | None) -> RunFolder | None:
    if out is None:
        return None
    if resumed is not None:
        folder = RunFolder.reopened(Path(out), resumed.manifest.marks)
        for name in (records.RESULT, records.SHARED, records.PERSONAL):
            folder.remove(name)
        return folder
    folder = RunFolder(Path(out))
    if configuration is not None:
        folder.write_text(records.EXPERIMENT, configuration)
    return folder
