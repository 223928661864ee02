"""Masks and gates on a page are those that clients keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from scipy.cluster.hierarchy import linkage

from plures.evaluate.masks import used_masks
from plures.local import masks as local_masks
from plures.local import scores as local_scores
from plures.recipes import make_experiment, run_experiment
from plures.report import records
from plures.report.gates import read_gates
from plures.report.page import states
from plures.report.page.masks import in_blocks
from tests.report.page.pages import charts, listed, missing
from tests.report.run_folders import write_run

DATA = {"source": "digits", "clients": 4, "classes_per_client": 3}
SMALL = {"rounds": 2, "data": DATA, "model": {"hidden": [8]}, "evaluation": {"every": 1}}


def played(folder: Path, method: str, **more) -> Path:
    run_experiment(make_experiment({"method": method, **SMALL, **more}), out=folder)
    return folder


@pytest.fixture(scope="module")
def fedspa(tmp_path_factory):
    return played(tmp_path_factory.mktemp("runs") / "fedspa", "fedspa")


def masks_of(folder: Path, client: int) -> dict[str, np.ndarray]:
    """As evaluation sees them, in torch."""
    own = {
        key.partition("/")[2]: value
        for key, value in load_file(folder / records.PERSONAL).items()
        if key.startswith(f"{client}/")
    }
    shared = load_file(folder / records.SHARED)
    return {name: mask.numpy() for name, mask in used_masks(shared | own).items()}


def test_names_of_masks_and_scores_are_those_of_the_methods():
    assert states.MASK == local_masks.PREFIX
    own = (states.SCORE, states.OWNED, states.VOTE, states.GIVEN)
    assert own == (local_scores.SCORE, local_scores.OWNED, local_scores.VOTE, local_scores.GIVEN)


def check_masks(folder: Path) -> None:
    found = charts(folder)
    (heat,) = found["mask-density-0"].traces
    for row, client in enumerate(range(4)):
        own = masks_of(folder, client)
        assert listed(heat["z"][row]) == pytest.approx([float(own[layer].mean()) for layer in heat["x"]])
    layer = found["mask-map-0-0"].title.rpartition(" ")[2]
    shares = np.mean([masks_of(folder, client)[layer] for client in range(4)], axis=0)
    np.testing.assert_allclose(found["mask-map-0-0"].traces[0]["z"], in_blocks(shares))


def test_densities_and_maps_are_those_of_the_masks_that_clients_keep(fedspa):
    check_masks(fedspa)


def test_scores_and_votes_make_masks_too(tmp_path):
    check_masks(played(tmp_path / "fedmask", "fedmask"))


def test_distances_are_those_of_the_last_round(fedspa):
    found, told = charts(fedspa), [line["masks"] for line in records.read_rounds(fedspa)]

    assert listed(found["mask-distance-0"].traces[0]["z"]) == [list(row) for row in told[-1]["pairs"]]
    density, distance = found["mask-rounds-0"].traces
    assert density["y"] == [masks["density"] for masks in told]
    assert distance["y"] == [masks["mean"] for masks in told]


def test_gates_have_a_histogram_and_a_tree(tmp_path):
    folder = played(tmp_path / "pfedgate", "pfedgate")
    found, told = charts(folder), [line["notes"] for line in records.read_rounds(folder)]
    first, last = found["gate-histogram-0"].traces
    lines, leaves = found["gate-tree-0"].traces

    assert (first["y"], last["y"]) == (told[0]["gate_weights"], told[1]["gate_weights"])
    gates = read_gates(folder / records.PERSONAL)
    heights = linkage(np.stack([gates[client] for client in range(4)]), "ward")[:, 2]
    assert max(y for y in lines["y"] if y is not None) == pytest.approx(heights.max())
    assert sorted(leaves["text"]) == ["0", "1", "2", "3"]


def test_models_of_several_sizes_are_drawn_by_their_share(tmp_path):
    folder = played(tmp_path / "heterofl", "heterofl", capacity={"width": [1.0, 0.5, 0.5, 0.5]})
    (points,) = charts(folder)["size-0"].traces
    density = {int(row["client"]): float(row["density"]) for row in records.read_visits(folder)}
    assert dict(zip(points["text"], listed(points["x"]), strict=True)) == {str(c): d for c, d in density.items()}


def test_a_method_without_such_has_a_sentence(tmp_path):
    folder = write_run(tmp_path / "run", {"personal/test": [0.5]})
    assert "fedspa" in missing(folder)["Mask maps, mask distances and gates"]


def test_a_large_layer_is_averaged_in_blocks():
    """144 rows in 72 blocks of two: rows 0 and 1 of zeros and ones make one half."""
    table = np.tile([[0.0], [1.0]], (72, 3))
    assert in_blocks(table).shape == (72, 3)
    assert set(in_blocks(table).ravel().tolist()) == {0.5}
