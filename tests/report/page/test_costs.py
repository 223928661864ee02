"""Bars have the costs of result.json, averaged over seeds."""

from __future__ import annotations

from tests.report.page.pages import charts, listed, missing
from tests.report.run_folders import write_run


def costs(**more):
    usual = {"bytes_down": 1000, "bytes_up": 500, "flops": 4e6, "dense_flops": 8e6, "peak_bytes": 64, "seconds": 1.0}
    return {"cost": usual | more}


def test_bars_are_means_and_whiskers_reach_the_seeds(tmp_path):
    for seed, up in enumerate((500, 700)):
        given = costs(bytes_up=up, seconds=1.0 + seed)
        write_run(tmp_path / f"run-{seed}", {"personal/test": [0.5]}, seed=seed, result=given)
    found = charts(tmp_path / "run-0", tmp_path / "run-1")
    down, up = found["cost-bytes"].traces

    assert (listed(down["x"]), listed(up["x"])) == ([1000], [600])
    assert (listed(up["error_x"]["array"]), listed(up["error_x"]["arrayminus"])) == ([100], [100])
    assert listed(found["cost-time"].traces[0]["x"]) == [1.5]
    assert listed(found["cost-memory"].traces[0]["x"]) == [64]
    assert [listed(trace["x"]) for trace in found["cost-flops"].traces] == [[4e6], [8e6]]


def test_operations_of_dense_models_are_one_bar(tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5]}, result=costs(dense_flops=4e6))
    assert len(charts(run)["cost-flops"].traces) == 1


def test_what_was_not_counted_is_told_with_its_reason(tmp_path):
    given = costs(flops=None, dense_flops=None, not_counted="TypeError: no")
    run = write_run(tmp_path / "run", {"personal/test": [0.5]}, result=given)
    assert "TypeError: no" in missing(run)["Operations"]
