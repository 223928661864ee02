"""`plures resume`, with real processes that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.helpers import PLURES, environment
from tests.cli.test_errors import wait_for_rounds
from tests.recipes.resuming_helpers import assert_same_run

ROUNDS = 40


@pytest.fixture
def longer(tmp_path: Path) -> Path:
    path = tmp_path / "longer.toml"
    text = f'method = "pflego"\nrounds = {ROUNDS}\ncohort = 4\n[data]\nclients = 8\n[checkpoint]\nevery = 3\n'
    path.write_text(text, encoding="utf-8")
    return path


def killed_after(rounds: int, folder: Path, *command: str | Path) -> None:
    running = subprocess.Popen(
        list(map(str, [PLURES, *command])),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        wait_for_rounds(folder / "rounds.jsonl", rounds, running)
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)


def test_a_killed_run_goes_on_by_one_short_command_and_ends_as_one_left_alone(plures, longer, tmp_path):
    assert plures("run", longer, "--out", "alone").code == 0

    killed_after(8, tmp_path / "here" / "cut", "run", longer, "--out", tmp_path / "here" / "cut")
    assert json.loads(plures("runs", ".", "--json").out)[0]["state"] in ("dead", "finished")
    said = plures("resume", "cut")

    assert said.code == 0, said.err
    assert "goes on after round" in said.err
    assert "Results: cut" in said.out
    assert_same_run(tmp_path / "here" / "cut", tmp_path / "here" / "alone")


def test_an_interrupted_run_says_how_to_go_on(plures, longer, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("plures.recipes.checkpointing.Checkpointer.after_round", interrupted)
        said = plures("run", longer, "--out", "cut")

    assert said.code == 130
    assert "plures resume cut goes on" in said.err


def test_a_finished_run_is_shown_and_not_run_again(plures, experiment):
    first = plures("run", experiment, "--out", "run", "--json")
    again = plures("resume", "run", "--json")

    assert (again.code, json.loads(again.out)["metrics"]) == (0, json.loads(first.out)["metrics"])


@pytest.mark.parametrize(
    ("folder", "told"), [("nothing", "There is no folder nothing"), (".", "has no experiment.toml: it is no run")]
)
def test_what_is_no_run_is_told_in_one_line(plures, folder, told):
    said = plures("resume", folder)

    assert said.code == 2
    assert told in said.err
    assert len(said.err.splitlines()) == 1


def test_resume_needs_a_folder_to_look_in(plures, experiment):
    said = plures("run", experiment, "--resume")

    assert said.code == 2
    assert "--out RUN" in said.err


def test_a_study_goes_on_by_the_same_command(plures, experiment):
    first = plures("run", experiment, "--seeds", "2", "--alone", "--out", "study", "--json")
    again = plures("run", experiment, "--seeds", "2", "--alone", "--out", "study", "--resume", "--json")
    by_name = plures("resume", "study", "--json")

    assert (first.code, again.code, by_name.code) == (0, 0, 0)
    assert first.out == again.out == by_name.out
