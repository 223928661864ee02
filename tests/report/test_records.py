"""Records of a run, read back as plain data."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest

from plures.report import records

COLUMNS = (*records.CLIENT_COLUMNS, "accuracy", "loss")


def test_rounds_are_read_one_per_line(tmp_path):
    (tmp_path / records.ROUNDS).write_text('{"round": 1}\n{"round": 2}\n', encoding="utf-8")

    assert records.read_rounds(tmp_path) == [{"round": 1}, {"round": 2}]


@pytest.mark.parametrize("cut", ['{"rou', '{"round": 3, "cohort": [1, ', "{"])
def test_a_last_line_cut_off_by_a_crash_is_left_out(tmp_path, cut):
    (tmp_path / records.ROUNDS).write_text('{"round": 1}\n{"round": 2}\n' + cut, encoding="utf-8")

    assert records.read_rounds(tmp_path) == [{"round": 1}, {"round": 2}]


def test_clients_are_read_across_appended_gzip_members(tmp_path):
    header = ",".join(COLUMNS)
    members = [f"{header}\r\n1,0,ann,global,test,5,0.4,1.5\r\n", "2,0,ann,global,test,5,0.6,1.1\r\n"]
    (tmp_path / records.CLIENTS).write_bytes(b"".join(gzip.compress(member.encode()) for member in members))

    rows = list(records.read_clients(tmp_path))

    assert [(row["round"], row["name"], row["accuracy"]) for row in rows] == [("1", "ann", "0.4"), ("2", "ann", "0.6")]
    assert all(tuple(row) == COLUMNS for row in rows)


def test_names_with_commas_quotes_and_line_breaks_are_read_back(tmp_path):
    names = ["a,b", 'the "best"', "two\nlines", "ünï"]
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(COLUMNS)
    rows.writerows([1, number, name, "global", "test", 5, 0.5, 1.0] for number, name in enumerate(names))
    (tmp_path / records.CLIENTS).write_bytes(gzip.compress(text.getvalue().encode("utf-8")))

    assert [row["name"] for row in records.read_clients(tmp_path)] == names


def test_a_result_is_read_as_it_was_written(tmp_path):
    written = {"version": "0.1.0", "metrics": {"global/test/accuracy": {"weighted": 0.5}}}
    (tmp_path / records.RESULT).write_text(json.dumps(written), encoding="utf-8")

    assert records.read_result(tmp_path) == written
