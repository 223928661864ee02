"""Lines and tables that are cut or damaged."""

from __future__ import annotations

import shutil

import pytest

from plures.recipes.doctor import repair
from plures.report import records
from tests.recipes.doctor.helpers import (
    diagnosis,
    finding,
    flip,
    snapshot,
    wrong,
)


def test_a_part_in_the_middle_of_a_table_can_be_left_out(copy):
    folder = copy("alone")
    rows = list(records.read_visits(folder))
    path = folder / records.VISITS
    flip(path, path.read_bytes().index(b"\x1f\x8b\x08", 10) + 20)
    assert finding(folder, records.VISITS).state == "damaged"
    repair(folder)
    assert list(records.read_visits(folder)) == [row for row in rows if row["round"] != "2"]
    assert diagnosis(folder).is_well


def test_a_table_without_its_beginning_is_left_as_it_is(copy):
    folder = copy("alone")
    flip(folder / records.CLIENTS, 20)
    before = snapshot(folder)
    assert "names of the columns" in finding(folder, records.CLIENTS).meaning
    assert repair(folder) == []
    assert snapshot(folder) == before
    assert not diagnosis(folder).is_loadable


def test_other_columns_are_damage(copy):
    folder = copy("alone")
    shutil.copy(folder / records.VISITS, folder / records.FEDERATION)
    assert "columns" in finding(folder, records.FEDERATION).meaning


@pytest.mark.parametrize("name", [records.ROUNDS, records.VISITS, records.CLIENTS, records.SHARED, records.PERSONAL])
def test_a_file_of_a_finished_run_that_is_gone_is_missed(copy, name):
    folder = copy("alone")
    (folder / name).unlink()
    assert wrong(folder) == {name: "missing"}


def test_a_damaged_line_between_others_is_damage(copy):
    folder = copy("alone")
    lines = (folder / records.ROUNDS).read_bytes().splitlines(keepends=True)
    for changed in ([*lines[:2], b"{\n", *lines[3:]], [*lines[:2], *lines[3:]], [*lines[:3], *lines[2:]]):
        (folder / records.ROUNDS).write_bytes(b"".join(changed))
        assert wrong(folder) == {records.ROUNDS: "damaged"}
        assert repair(folder) == []


def test_a_last_line_that_the_result_tells_of_is_not_thrown_away(copy):
    folder = copy("alone")
    path = folder / records.ROUNDS
    path.write_bytes(path.read_bytes()[:-3])
    assert "4 rounds can be read, but result.json has 5" in finding(folder, records.ROUNDS).meaning
    assert repair(folder) == []
