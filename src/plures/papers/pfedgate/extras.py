"""What pages of this paper want to know of a finished run beside its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plures.papers.outcomes import short
from plures.recipes.gate_clusters import gate_clusters
from plures.report import records
from plures.report.client_scores import read_scores

MOST_ROUNDS = 12
"""Of which histograms are kept."""
SAMPLED = "sampled/post_local"


def post_local(run: Path) -> dict[str, list[float]]:
    """Of the last evaluated round, each client's test accuracy right after its local training."""
    scores = read_scores(run, SAMPLED, ["test"], ["accuracy"]).get("test")
    if scores is None:
        return {}
    return {
        "clients": [int(one) for one in scores.clients],
        "examples": [int(one) for one in scores.examples],
        "accuracy": [short(one) for one in scores.values["accuracy"]],
    }


def gate_history(run: Path) -> dict[str, Any]:
    """Histograms of gate weights over rounds; in the last one, the share of the network that clients kept and sent."""
    lines = [line for line in records.read_rounds(run) if line.get("notes")]
    if not lines:
        return {}
    last = lines[-1]["round"]
    rows = [row for row in records.read_visits(run) if int(row["round"]) == last]
    return {
        "rounds": [line["round"] for line in spread(lines)],
        "gate_weights": [[short(one) for one in line["notes"]["gate_weights"]] for line in spread(lines)],
        "density": short(sum(float(row["density"]) for row in rows) / len(rows)),
        "largest_density": short(max(float(row["density"]) for row in rows)),
        "upload_share": short(sum(float(row["upload_share"]) for row in rows) / len(rows)),
    }


def spread(lines: list[Any]) -> list[Any]:
    """At most so many, evenly spaced, the first and the last among them."""
    count = min(MOST_ROUNDS, len(lines))
    if count == 1:
        return lines[-1:]
    return [lines[round(number * (len(lines) - 1) / (count - 1))] for number in range(count)]


def gate_tree(run: Path) -> dict[str, Any]:
    """Clients by the distance of their gates, and their labels."""
    found = gate_clusters(run)
    groups = {str(count): list(found.clusters.groups(count).values()) for count in (2, 3, 5)}
    labels = {str(client): classes for client, classes in found.labels.items()}
    return {**found.clusters.as_json(), "groups": groups, "labels": labels}
