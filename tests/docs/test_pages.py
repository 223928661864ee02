"""What other pages show is what runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from plures import make_experiment, run_experiment
from plures.data import PARTITIONERS
from plures.evaluate.metrics import MORE_METRICS
from plures.recipes import tune

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_ten_lines_of_the_readme_are_the_example():
    (shown,) = blocks("README.md", "python")
    example = (ROOT / "examples/quickstart.py").read_text(encoding="utf-8")
    assert example.endswith(shown)
    assert len([line for line in shown.splitlines() if line]) <= 10


def test_the_snippet_of_the_data_page_runs(capsys):
    (shown,) = blocks("docs/data.md", "python")
    exec(compile(shown, "data.md", "exec"), {})
    assert "Federation(30 clients" in capsys.readouterr().out


def test_the_data_page_names_every_rule():
    text = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(PARTITIONERS)


@pytest.mark.parametrize("page", ["docs/pipeline.md"])
def test_every_file_of_a_page_runs(page, tmp_path):
    shown = blocks(page, "toml")
    assert shown
    for block in shown:
        table = tomllib.loads(block)
        table["pipeline"] = {**table["pipeline"], "cache": str(tmp_path / "kept")}
        table["pipeline"]["pretrain"]["rounds"] = 2
        result = run_experiment(make_experiment(table | {"rounds": 2}), out=tmp_path / "run")
        assert [stage.stage for stage in result.stages] == ["pretrain", "personal", "tune"]


def test_the_evaluation_page_names_every_metric_and_its_file_runs():
    text = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \| (?:classes|numbers) \|", text, re.MULTILINE)
    assert named == [name for metrics in MORE_METRICS.values() for name in metrics]
    shown, newcomers, guard = blocks("docs/evaluation.md", "toml")
    result = run_experiment(make_experiment(tomllib.loads(shown) | {"rounds": 1}))
    assert {f"personal/test/{name}" for name in MORE_METRICS["classification"]} <= set(result.metrics)
    assert "personal/test/unseen_share" in result.metrics
    assert run_experiment(make_experiment(tomllib.loads(newcomers) | {"rounds": 1})).gap is not None
    assert run_experiment(make_experiment(tomllib.loads(guard) | {"rounds": 1})).guard["clients"] == 20


def test_the_diagnostics_page_names_every_number_and_its_file_runs():
    (shown,) = blocks("docs/diagnostics.md", "toml")
    table = tomllib.loads(shown) | {"rounds": 1, "data": {"clients": 6}}
    found = run_experiment(make_experiment(table)).history[0]["diagnostics"]
    text = (ROOT / "docs/diagnostics.md").read_text(encoding="utf-8")
    drops = {name for name in found if name.startswith("loss_drop/")}
    assert len(drops) == 2  # FedAlt has two phases
    assert all(f"`{name}`" in text for name in found.keys() - drops)


def test_the_tuning_page_is_what_runs(tmp_path, monkeypatch, capsys):
    (shown,) = blocks("docs/tuning.md", "toml")
    experiment = make_experiment(tomllib.loads(shown) | {"rounds": 1, "data": {"clients": 6}})
    assert tune(experiment, out=tmp_path / "out", trials=1).best is not None
    (snippet,) = blocks("docs/tuning.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "tuning.md", "exec"), {})
    assert "method_options.lr" in capsys.readouterr().out
