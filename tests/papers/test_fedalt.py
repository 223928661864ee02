"""Recipes of the FedSim and FedAlt paper: settings, closed forms, pages and verdicts on made-up outcomes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import plures
from plures.core.types import Batch
from plures.local import steps
from plures.methods import fedalt, fedsim
from plures.papers.blocks import Entry, Figure, Grid
from plures.papers.cells import Cell
from plures.papers.fedalt import PAPER, theory, theory_page
from plures.papers.fedalt.claims import share_interval
from plures.papers.fedalt.counts import counts, total
from plures.papers.fedalt.figures import dropout_runs, l2_runs
from plures.papers.fedalt.settings import FEDALT, FEDSIM, FEDSIM_2, FINETUNE, FT, cell_of, key
from plures.papers.fedalt.tasks import ADAPTER, EMNIST, GLDV2, INPUT, OUTPUT, PARTS, STACKOVERFLOW, TASKS
from plures.papers.fedalt.theory import (
    COUPLINGS,
    ROUNDS,
    SIZE,
    STEPS,
    best_loss,
    lead,
    losses,
    mean_loss,
    quadratic_clients,
)
from plures.papers.outcomes import Made, Outcome
from plures.papers.published import load
from plures.papers.recipe import SCALES, Scale
from plures.recipes.build import build_plan, build_sampler, given_options, named_method
from plures.recipes.options import called, make_budget, make_rule, method_options
from plures.recipes.plan import EvaluationPlan
from plures.recipes.pretraining import pretraining

CLIENTS = 20
ITEMS = [f"table-{n}" for n in (3, 4, 5, 6, 7, 10, 11, 12)] + [f"figure-{n}" for n in range(3, 11)]
OWN = ["unipen", "next-word", "theory"]


@dataclass
class MadeUp:
    """Outcomes by row and column of their cells, seed 0."""

    scale: Scale = "micro"
    known: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def outcomes(self, cell: Cell) -> dict[int, Outcome]:
        found = self.known.get((cell.row, cell.column))
        return {} if found is None else {0: found}


def outcome(first: Any = 0.8, personal: Any = 0.85, tuned: Any = 0.87, guarded: Any = None) -> Outcome:
    """Of clients with 50 examples each; a number is that of all clients."""
    models = {
        "stage_a": first,
        "personal": personal,
        "finetuned": tuned,
        "guarded": tuned if guarded is None else guarded,
    }
    clients, final = {}, {}
    for split in ("train", "test"):
        for model, value in models.items():
            values = np.broadcast_to(np.asarray(value, dtype=float), (CLIENTS,)).tolist()
            clients[f"{model}/{split}"] = {
                "clients": list(range(CLIENTS)),
                "examples": [50] * CLIENTS,
                "accuracy": values,
            }
            final[f"{model}/{split}/accuracy"] = {"weighted": float(np.mean(values))}
    made = Made(date="2026-01-01", commit="0", machine="none", version="0", seconds=1.0)
    return Outcome(
        key="0",
        experiment={},
        made=made,
        status="finished",
        final=final,
        curves={},
        clients=clients,
        cost={},
        facts={"parameters": {"shared": 1000, "personal": 100}},
    )


def everything(scale: Scale) -> MadeUp:
    found = MadeUp(scale)
    for recipe in PAPER.recipes:
        for cell in recipe.cells(scale):
            found.known[cell.row, cell.column] = outcome()
    return found


def with_runs(**runs: Outcome) -> MadeUp:
    """Of the stand-in for EMNIST."""
    return MadeUp("micro", {(EMNIST, name): one for name, one in runs.items()})


@pytest.fixture(autouse=True)
def one_rate(monkeypatch: pytest.MonkeyPatch):
    """Of the quadratic clients' pages."""
    monkeypatch.setattr(theory_page, "ETAS", (0.1,))


def claim(name: str) -> Any:
    return next(one for one in PAPER.claims if one.name == name).judge


