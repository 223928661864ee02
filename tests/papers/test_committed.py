"""What is committed under reproductions/ and in docs/results.md agrees with the recipes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plures.papers import PAPERS, find_paper
from plures.papers.cells import key_of
from plures.papers.pfedgate.rates import DENSITY, best, rate_columns
from plures.papers.pflego import alphabet_rates
from plures.papers.pflego.settings import FEW_STEPS
from plures.papers.recipe import SCALES
from plures.papers.results import write_results
from plures.papers.store import Shelf, Store
from plures.recipes.experiment import make_experiment

ROOT = Path(__file__).parents[2]
REPRODUCTIONS = ROOT / "reproductions"


@pytest.mark.parametrize("name", PAPERS)
def test_every_outcome_is_of_the_configuration_that_it_is_named_for(name):
    outcomes = Store(folder=REPRODUCTIONS / name).everything()

    assert outcomes
    wrong = [one.key for one in outcomes if key_of(make_experiment(one.experiment)) != one.key]
    assert wrong == []


@pytest.mark.parametrize("name", PAPERS)
def test_every_outcome_is_shown_by_some_recipe(name):
    """A recipe that changes leaves outcomes behind that nobody looks at: remove them, or run them again."""
    cells = {
        str(cell.table): cell for recipe in find_paper(name).recipes for scale in SCALES for cell in recipe.cells(scale)
    }
    keys = {cell.key(seed) for cell in cells.values() for seed in range(5)}

    assert {one.key for one in Store(folder=REPRODUCTIONS / name).everything()} <= keys


def test_no_outcome_names_a_place_on_the_machine_it_was_made_on():
    found = [path.name for path in REPRODUCTIONS.rglob("*.json") if '"folder"' in path.read_text("utf-8")]

    assert found == []


def test_rates_that_are_said_to_be_chosen_are_the_best_that_were_tried():
    found = Shelf(store=Store(folder=REPRODUCTIONS / "pfedgate"), scale="small")

    for column in rate_columns("small"):
        assert (column.lr, column.own_lr, column.rates(DENSITY)) == best(found, column), column.title


def test_rates_of_alphabets_are_the_best_that_were_tried():
    found = Shelf(store=Store(folder=REPRODUCTIONS / "pflego"), scale="small")

    for row in alphabet_rates.TRIED:
        assert FEW_STEPS[row.lower()] == alphabet_rates.best(found, row), row


def test_the_page_of_results_is_what_the_outcomes_say(tmp_path):
    write_results(tmp_path / "docs" / "results.md", REPRODUCTIONS)

    written = (tmp_path / "docs" / "results.md").read_text("utf-8")
    here = (ROOT / "docs" / "results.md").read_text("utf-8")
    assert without_links(written) == without_links(here), "run: plures paper all --pages --results docs/results.md"


def without_links(text: str) -> list[str]:
    return [re.sub(r"\]\([^)#]*", "](", line) for line in text.splitlines()]
