"""A folder that a file names is below the file's own, or it is refused."""

from __future__ import annotations

import json

import pytest

from plures import load_run
from plures.core.errors import PluresError, RunFolderError
from plures.recipes import resume_study
from plures.recipes.refitting import earlier_refit
from plures.report.inside import inside
from plures.report.nearby import runs_of_study
from plures.report.studies import read_series
from tests.report.run_folders import write_run, write_study

LEADING_OUT = ["..", "../other", "a/../../other", "/etc", "", ".", "a/..", "a\0b", "link", "link/run", "circle"]


@pytest.fixture
def study(tmp_path):
    """A study with a run, and beside it a run that is none of its own, to which a link leads."""
    write_run(tmp_path / "study" / "own", {"personal/test": [0.5, 1.0]})
    write_run(tmp_path / "other" / "run", {"personal/test": [0.5, 1.0]})
    (tmp_path / "study" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "study" / "circle").symlink_to(tmp_path / "study" / "circle")
    return write_study(tmp_path / "study", [("fedavg", 0, "own")])


@pytest.mark.parametrize("name", ["own", "own/below", "not/there", "own/../own", "..own", "a:b"])
def test_what_is_below_is_taken_as_it_is_named(study, name):
    assert inside(study, name) == study / name


@pytest.mark.parametrize("name", LEADING_OUT)
def test_what_leads_out_is_refused_with_the_name_of_the_file(study, name):
    with pytest.raises(RunFolderError, match=r"study\.json names"):
        inside(study, name)


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_study_that_names_other_folders_is_not_read(study, name):
    write_study(study, [("fedavg", 0, "own"), ("fedavg", 1, name)])
    for read in (lambda: read_series([study]), lambda: load_run(study)):
        with pytest.raises(RunFolderError, match=r"study\.json"):
            read()
    assert runs_of_study(study) == []
    assert earlier_refit(study) is None


def test_a_study_that_names_its_own_is_read(study):
    assert [series.label for series in read_series([study])] == ["fedavg"]
    assert runs_of_study(study) == [study / "own"]


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": ["/../../../other/run"]},
        {"seeds": [True]},
        {"seeds": "00"},
        {"beside": ["../other"]},
        {"beside": "local"},
        {"experiment": []},
        {"experiment": {"method": "../other"}},
    ],
)
def test_a_study_goes_on_in_its_own_folder_alone(study, change):
    before = sorted((study.parent / "other").rglob("*"))
    asked = {"experiment": {"method": "fedavg"}, "seeds": [0], "beside": [], "usual": False} | change
    (study / "study.json").write_text(json.dumps({"runs": [], "asked": asked}), encoding="utf-8")
    with pytest.raises(PluresError):
        resume_study(study)
    assert sorted((study.parent / "other").rglob("*")) == before