def all_cells(scale: Scale) -> list[Cell]:
    cells = [cell for recipe in PAPER.recipes for cell in recipe.cells(scale)]
    return list({cell.key(0): cell for cell in cells}.values())


def test_every_item_has_one_recipe():
    assert Counter(recipe.name for recipe in PAPER.recipes) == Counter(ITEMS + OWN)


@pytest.mark.parametrize("scale", SCALES)
def test_settings_are_real(scale: Scale):
    """Each experiment is valid, and its methods, stages and rules take the options they are given."""
    for cell in all_cells(scale):
        experiment = cell.experiment(0)
        assert experiment.pipeline is not None
        assert experiment.pipeline.pretrain is not None
        for one in (experiment, pretraining(experiment, experiment.pipeline.pretrain)):
            info = named_method(one.method)
            options = method_options(info, given_options(one, info), rounds=max(one.rounds, 1))
            assert called(info.name, info.make, options).local
            assert build_plan(one).splits == ("train", "test")
            assert build_sampler(one) is not None
        tune = experiment.pipeline.tune
        if tune is not None and not isinstance(tune, str):
            assert make_budget("tune", tune.budget)
            assert make_rule("lr", tune.lr, 1)


@pytest.mark.parametrize("scale", SCALES)
def test_stage_a_is_trained_once_for_a_task(scale: Scale):
    """All that stage (a) depends on is the same in every cell of a task."""
    stages: dict[str, set[str]] = {}
    for cell in all_cells(scale):
        experiment = cell.experiment(0)
        first = pretraining(experiment, experiment.pipeline.pretrain)
        stages.setdefault(cell.row, set()).add(repr(first.model_dump()))
    assert {task: len(found) for task, found in stages.items()} == dict.fromkeys(TASKS[scale], 1)


def test_the_full_scale_is_the_papers():
    """Table 8 of the paper, EMNIST and StackOverflow."""
    letters = cell_of("full", EMNIST, key(FEDALT, ADAPTER)).table
    assert (letters["rounds"], letters["cohort"], letters["pipeline"]["pretrain"]["rounds"]) == (500, 10, 2000)
    assert letters["method_options"]["lr"] == {"schedule": "exponential", "start": 0.01, "factor": 0.5, "every": 500}
    words = cell_of("full", STACKOVERFLOW, key(FEDSIM, OUTPUT)).table
    assert words["server"] == {"optimizer": "adam", "lr": 5e-5}
    assert words["pipeline"]["tune"] == {
        "part": "personal",
        "budget": {"epochs": 5, "batch": 64},
        "lr": 0.1,
        "clip_norm": 0.1,
    }


def test_only_the_named_runs_differ_from_fedalt_in_one_thing():
    plain = cell_of("micro", EMNIST, key(FEDALT, OUTPUT)).table
    stateless = cell_of("micro", EMNIST, key(FEDALT, OUTPUT, stateless=True)).table
    assert stateless["method_options"] == plain["method_options"] | {"stateful": False}
    twice = cell_of("micro", EMNIST, key(FEDSIM_2, OUTPUT)).table
    assert twice["method_options"]["budget"] == {"epochs": 2, "batch": 32}
    alone = cell_of("micro", EMNIST, key(FT, OUTPUT)).table
    assert alone["rounds"] == 0
    assert alone["pipeline"] == plain["pipeline"]


