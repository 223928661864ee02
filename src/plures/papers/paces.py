"""How fast runs go, from runs that were made before; those of the machine at hand count first."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plures.papers.outcomes import Outcome
from plures.recipes.experiment import Experiment, plain_table

USUAL_RATE = 3e10
"""Operations in a second of one core, for networks that have not been measured."""
RATES = {"mlp": 1.2e11}
"""Where a small network has large products, or the other way round."""
ANY = ""
"""In place of a method: all that ran on a network."""

Rates = dict[tuple[str, str], float]
"""Operations in a second, by network and method."""


def machine() -> str:
    """Processor and cores, without a name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores"


def rates_here(measured: Sequence[Outcome], here: str) -> Rates:
    """What ran here counts as it is; what ran elsewhere by how much faster this machine is at what both have run."""
    own = rates_of([one for one in measured if one.made.machine == here])
    others = rates_of([one for one in measured if one.made.machine != here])
    ratios = [rate / others[name] for name, rate in own.items() if name in others]
    faster = statistics.median(ratios) if ratios else 1.0
    return {name: rate * faster for name, rate in others.items()} | own


def rates_of(measured: Sequence[Outcome]) -> Rates:
    """The median of what has run, evaluation included: of a network and a method, and of every network of its name."""
    seen: dict[tuple[str, str], list[float]] = {}
    for outcome in measured:
        done = work(outcome.cost)
        if outcome.made.seconds > 0 and done:
            model, method = outcome.experiment.get("model", {}), outcome.experiment["method"]
            network, name = network_of(model), str(model.get("name", "mlp"))
            for key in {(network, method), (network, ANY), (name, method)}:
                seen.setdefault(key, []).append(done / outcome.made.seconds)
    return {name: statistics.median(values) for name, values in seen.items()}


def rate_of(rates: Rates, experiment: Experiment) -> float:
    """Of the very network and method where they have run, else of that network, else of another of its name."""
    name, method = experiment.model.name, experiment.method
    network = network_of(plain_table(experiment).get("model", {}))
    known = (rates.get(key) for key in ((network, method), (network, ANY), (name, method)))
    return next((rate for rate in known if rate is not None), RATES.get(name, USUAL_RATE))


def network_of(model: Mapping[str, Any]) -> str:
    return json.dumps({"name": "mlp", **model}, sort_keys=True)


def work(cost: Mapping[str, Any]) -> float:
    """Operations; masks save nothing on processors."""
    return float(cost.get("dense_flops") or 0) + float(cost.get("search_flops") or 0)
