"""One point for each run: what it came to against what it sent and what is personal."""

from __future__ import annotations

from tests.report.page.pages import charts, listed, missing
from tests.report.run_folders import write_run


def runs(tmp_path, **more):
    """Two labels, one with two seeds; sent is the sum of up and down."""
    cost = {"cost": {"bytes_down": 3000, "bytes_up": 100}}
    return [
        write_run(tmp_path / "a0", {"personal/test": [0.5, 1.0]}, seed=0, result=more),
        write_run(tmp_path / "a1", {"personal/test": [0.5, 0.5]}, seed=1, result=more),
        write_run(tmp_path / "b0", {"personal/test": [1.0, 1.0]}, method="local", result=cost | more),
    ]


def test_every_run_is_a_point_at_its_bytes(tmp_path):
    second, first = charts(*runs(tmp_path))["final-bytes"].traces  # Local comes first

    assert (listed(first["x"]), listed(first["y"])) == ([1500, 1500], [0.75, 0.5])
    assert (listed(second["x"]), listed(second["y"])) == ([3100], [1.0])
    assert first["text"] == ["seed 0", "seed 1"]


def test_every_run_is_a_point_at_its_personal_parameters(tmp_path):
    found = charts(*runs(tmp_path, parameters={"shared": 7, "personal": 650}))
    assert listed(found["final-parameters"].traces[1]["x"]) == [650, 650]


def test_runs_that_did_not_count_parameters_have_a_sentence(tmp_path):
    given = runs(tmp_path)
    assert "final-parameters" not in charts(*given)
    assert "Repeat one" in missing(*given)["Final accuracy against personal parameters"]