# ResNet adapters: for each convolution of a block of width C, C^2 + 2 C; 4 convolutions in each of the widths 64 to
# 512: 4 (4096 + 16384 + 65536 + 262144) = 1,392,640 and 4 * 2 * 960 = 7,680. Norms of the blocks and the stem: 7,680 +
# 128. Transformer: 8 bottlenecks of 2 * 256 * 16 + 16 + 256 = 8,464, and 8 layer norms of 512.
COUNTED = {
    (EMNIST, INPUT): 9 * 64 + 128,
    (EMNIST, OUTPUT): 513 * 62,
    (EMNIST, ADAPTER): 1_392_640 + 7_680 + 7_808,
    (GLDV2, INPUT): 3 * 49 * 64 + 128,
    (GLDV2, OUTPUT): 513 * 2028,
    (GLDV2, ADAPTER): 1_392_640 + 7_680 + 7_808,
    (STACKOVERFLOW, INPUT): 4 * 256**2 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256,
    (STACKOVERFLOW, OUTPUT): 4 * 256**2 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256,
    (STACKOVERFLOW, ADAPTER): 8 * 8_464 + 8 * 512,
}


@pytest.mark.parametrize(("task", "part"), COUNTED)
def test_parameter_counts_are_the_published_ones(task: str, part: str):
    personal, shared = counts(task, part)
    assert personal == COUNTED[task, part]
    if part != ADAPTER:
        assert personal + shared == total(task)
    item = {STACKOVERFLOW: "table-5", GLDV2: "table-6", EMNIST: "table-7"}[task]
    for number, printed in zip((personal, shared), load("fedalt")[item][part].values(), strict=True):
        unit = {"K": 1e3, "M": 1e6}[printed[-1]]
        digits = len(printed[:-1].partition(".")[2])
        assert round(number / unit, digits) == float(printed[:-1])


@pytest.mark.parametrize("scale", SCALES)
def test_pages_without_runs_have_nothing_measured(scale: Scale):
    for recipe in PAPER.recipes:
        blocks = recipe.show(MadeUp(scale))
        if recipe.closed_form:
            continue
        entries = [one for block in blocks if isinstance(block, Grid) for row in block.rows.values() for one in row]
        assert any(isinstance(block, Grid) for block in blocks) == (scale != "full" or recipe.name != "unipen")
        assert all(one is None or one.measured is None for one in entries)
        assert not any(isinstance(block, Figure) for block in blocks)


@pytest.mark.parametrize("scale", SCALES)
def test_pages_with_all_runs_have_every_cell(scale: Scale):
    found = everything(scale)
    for recipe in PAPER.recipes:
        if recipe.closed_form:
            continue
        cells = recipe.cells(scale)
        assert bool(cells) == (scale != "full" or recipe.name != "unipen")
        measured = [
            one
            for block in recipe.show(found)
            if isinstance(block, Grid)
            for row in block.rows.values()
            for one in row
            if isinstance(one, Entry) and one.measured is not None
        ]
        assert len(measured) >= len(cells) - (recipe.name in ("table-3", "figure-5"))
        if recipe.name.startswith("figure"):
            assert any(isinstance(block, Figure) and block.panels for block in recipe.show(found))


def test_table_10_is_what_stage_c_adds():
    found = with_runs(**{key(FEDALT, OUTPUT): outcome(personal=0.85, tuned=0.87)})
    grid = next(block for block in PAPER.recipe("table-10").show(found) if EMNIST in block.title)
    assert grid.rows[OUTPUT][0].measured == pytest.approx(2.0)
    assert grid.rows[OUTPUT][0].published == 0.09


def test_figure_9_counts_clients_that_are_hurt():
    tuned = np.full(CLIENTS, 0.9)
    tuned[:3] = 0.7
    found = with_runs(**{key(FEDALT, OUTPUT): outcome(first=0.8, tuned=tuned, guarded=np.maximum(tuned, 0.8))})
    grids = [block for block in PAPER.recipe("figure-9").show(found) if isinstance(block, Grid)]
    row = dict(zip(grids[1].columns, grids[1].rows["no dropout"], strict=True))
    assert (row["hurt"].measured, row["helped"].measured, row["hurt with guard"].measured) == (3, 17, 0)
    assert (row["hurt"].published, row["hurt, %"].published) == (256, 25.6)


def verdict(name: str, found: MadeUp) -> str | None:
    judged = claim(name)(found)
    return None if judged is None else judged.verdict


