"""Clients of a finished run, grouped by their gates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plures.core.errors import RunFolderError
from plures.evaluate.clustering import Clusters, cluster
from plures.recipes.experiment import load_experiment
from plures.recipes.federations import build_federation, without_newcomers
from plures.report import records
from plures.report.gates import read_gates


@dataclass(frozen=True, kw_only=True)
class GateClusters:
    """The clusters, with what is known of each client."""

    clusters: Clusters
    names: dict[int, str]
    labels: dict[int, list[int]]


def gate_clusters(run: Path) -> GateClusters:
    """From a run folder: the clients' gates, and the labels of their training data."""
    vectors = read_gates(run / records.PERSONAL)
    if not vectors:
        raise RunFolderError(f"{run} has no gates: they come from a run of pfedgate with clients that keep theirs.")
    experiment = load_experiment(run / records.EXPERIMENT)
    federation, _ = without_newcomers(experiment, build_federation(experiment))
    labels = {client: sorted(set(federation.client(client).train.targets.tolist())) for client in vectors}
    names = {client: federation.name(client) for client in vectors}
    return GateClusters(clusters=cluster(vectors, labels, seed=experiment.seed), names=names, labels=labels)


def draw_dendrogram(found: GateClusters, path: Path) -> None:
    """A picture of the tree, each client with its name and labels."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise RunFolderError("A dendrogram is drawn by matplotlib: pip install 'plures[plot]'.") from error
    from scipy.cluster.hierarchy import dendrogram

    clients = found.clusters.clients
    figure = Figure(figsize=(max(6.0, 0.28 * len(clients)), 4.5), layout="constrained")
    axes = figure.add_subplot()
    told = [f"{found.names[client]}: {shortened(found.labels[client])}" for client in clients]
    dendrogram(found.clusters.tree, labels=told, leaf_rotation=90, leaf_font_size=8, ax=axes)
    axes.set_ylabel("distance of gates (Ward)")
    axes.set_title(f"Spearman {found.clusters.correlation:.2f}, p = {found.clusters.p_value:.4f}")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"Cannot write {path}: {error}.") from error


def shortened(labels: list[int]) -> str:
    text = ",".join(map(str, labels[:6]))
    return text if len(labels) <= 6 else f"{text},..."
