"""What is wrong with a search or its folder: one clear error, and nothing written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from plures import make_experiment
from plures.core.errors import InvalidConfig, RunFolderError
from plures.recipes import tune
from plures.recipes.search_folder import alone_in
from tests.recipes.helpers import table
from tests.recipes.searches import LR, searched, told_by

ROOT = Path(__file__).parents[2]


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    searched(tmp_path / "out", trials=1)
    with pytest.raises(InvalidConfig) as told:
        searched(tmp_path / "out", {"method_options.lr": [0.1]}, trials=1, rounds=1)
    problems = "\n".join(told.value.problems)
    assert "experiment.rounds = 2, which is 1 now" in problems
    assert "tune.search.method_options.lr" in problems
    assert "--out" in problems


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty"):
        searched(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_what_was_killed_before_its_study_began_begins_anew(tmp_path):
    for name in (".lock", ".lock-journal", ".study.db.partial", ".study.db.partial-journal"):
        (tmp_path / name).write_bytes(b"")
    assert len(searched(tmp_path, trials=1).trials) == 1


def test_a_damaged_study_is_one_clear_error(tmp_path):
    searched(tmp_path / "out", trials=1)
    (tmp_path / "out/study.db").write_bytes(b"not a database" * 100)
    with pytest.raises(RunFolderError, match=r"study.db cannot be used"):
        searched(tmp_path / "out", trials=1)


def test_two_searches_in_one_folder_at_once_are_refused(tmp_path):
    searched(tmp_path / "out", trials=1)
    with alone_in(tmp_path / "out"), pytest.raises(RunFolderError, match="Another search is under way"):
        searched(tmp_path / "out", trials=2)


@pytest.mark.parametrize(
    ("space", "changes", "says"),
    [
        ({"method_options.lrr": [0.1, 0.2]}, {}, "fedavg has no option 'lrr'"),
        ({"rouns": [1, 2]}, {}, "Unknown key 'rouns'. Did you mean 'rounds'"),
        ({"method": ["fedavg", "fedspam"]}, {}, 'With method = "fedspam": '),
        ({"method": ["fedavg", "fedalt"], "split.personal": ["head"]}, {}, 'With method = "fedavg": fedavg has no'),
        ({"method_options.lr": {"low": -1.0, "high": 0.1}}, {}, "With method_options.lr = -1.0: "),
        ({"data.clients": [2, 4]}, {}, "data.clients changes who has which examples"),
        (LR, {"data": {"split": [0.8, 0.0, 0.2]}}, "no validation examples"),
        (LR, {"data": {"merge_validation": True}}, "remove merge_validation"),
        (LR, {"metric": "personal/test/accuracy"}, "judged on validation data alone"),
        (LR, {"metric": "acuracy"}, "Did you mean 'accuracy'"),
        (LR, {"metric": "persnal/validation/loss"}, "there is no model 'persnal'"),
        (LR, {"metric": "global/validation/loss", "method": "fedalt"}, "no global model"),
        (LR, {"sampler": "grid"}, "a range without a step"),
        (LR, {"sampler": "tpf"}, "tune.sampler = 'tpf'"),
        (LR, {"evaluation": {"guard": True}, "method": "ditto", "refit": 1}, "no validation examples left"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_trial(space, changes, says, tmp_path):
    assert says in "\n".join(told_by(tmp_path / "out", space, **changes))


def test_an_experiment_without_a_search_is_told(tmp_path):
    with pytest.raises(InvalidConfig, match=r"no table \[tune.search\]"):
        tune(make_experiment(table()), out=tmp_path / "out")


def test_a_missing_package_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert told_by(tmp_path / "out") == [
        'Searching needs the package optuna, which is not installed: pip install "plures[tune]".'
    ]


def test_one_module_alone_imports_optuna():
    importing = [
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"^\s*(import|from) optuna", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert importing == ["optuna_study.py"]