NOISE = np.where(np.arange(CLIENTS) % 2, 0.05, -0.05)


def test_claim_1_is_about_the_gain_of_full_personalisation():
    def found(partial: Any, whole: Any = 0.9) -> MadeUp:
        made = MadeUp("micro")
        for task in TASKS["micro"]:
            made.known[task, FINETUNE] = outcome(tuned=whole)
            for part in PARTS:
                made.known[task, key(FEDALT, part)] = outcome(tuned=partial if part == ADAPTER else 0.8)
        return made

    assert verdict("H1", MadeUp()) is None
    assert verdict("H1", found(0.88)) == "holds"  # 8 of 10 points
    assert verdict("H1", found(0.85)) == "fails"
    assert verdict("H1", found(0.87 + NOISE)) == "undecided"
    assert verdict("H1", found(0.88, whole=0.8 + NOISE)) == "undecided"  # nothing gained that could be had in part
    large = found(0.88)
    large.known = {
        name: replace(one, facts={"parameters": {"shared": 100, "personal": 100}}) for name, one in large.known.items()
    }
    assert verdict("H1", large) == "fails"  # half of the parameters are no small part
    del large.known[EMNIST, key(FEDALT, OUTPUT)]
    judged = claim("H1")(large)
    assert "not run" in judged.parts.values()


@pytest.mark.parametrize(("name", "reference"), [("H2", FEDSIM), ("H2, equal passes", FEDSIM_2)])
def test_claim_2_compares_fedalt_with_fedsim(name: str, reference: str):
    def found(alt: Any, sim: Any, alone: Any) -> MadeUp:
        made = MadeUp("micro")
        for cell in all_cells("micro"):
            method = cell.column.partition("/")[0]
            if method in (FEDALT, FEDSIM, FEDSIM_2, FT):
                made.known[cell.row, cell.column] = outcome(tuned={FEDALT: alt, FT: alone}.get(method, sim))
        return made

    assert verdict(name, MadeUp()) is None
    assert verdict(name, found(0.9, 0.88, 0.86)) == "holds"
    assert verdict(name, found(0.86, 0.88, 0.9)) == "fails"
    assert verdict(name, found(0.88 + NOISE, 0.88, 0.88 + NOISE)) == "undecided"
    assert verdict(name, found(0.8795, 0.88, 0.8805)) == "holds"  # half a tenth of a point is not worse


def hurting_runs(hurt: int) -> MadeUp:
    tuned = np.full(CLIENTS, 0.9)
    tuned[:hurt] = 0.7
    runs = [FINETUNE, key(FEDALT, OUTPUT), key(FEDALT, ADAPTER)]
    runs += [cell.column for cell in (*l2_runs("micro").values(), *dropout_runs("micro").values())]
    return with_runs(**dict.fromkeys(runs, outcome(tuned=tuned)))


def test_claim_3_is_about_clients_that_are_hurt():
    assert verdict("H3", MadeUp()) is None
    assert verdict("H3", hurting_runs(5)) == "holds"  # of 20: [11, 47] %
    assert verdict("H3", hurting_runs(1)) == "undecided"  # [1, 24] %
    assert share_interval(0, 100) == (pytest.approx(0, abs=1e-12), pytest.approx(0.037, abs=1e-3))
    part = with_runs(**{FINETUNE: outcome(tuned=0.8 + NOISE)})
    assert verdict("H3", part) == "undecided"


def test_claim_4_compares_what_fine_tuning_adds():
    def found(with_state: Any, without: Any) -> MadeUp:
        runs = {}
        for part in PARTS:
            for method in (FEDALT, FEDSIM):
                runs[key(method, part)] = outcome(personal=0.85, tuned=0.85 + with_state)
                runs[key(method, part, stateless=True)] = outcome(personal=0.8, tuned=0.8 + without)
        return with_runs(**runs)

    assert verdict("H4", MadeUp()) is None
    assert verdict("H4", found(0.004, 0.05)) == "holds"
    assert verdict("H4", found(0.05, 0.01)) == "fails"
    assert verdict("H4", found(0.05, 0.09)) == "fails"  # more without state, but much with state too
    assert verdict("H4", found(0.004, 0.004 + NOISE)) == "undecided"


