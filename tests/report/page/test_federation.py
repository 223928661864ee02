"""Who the clients are: their examples in bins, their labels in a map."""

from __future__ import annotations

from tests.report.page.pages import charts, listed, member, missing
from tests.report.run_folders import write_federation, write_run


def run_with(tmp_path, rows):
    folder = write_run(tmp_path / "run", {"personal/test": [0.5] * len(rows)})
    write_federation(folder, rows)
    return folder


def test_bins_count_clients_and_name_them(tmp_path):
    """One bin for each number from 10 to 12; newcomers are not counted."""
    rows = [member(0, 10), member(1, 12), member(2, 12), member(3, 99, role="newcomer")]
    (bars,) = charts(run_with(tmp_path, rows))["examples"].traces

    assert listed(bars["y"]) == [1, 0, 2]
    assert bars["text"] == ["c0", "", "c1, c2"]
    assert bars["customdata"][0] == "10 to 10"


def test_the_map_has_shares_by_label_and_counts_to_hover(tmp_path):
    """Label 10 comes after 2; client 1, whose most frequent label comes first, stands first."""
    rows = [member(0, 10, {"10": 10}), member(1, 8, {"2": 6, "10": 2})]
    (heat,) = charts(run_with(tmp_path, rows))["labels"].traces

    assert heat["x"] == ["2", "10"]
    assert listed(heat["z"]) == [[0.75, 0.25], [0.0, 1.0]]
    assert heat["customdata"] == [[6, 2], [0, 10]]
    assert [row[0] for row in heat["text"]] == ["c1", "c0"]


def test_targets_that_are_no_classes_have_no_map(tmp_path):
    assert "no classes" in missing(run_with(tmp_path, [member(0, 10), member(1, 12)]))["Label map"]


def test_a_run_without_the_record_has_a_sentence(tmp_path):
    folder = write_run(tmp_path / "run", {"personal/test": [0.5]})
    assert "federation.csv.gz" in missing(folder)["Examples per client, and the label map"]
