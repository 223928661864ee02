"""A cell is known by its configuration, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plures.core.errors import RunFolderError
from plures.papers.cells import key_of
from plures.papers.outcomes import Outcome, read_outcome, write_outcome
from plures.papers.planning import missing_jobs
from plures.papers.store import Store
from tests.papers.made_up import OTHER, OWN, PAPER, cell, outcome


def test_where_and_how_fast_a_cell_runs_does_not_change_its_key():
    here = OWN.experiment(0)

    assert key_of(here.model_copy(update={"engine": "cached"})) == OWN.key(0)
    piped = {"pretrain": {"rounds": 2}, "cache": "here"}
    elsewhere = piped | {"cache": "there"}
    assert cell("a", "fedalt", pipeline=piped).key(0) == cell("b", "fedalt", pipeline=elsewhere).key(0)


@pytest.mark.parametrize(
    "other",
    [OTHER, replace(OWN, table={**OWN.table, "rounds": 3}), replace(OWN, table={**OWN.table, "cohort": 2})],
    ids=["method", "rounds", "cohort"],
)
def test_another_configuration_has_another_key(other):
    assert other.key(0) != OWN.key(0)


def test_another_seed_has_another_key():
    assert OWN.key(1) != OWN.key(0)


def test_an_outcome_comes_back_from_its_file_as_it_was(tmp_path):
    found = outcome([0.5, 0.75])
    write_outcome(tmp_path / "k.json", found)

    assert read_outcome(tmp_path / "k.json") == found


@pytest.mark.parametrize("text", ["", "{}", '{"format": 0}', "[1]", '{"format": 1, "made": {}}'])
def test_a_file_that_is_no_outcome_is_told_with_what_to_do(tmp_path, text):
    path = tmp_path / "k.json"
    path.write_text(text, "utf-8")

    with pytest.raises(RunFolderError, match=r"k\.json.*remove it"):
        read_outcome(path)


def test_curves_tails_and_targets_are_read_off_an_outcome():
    found: Outcome = outcome([0.8, 0.8], rounds=(1, 2, 3, 4))

    assert found.curve("personal/test/accuracy") == ([1, 2, 3, 4], [0.2, 0.4, pytest.approx(0.6), 0.8])
    assert found.tail("personal/test/accuracy", 2) == pytest.approx(0.7)
    assert found.tail("personal/test/accuracy", 2, until=3) == pytest.approx(0.5)
    assert found.rounds_to("personal/test/accuracy", 0.5) == 3
    assert found.rounds_to("personal/test/accuracy", 0.9) is None
    assert found.scores("personal", "train") is None


def test_only_what_is_not_in_the_store_is_missing_and_each_configuration_once(tmp_path):
    store = Store(folder=tmp_path)
    (tmp_path / "cells").mkdir()
    twice = [PAPER.recipes[0], PAPER.recipes[0]]

    assert [job.cell.row for job in missing_jobs(twice, "micro", 1, store)[0]] == ["Local", "FedAvg"]
    write_outcome(store.path(OWN.key(0)), outcome([0.5]))
    jobs, there = missing_jobs(twice, "micro", 2, store)
    assert [(job.cell.row, job.seed) for job in jobs] == [("FedAvg", 0), ("Local", 1), ("FedAvg", 1)]
    assert there == 1


def test_further_seeds_are_not_asked_for_where_a_cell_has_a_limit(tmp_path):
    recipe = replace(PAPER.recipes[0], cells=lambda scale: [replace(OWN, most_seeds=1), OTHER])

    jobs, _ = missing_jobs([recipe], "micro", 2, Store(folder=tmp_path))
    assert [(job.cell.row, job.seed) for job in jobs] == [("Local", 0), ("FedAvg", 0), ("FedAvg", 1)]