def test_quadratic_clients_have_the_coupling_that_is_asked_for():
    """Eigenvalues of A'A and B'B reach 1, and the norm of A'B is chi."""
    clients = quadratic_clients(0.5)
    for shared, own in zip(clients.shared, clients.own, strict=True):
        assert np.linalg.norm(shared.T @ shared, 2) == pytest.approx(1)
        assert np.linalg.norm(own.T @ own, 2) == pytest.approx(1)
        assert np.linalg.norm(shared.T @ own, 2) == pytest.approx(0.5)


def test_the_least_loss_is_below_that_of_any_point():
    clients = quadratic_clients(0.75)
    assert 0 < best_loss(clients) < float(mean_loss(clients.targets))


class Coupled(nn.Module):
    """A u + B v: an example is a row of A and of B beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v = (nn.Parameter(torch.zeros(SIZE, 1, dtype=torch.float64)) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :SIZE] @ self.u + inputs[:, SIZE:] @ self.v


@pytest.mark.parametrize(("name", "make"), [("FedAlt", fedalt), ("FedSim", fedsim)])
def test_the_library_does_what_the_formulas_say(name, make):
    """Rows are scaled for a mean over six of them, and clients are scored on what they train on."""
    clients, scale = quadratic_clients(0.75), math.sqrt(2 * SIZE)
    batches = [
        Batch(torch.from_numpy(np.hstack([shared, own]) * scale), torch.from_numpy(targets * scale))
        for shared, own, targets in zip(*clients, strict=True)
    ]
    result = plures.run(
        make(personal="v", lr=0.1 / STEPS, budget=steps(STEPS)),
        plures.data.federate([(batch, batch) for batch in batches], goal="regression"),
        Coupled,
        rounds=ROUNDS,
        engine="sequential",
        loss=lambda output, targets: 0.5 * (output.flatten() - targets.flatten()).square().mean(),
        evaluation=EvaluationPlan(every=1, models=("personal",), splits=("test",)),
    )
    errors = [line["metrics"]["personal/test/rmse"]["weighted"] for line in result.history]
    assert [0.5 * error**2 for error in errors] == pytest.approx(losses(name, clients, 0.1).tolist(), rel=1e-12)


def test_fedalts_lead_grows_with_the_coupling():
    found = [lead(chi, 0.1) for chi in COUPLINGS]
    assert abs(found[0].mean) < 1e-9
    assert [one.mean for one in found] == sorted(one.mean for one in found)
    assert found[-1].mean > 10 * found[-1].error
    assert verdict("H5", MadeUp()) == "holds"


def test_a_lead_that_does_not_grow_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(theory, "COUPLINGS", COUPLINGS[::-1])
    assert not theory.grows(0.1)


def test_directions_need_their_runs_and_see_what_they_say():
    for direction in PAPER.directions[:2]:
        assert direction.cells
        assert not direction.holds(MadeUp())[0]
    helps, tunes = PAPER.directions[0], PAPER.directions[1]
    runs = {FINETUNE: outcome(tuned=0.9), key(FEDALT, OUTPUT): outcome(personal=0.85, tuned=0.86)}
    good = with_runs(**runs, **{key(FEDALT, OUTPUT, stateless=True): outcome(personal=0.8, tuned=0.84)})
    assert helps.holds(good)[0]
    assert tunes.holds(good)[0]
    bad = with_runs(
        **(runs | {FINETUNE: outcome(tuned=0.79)}), **{key(FEDALT, OUTPUT, stateless=True): outcome(0.8, 0.8, 0.8)}
    )
    assert not helps.holds(bad)[0]
    assert not tunes.holds(bad)[0]
