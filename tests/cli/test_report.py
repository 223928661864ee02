"""plures report: where the page lies, and what is refused."""

from __future__ import annotations

import gzip

from tests.report.run_folders import write_run, write_study


def test_the_page_lies_in_the_first_folder(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, 1.0]})

    done = plures("report", run)

    assert done.code == 0
    assert done.out.startswith(f"Report: {run / 'report.html'} (4.")
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in run.iterdir() if "report" in path.name) == ["report.html"]


def test_a_study_has_its_page_in_its_folder_and_out_says_elsewhere(plures, tmp_path):
    for method in ("fedavg", "local"):
        write_run(tmp_path / method, {"personal/test": [0.5, 1.0]}, method=method)
    study = write_study(tmp_path, [("fedavg", 0, "fedavg"), ("local", 0, "local")])

    assert plures("report", study).code == 0
    assert (tmp_path / "report.html").is_file()
    done = plures("report", study, "--against", "local", "--out", tmp_path / "new" / "page.html")
    assert done.code == 0
    assert "fedavg minus local, test data" in (tmp_path / "new" / "page.html").read_text(encoding="utf-8")


def test_a_page_is_written_again_over_the_old_one(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, 1.0]})
    (run / "report.html").write_text("old", encoding="utf-8")
    assert plures("report", run).code == 0
    assert len((run / "report.html").read_text(encoding="utf-8")) > 1000


def refused(plures, run, *more) -> str:
    done = plures("report", run, *more)
    assert done.code == 2
    assert not (run / "report.html").exists()
    return " ".join(done.err.split())


def test_damaged_or_missing_records_are_one_error_that_names_the_file(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, 1.0]})
    assert "no such label" in refused(plures, run, "--against", "nothing")
    (run / "federation.csv.gz").write_bytes(gzip.compress(b"client,name,role\n0,a,participant\n"))
    assert "federation.csv.gz is damaged" in refused(plures, run)
    (run / "federation.csv.gz").unlink()
    (run / "personal.safetensors").write_bytes(b"nothing")
    assert "personal.safetensors" in refused(plures, run)
    (run / "personal.safetensors").unlink()
    (run / "rounds.jsonl").write_text('{"round": 1, "metrics": 3}\n', encoding="utf-8")
    assert "rounds.jsonl is damaged" in refused(plures, run)
    (run / "rounds.jsonl").unlink()
    assert "rounds.jsonl" in refused(plures, run)
    (run / "result.json").unlink()
    assert "no run folder" in refused(plures, run)


def test_a_place_that_cannot_be_written_is_one_error(plures, tmp_path):
    run = write_run(tmp_path / "run", {"personal/test": [0.5, 1.0]})
    assert "is a folder" in refused(plures, run, "--out", tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "Cannot write" in refused(plures, run, "--out", tmp_path / "file" / "page.html")
    assert "ends in .html or .htm" in refused(plures, run, "--out", tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()
