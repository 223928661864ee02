"""How long visits train and how long they search for masks: Table 5."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plures.report import records


def search_seconds(folder: Path) -> dict[str, float]:
    """Of a finished run: mean seconds of training and of the mask search over visits that searched."""
    visits = [row for row in records.read_visits(folder) if float(row["search_flops"] or 0) > 0]
    if not visits:
        return {}
    search = np.array([float(row["refresh_seconds"]) for row in visits])
    train = np.array([float(row["seconds"]) for row in visits]) - search
    return {
        "train": round(float(train.mean()), 5),
        "search": round(float(search.mean()), 5),
        "percent": round(100 * float(search.sum() / train.sum()), 3),
        "visits": len(visits),
    }
