"""Recipes of the FedSpa paper: cells that can run, closed forms as printed, tables and verdicts of made-up outcomes."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plures.papers.blocks import Entry, Figure, Grid
from plures.papers.cells import Cell
from plures.papers.fedspa import PAPER, counts
from plures.papers.fedspa.common import printed
from plures.papers.fedspa.counts import layers, main_row, planned
from plures.papers.fedspa.runs import density_cells, regrowth_cells, sparsity_cells, task_cells
from plures.papers.fedspa.seconds import search_seconds
from plures.papers.fedspa.settings import DITTO, DST, FEDAVG, IID, LOCAL, METHODS, RSM, SUB_FEDAVG, TASKS, B, cell
from plures.papers.outcomes import Made, Outcome
from plures.papers.recipe import SCALES, Scale
from plures.recipes.build import given_options, named_method
from plures.recipes.options import called, method_options

CLIENTS = 40


def same(cell: Cell) -> str:
    """Cheaper than the key of a cell, which checks the whole configuration."""
    return json.dumps(cell.table, sort_keys=True)


class MadeUp:
    """Outcomes by configuration."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.known: dict[str, dict[int, Outcome]] = {}

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        return self.known.get(same(cell), {})

    def put(self, cell: Cell, personal: float, shared: float | None = None, seed: int = 0) -> None:
        """An outcome in which all clients have these accuracies, but for a little noise."""
        noise = 0.004 * np.random.default_rng(len(self.known)).standard_normal(CLIENTS)
        models = {"personal": personal, "global": personal if shared is None else shared}
        rounds = int(cell.table["rounds"])
        sparse = 1 if cell.table["method"] == "fedavg" else 0.5
        self.known.setdefault(same(cell), {})[seed] = Outcome(
            key="0",
            experiment={"method": cell.table["method"]},
            made=Made(date="2026-01-01", commit="0", machine="none", version="0", seconds=1.0),
            status="finished",
            final={f"{name}/test/accuracy": {"mean": value, "weighted": value} for name, value in models.items()},
            curves={
                f"{name}/test/accuracy": {"rounds": [rounds // 2, rounds], "values": [value / 2, value]}
                for name, value in models.items()
            },
            clients={
                f"{name}/test": {
                    "clients": list(range(CLIENTS)),
                    "examples": [100] * CLIENTS,
                    "accuracy": list(value + noise),
                }
                for name, value in models.items()
            },
            cost={"values_down": 1e9 * sparse, "values_up": 1e9 * sparse, "flops": 1e12 * sparse},
            extras={"search_seconds": {"train": 2.0, "search": 0.2, "percent": 10.0}},
        )


def all_cells(scale: Scale) -> list[Cell]:
    return [cell for recipe in PAPER.recipes for cell in recipe.cells(scale)]


def claim(name: str) -> Callable[[Any], Any]:
    return next(claim.judge for claim in PAPER.claims if claim.name == name)


def test_names_of_recipes_are_unique_and_every_item_is_there() -> None:
    names = [recipe.name for recipe in PAPER.recipes]
    items = [f"table-{n}" for n in range(1, 6)] + [f"figure-{n}" for n in (1, 3, 4, 5, 6, 7, 8)]
    assert sorted(names) == sorted([*items, "costs"])


@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_an_experiment_with_options_that_its_method_has(scale: Scale) -> None:
    for one in {same(one): one for one in all_cells(scale)}.values():
        experiment = one.experiment(0)
        info = named_method(experiment.method)
        called(info.name, info.make, method_options(info, given_options(experiment, info), rounds=experiment.rounds))
        assert not {"seed", "engine", "out"} & set(one.table)
        assert "seed" not in one.table["data"]


@pytest.mark.parametrize("scale", SCALES)
def test_rows_of_an_item_have_their_own_names_and_every_item_has_cells(scale: Scale) -> None:
    for recipe in PAPER.recipes:
        places = [(one.table["data"]["source"], one.row, one.column) for one in recipe.cells(scale)]
        assert len({str(place) for place in places}) == len(places), recipe.name
        assert places or recipe.closed_form


@pytest.mark.parametrize("scale", SCALES)
def test_items_that_show_the_same_run_share_it(scale: Scale) -> None:
    half = {same(one) for one in sparsity_cells(scale) if one.row == "0.5"}
    by_erk = {same(one) for one in density_cells(scale) if one.row == "ERK"}
    gradient = {same(one) for one in regrowth_cells(scale) if one.row == "gradient"}
    main = {same(one): one for one in PAPER.recipe("table-1").cells(scale)}
    assert half == by_erk == gradient
    assert half <= set(main)
    for one in all_cells(scale):
        if same(one) in main:
            assert one.extras == main[same(one)].extras


def test_micro_stays_small() -> None:
    # 7 methods, sparsities 0.2 and 0.8, uniform layers, random regrowth, DST and RSM with other masks; in two columns.
    assert len({one.key(0) for one in all_cells("micro")}) == 26
    work = [one.table["rounds"] * one.table["cohort"] * one.table["data"]["examples"] for one in all_cells("micro")]
    assert max(work) <= 40 * 5 * 1600


def test_full_is_the_papers_setting() -> None:
    tables = [one.table for one in all_cells("full")]
    assert {(table["data"]["clients"], table["cohort"]) for table in tables} == {(100, 10)}
    assert {table["data"]["test_rule"] for table in tables} == {"proportions"}
    assert {(str(table["model"]["name"]), table["rounds"]) for table in tables} == {
        ("lenet5", 400),
        ("vgg11_gn", 1000),
        ("resnet18_gn", 1000),
    }
    ditto = next(one.table for one in all_cells("full") if one.row == DITTO)["method_options"]
    assert (ditto["budget"]["epochs"], ditto["personal_budget"]["epochs"], ditto["lam"]) == (2, 3, 0.5)


def test_published_numbers_are_those_of_the_text() -> None:
    """Its section 5.2 and appendix repeat some differences."""
    final = printed()["table-1"]["CIFAR-100"]["accuracy"]
    ahead = {name: round(final[DST][2][0] - final[name][2][0], 1) for name in (DITTO, SUB_FEDAVG, FEDAVG)}
    assert ahead == {DITTO: 4.4, SUB_FEDAVG: 11.9, FEDAVG: 21.9}
    flops = printed()["table-1"]["EMNIST-L"]["flops"]
    assert round(100 * (1 - flops[DST][0] / flops[FEDAVG][0]), 1) == 42.9
    layer_flops = printed()["table-4"]["flops"]
    assert round(100 * (1 - layer_flops["Uniform"][1] / layer_flops["ERK"][1]), 1) == 34.3
    for task in ("EMNIST-L", "CIFAR-10", "CIFAR-100"):
        assert list(printed()["table-1"][task]["accuracy"]) == list(METHODS)
    for table in printed()["table-2"].values():
        assert {len(rounds) for rounds in table["rounds"].values()} == {9}
    assert printed()["table-3"]["accuracy"]["0.5"] == printed()["table-4"]["accuracy"]["ERK"] == final[DST]


def test_costs_of_lenet_are_as_printed() -> None:
    # LeNet5 has 439,096 parameters for 26 classes. 400 rounds of 10 clients that receive and send them all, 4 bytes
    # each: 400 * 10 * 2 * 4 * 439,096 = 14.05e9; half of it for half of the weights, 3/4 for half of the uploads.
    for method in METHODS:
        sent, done = main_row(method, ["EMNIST-L"])
        if method == SUB_FEDAVG:
            assert sent is not None
            assert sent.measured == "by training"
            continue
        assert (sent is None) == (method == LOCAL)
        for entry in (sent, done):
            if entry is not None:
                assert entry.measured == pytest.approx(entry.published, abs=0.06)
    dense = planned("EMNIST-L", FEDAVG).total
    assert dense["paper_bytes"] == 400 * 10 * 2 * 4 * 439_096
    assert planned("EMNIST-L", RSM).total["flops"] < planned("EMNIST-L", DST).total["flops"]


def test_layers_are_as_sparse_as_erk_says() -> None:
    # Densities at 0.5 are (sum / product) of each shape times a common factor. LeNet5: 148.878, so that the convolution
    # 5 x 5 of 20 to 50 channels has 148.878 * 80 / 25,000 and the layer of 800 to 500 has 148.878 * 1,300 / 400,000.
    # VGG11: 965.724; ResNet18: 815.235.
    sparse = {name: one for name, one in layers("lenet5", 26, (1, 28, 28)).items() if one[0] > 0}
    assert [round(1 - one[0], 4) for one in sparse.values()] == [0.4764, 0.4839]
    vgg = [round(1 - one[0], 4) for one in layers("vgg11_gn", 10, (3, 32, 32)).values()]
    assert vgg == [1, 1, 1, 0.8481, 0.6336, 0.4216, 0.4216, 0.4216, 1]
    resnet = [round(1 - one[0], 4) for one in layers("resnet18_gn", 100, (3, 32, 32)).values()]
    assert sorted(set(resnet)) == [0.3559, 0.5349, pytest.approx(0.716, abs=5e-4), 1]
    assert {one[1] for one in layers("lenet5", 26, (1, 28, 28)).values()} == {0.5}


def test_costs_are_shown_beside_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """With made-up costs, for those of ResNet18 take a while."""
    lenet = planned("EMNIST-L", DST)
    monkeypatch.setattr(counts, "planned", lambda *given: lenet)
    main, sparsity, dealt = [block for block in counts.show_costs(MadeUp("micro")) if isinstance(block, Grid)]
    assert [entry.published for entry in main.rows[DST] if entry] == [7.0, 2.0, 369.2, 172.9, 448.8, 705.1]
    assert [entry.published for entry in sparsity.rows["0.2"] if entry] == [718.1, 8.2]
    assert [entry.published for entry in dealt.rows["Uniform"] if entry] == [448.8, 4.6]


def entries(blocks: list[Any]) -> list[Entry]:
    grids = [block for block in blocks if isinstance(block, Grid)]
    return [entry for grid in grids for row in grid.rows.values() for entry in row if entry is not None]


@pytest.mark.parametrize("scale", SCALES)
def test_items_show_what_was_published_where_nothing_has_run(scale: Scale) -> None:
    for recipe in PAPER.recipes:
        if recipe.closed_form:
            continue
        blocks = recipe.show(MadeUp(scale))
        drawn = [block for block in blocks if isinstance(block, Figure) and block.name != "layers"]
        assert all(not panel for figure in drawn for panel in figure.panels.values()), recipe.name
        if recipe.name.startswith("table"):
            assert entries(blocks)
            assert all(entry.measured is None for entry in entries(blocks)), recipe.name


@pytest.mark.parametrize("scale", SCALES)
def test_items_show_what_has_run(scale: Scale) -> None:
    found = MadeUp(scale)
    for one in all_cells(scale):
        found.put(one, 0.8, 0.6)
    for recipe in PAPER.recipes:
        if recipe.closed_form:
            continue
        blocks = recipe.show(found)
        assert any(entry.measured is not None for entry in entries(blocks)) or recipe.name in ("figure-3", "figure-4")
        for figure in blocks:
            if isinstance(figure, Figure):
                assert all(panel for panel in figure.panels.values()), recipe.name


def test_table_1_has_each_methods_own_model_beside_the_paper() -> None:
    found = MadeUp("full")
    for one in all_cells("full"):
        found.put(one, 0.8, 0.6)
    accuracy, shares, *_ = PAPER.recipe("table-1").show(found)
    assert isinstance(accuracy, Grid)
    assert isinstance(shares, Grid)
    assert accuracy.rows[DST][0] == Entry(measured=80.0, seeds=1, published="92.2 ± 0.1")
    assert accuracy.rows[FEDAVG][2] == Entry(measured=60.0, seeds=1, published="90.9 ± 0.8")
    sent = shares.rows[DST][0]
    assert sent is not None
    assert (sent.measured, sent.published) == (50.0, pytest.approx(100 * 7.0 / 14.1))


def test_table_2_tells_the_round_or_that_there_was_none() -> None:
    found = MadeUp("full")
    for one in task_cells(TASKS["full"]["CIFAR-10"]):
        found.put(one, 0.77, 0.77)
    grid = PAPER.recipe("table-2").show(found)[0]
    assert isinstance(grid, Grid)
    # Half of the accuracy after half of the rounds, all of it in the last: 75 % in round 1,000, 80 % never.
    told = [(entry.measured, entry.published) for entry in grid.rows[DST][:3] if entry]
    assert told == [(1000, "134 ± 2.9"), (1000, "183.3 ± 6.8"), ("> 1000", "312.3 ± 16.2")]


def test_table_5_reads_the_seconds_of_visits(tmp_path: Path) -> None:
    rows = [("3.0", "1.0", "5"), ("5.0", "1.0", "5"), ("9.0", "0.0", "0")]  # the last one did not search
    with gzip.open(tmp_path / "visits.csv.gz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "refresh_seconds", "search_flops"])
        writer.writerows(rows)
    assert search_seconds(tmp_path) == {"train": 3.0, "search": 1.0, "percent": 33.333, "visits": 2}


@pytest.mark.parametrize("name", [claim.name for claim in PAPER.claims])
@pytest.mark.parametrize("scale", SCALES)
def test_no_claim_is_judged_where_nothing_has_run(name: str, scale: Scale) -> None:
    assert claim(name)(MadeUp(scale)) is None


@pytest.mark.parametrize(
    ("dst", "ditto", "verdict"), [(0.9, 0.8, "holds"), (0.9, 0.905, "holds"), (0.8, 0.9, "fails"), (0.7, 0.6, "fails")]
)
def test_dst_is_near_the_best(dst: float, ditto: float, verdict: str) -> None:
    """Half a point below Ditto is near; FedAvg at 75 % must be below."""
    found, task = MadeUp("micro"), TASKS["micro"]["EMNIST-L"]
    for one in task_cells(task):
        found.put(one, {DST: dst, DITTO: ditto}.get(one.row, 0.75))
    assert claim("H1")(found).verdict == verdict


@pytest.mark.parametrize(("alone", "told"), [(0.9, True), (0.7, False)])
def test_a_claim_that_fails_names_weak_averaging_only_where_clients_alone_do_better(alone: float, told: bool) -> None:
    found, task = MadeUp("micro"), TASKS["micro"]["EMNIST-L"]
    for one in task_cells(task):
        found.put(one, {DST: 0.7, LOCAL: alone}.get(one.row, 0.75))
    verdict = claim("H1")(found)
    assert verdict.verdict == "fails"
    assert ("clients alone have 90.0 %" in verdict.why) == told


def test_a_cause_about_skewed_clients_is_not_given_where_alike_ones_fail_too() -> None:
    found, task = MadeUp("micro"), TASKS["micro"]["EMNIST-L"]
    for one in task_cells(task):
        found.put(one, {LOCAL: 0.9}.get(one.row, 0.75))
    for one in density_cells("micro"):
        found.put(one, 0.7 if one.row == "ERK" else 0.8)
    verdict = claim("H4")(found)
    assert (verdict.verdict, verdict.why) == ("fails", "")


def test_rsm_is_like_fedavg_where_clients_are_alike() -> None:
    task = TASKS["micro"]["EMNIST-L"]
    for static, searched, verdict in ((0.79, 0.9, "holds"), (0.7, 0.9, "fails"), (0.79, 0.6, "fails")):
        found = MadeUp("micro")
        for method, column, value in ((RSM, IID, static), (FEDAVG, IID, 0.8), (RSM, B, 0.7), (DST, B, searched)):
            found.put(cell(task, method, column), value)
        assert claim("H2")(found).verdict == verdict
    half = MadeUp("micro")
    half.put(cell(task, RSM, IID), 0.8)
    half.put(cell(task, FEDAVG, IID), 0.8)
    assert claim("H2")(half).verdict == "undecided"


def test_sparsity_pays_where_clients_differ() -> None:
    for dense, sparse, verdict in ((0.7, 0.75, "holds"), (0.7, 0.5, "fails"), (0.7, 0.6, "undecided")):
        found = MadeUp("micro")
        values = {("0.2", IID): 0.8, ("0.5", IID): 0.7, ("0.2", B): dense, ("0.5", B): sparse}
        for one in sparsity_cells("micro"):
            if (one.row, one.column) in values:
                found.put(one, values[one.row, one.column])
        assert claim("H3")(found).verdict == verdict


@pytest.mark.parametrize(("name", "cells"), [("H4", density_cells), ("H5", regrowth_cells)])
def test_the_first_of_two_rows_is_the_better_one(name: str, cells: Callable[[Scale], list[Cell]]) -> None:
    own = cells("micro")[0].row
    for values, verdict in (((0.8, 0.7), "holds"), ((0.7, 0.8), "fails"), ((0.8, 0.8), "undecided")):
        found = MadeUp("micro")
        for one in cells("micro"):
            found.put(one, values[one.row != own])
        assert claim(name)(found).verdict == verdict


def test_the_dense_model_is_worse_where_clients_differ() -> None:
    task = TASKS["micro"]["EMNIST-L"]
    for alike, skewed, verdict in ((0.795, 0.6, "holds"), (0.6, 0.6, "fails"), (0.8, 0.9, "fails")):
        found = MadeUp("micro")
        found.put(cell(task, DST, IID), 0.8, alike)
        found.put(cell(task, DST, B), 0.8, skewed)
        assert claim("H6")(found).verdict == verdict


@pytest.mark.parametrize("good", [True, False])
def test_directions(good: bool) -> None:
    found = MadeUp("micro")
    assert not any(direction.holds(found)[0] for direction in PAPER.directions)
    for direction in PAPER.directions:
        for one in direction.cells:
            found.put(one, 0.8 if (one.table["method"] == "fedspa") == good else 0.7)
    held = {direction.name: direction.holds(found)[0] for direction in PAPER.directions}
    assert held == {"rsm-near-fedavg": good, "dst-above-fedavg": good, "half-the-traffic": True}
