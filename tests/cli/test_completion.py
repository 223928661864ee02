"""What shells offer after Tab, asked for as the shells ask."""

from __future__ import annotations

import subprocess

import pytest

from plures.cli import completing
from plures.data import SOURCES
from plures.methods import METHODS
from plures.models import MODELS
from plures.recipes.engines import AUTO, ENGINES, TRIAL
from plures.recipes.tracking import TRACKERS
from tests.cli.helpers import PLURES, environment


@pytest.fixture
def asked(plures, folder, monkeypatch):
    """What a shell is told that asks by these variables."""

    def told(**variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        said = plures()
        assert said.err == ""
        return said.out

    return told


@pytest.fixture
def bash(asked):
    """The words that bash offers at the end of a line."""

    def offers(line: str) -> list[str]:
        return asked(
            _PLURES_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1)
        ).split()

    return offers


@pytest.fixture
def folder(tmp_path):
    """A folder with experiment files, two runs, and a study that has one."""
    for place in ("runs/one", "runs/two", "runs/study/fedavg/seed-0", "deep/er", ".hidden/run"):
        (tmp_path / place).mkdir(parents=True)
    for run in ("runs/one", "runs/two", "runs/study/fedavg/seed-0", ".hidden/run"):
        (tmp_path / run / "rounds.jsonl").touch()
        (tmp_path / run / "experiment.toml").touch()
    (tmp_path / "runs/study/study.json").touch()
    for file in ("first.toml", "deep/second.toml", "notes.txt", "pyproject.toml"):
        (tmp_path / file).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("plures ru", ["run", "runs"]),
        ("plures run --beside fedp", ["fedper", "fedprox"]),
        ("plures run --engine s", ["sequential"]),
        ("plures run --track ", ["tensorboard", "wandb", "mlflow"]),
        ("plures run ", ["first.toml", "deep/second.toml"]),
        ("plures run runs/one/", ["runs/one/experiment.toml"]),
        ("plures watch ", ["runs/one", "runs/two", "runs/study", "runs/study/fedavg/seed-0"]),
        ("plures compare runs/one runs/t", ["runs/two"]),
        ("plures split lenet", ["lenet32", "lenet5"]),
        ("plures data info cifar-1", ["cifar-10", "cifar-100"]),
    ],
)
def test_bash_is_offered_names_files_and_run_folders(bash, line, offers):
    assert sorted(bash(line)) == sorted(offers)


def test_zsh_is_offered_commands_with_their_summaries(asked):
    out = asked(_PLURES_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="plures wat")

    assert out.startswith("_arguments")
    assert '"watch":"Follow a run from another terminal' in out


def test_zsh_is_offered_values(asked):
    out = asked(_PLURES_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="plures run --engine w")

    assert '"workers"' in out


def test_fish_is_offered_values(asked):
    variables = {"_PLURES_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}

    assert asked(**variables, _TYPER_COMPLETE_ARGS="plures watch runs/o").split() == ["runs/one"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_shown(asked, shell):
    out = asked(_PLURES_COMPLETE=f"source_{shell}")

    assert "_PLURES_COMPLETE" in out
    assert "plures" in out


def test_bash_itself_completes_with_the_script(folder, asked):
    script = asked(_PLURES_COMPLETE="source_bash")
    path = f"PATH={PLURES.parent}:$PATH"
    ask = 'COMP_WORDS=(plures run --engine tr) COMP_CWORD=3; _plures_completion plures; echo "${COMPREPLY[@]}"'

    done = subprocess.run(
        ["bash", "-c", f"{path}\n{script}\n{ask}"],
        cwd=folder,
        env={name: value for name, value in environment().items() if name != "_PLURES_COMPLETE"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    assert done.stdout.strip() == "trial"


def test_names_found_in_source_files_are_those_of_the_tables():
    assert completing.method_names() == list(METHODS)
    assert completing.source_names() == list(SOURCES)
    assert completing.model_names() == list(MODELS)
    assert completing.engine_names() == [AUTO, TRIAL, *ENGINES]
    assert completing.tracker_names() == list(TRACKERS)


def test_a_large_tree_is_not_searched_to_its_end(tmp_path, monkeypatch):
    for number in range(30):
        (tmp_path / f"{number:02}").mkdir()
    (tmp_path / "29/rounds.jsonl").touch()
    monkeypatch.setattr(completing, "MOST_FOLDERS", 10)

    assert completing.run_folders(f"{tmp_path}/") == []
