"""What goes wrong on the command line: code 2, one message on stderr, nothing on stdout, no folder, no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from plures.core.types import Batch
from plures.data import SOURCES, Source, digits
from plures.evaluate import Evaluator
from tests.cli.helpers import PLURES, environment, process


def assert_refused(said, *words: str) -> None:
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert said.err.count("error: ") == 1
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err


BAD = {
    "unknown method": (["method=fedvag"], "There is no method 'fedvag'. Did you mean 'fedavg'"),
    "unknown key": (["round=3"], "Unknown key 'round'. Did you mean 'rounds'"),
    "unknown option": (["method_options.rate=3"], "fedavg has no option 'rate'"),
    "wrong type": (["rounds=many"], "rounds = 'many'"),
    "negative rate": (["method_options.lr=-0.1"], "not -0.1"),
    "cohort larger than the population": (["cohort=11"], "a cohort of 11 clients cannot be drawn from 10"),
    "client with one example": (["data.clients=1797", "data.partition=iid"], "has one example"),
    "empty clients": (["data.clients=2000", "data.partition=iid"], "203 of 2000 clients would get no examples"),
    "too few outputs": (["model.classes=3"], "Mlp has 3 outputs, but client 0 needs 10"),
    "pattern without match": (["method=fedper", "split.personal=haed.*"], "Near matches: 'head.*'"),
    "batch norm without a policy": (["model.batch_norm=true"], 'In a file: [split] buffers = "shared"'),
    "newton on the body": (
        ["method=pflego", "method_options.solver=newton", "split.personal=body.*"],
        "is not the last step of the network",
    ),
    "unknown engine": (["engine=fast"], "There is no engine 'fast'"),
    "unknown device": pytest.param(["device=gpu"], "gpu"),
    "reserved table": (["privacy.epsilon=1"], "[privacy] is reserved for a later version"),
    "both ways to say who takes part": (["cohort=3", "participation.rule=all"], "Keep one of them"),
    "change of another form": (["rounds"], "'rounds' is not of the form KEY=VALUE"),
    "global model of a method without one": pytest.param(["method=fedper", 'evaluation.models=["global"]'], "global"),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD)
def test_a_bad_experiment_is_one_message_and_leaves_no_folder(plures, experiment, changes, says):
    settings = [word for change in changes for word in ("--set", change)]

    said = plures("run", experiment, *settings, "--out", "results")

    assert_refused(said, says)
    assert list(Path.cwd().iterdir()) == []


def broken(change) -> Source:
    good = digits()
    inputs, targets = good.examples.inputs.clone(), good.examples.targets.clone()
    change(inputs, targets)
    return replace(SOURCES["digits"], load=lambda: replace(good, examples=Batch(inputs, targets)))


def test_bad_values_in_the_data_are_one_message_and_leave_no_folder(plures, experiment, monkeypatch):
    def change(inputs, targets):
        inputs[3] = float("nan")

    monkeypatch.setitem(SOURCES, "digits", broken(change))

    assert_refused(plures("run", experiment, "--out", "results"), "have NaN or infinite inputs", "clean or drop them")
    assert list(Path.cwd().iterdir()) == []


def test_bad_labels_in_the_data_are_one_message_and_leave_no_folder(plures, experiment, monkeypatch):
    def change(inputs, targets):
        targets[3] = -1

    monkeypatch.setitem(SOURCES, "digits", broken(change))

    said = plures("run", experiment, "--set", "data.partition=iid", "--out", "results")

    assert_refused(said, "labels are out of range (first: -1)")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"method = \n", "is not valid TOML"), (b"\x89PNG\x00\xff", "Cannot read"), (b"", "'method' is missing")],
    ids=["syntax", "binary", "empty"],
)
def test_a_file_that_is_no_experiment_is_one_message(plures, tmp_path, content, says):
    (tmp_path / "bad.toml").write_bytes(content)

    assert_refused(plures("run", tmp_path / "bad.toml"), says)
    assert list(Path.cwd().iterdir()) == []


def test_a_file_that_is_not_there_is_one_message(plures, tmp_path):
    assert_refused(plures("run", "absent.toml"), "Cannot read absent.toml: No such file or directory")
    assert_refused(plures("run", tmp_path), "Is a directory")
    assert list(Path.cwd().iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_message(plures, experiment):
    Path("file").write_text("mine", encoding="utf-8")

    assert_refused(plures("run", experiment, "--out", "file/results"), "Cannot write to file/results", "--out")
    assert_refused(plures("run", experiment, "--out", "file"), "Cannot write to file", "--out")
    assert Path("file").read_text(encoding="utf-8") == "mine"


def test_a_folder_with_something_in_it_is_refused(plures, experiment):
    Path("results").mkdir()
    Path("results/mine.txt").touch()

    assert_refused(plures("run", experiment, "--out", "results"), "The folder results is not empty", "--out")
    assert [path.name for path in Path("results").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--personal", "haed.*"), "The pattern 'haed.*' matches no parameter of Mlp. Near matches: 'head.*'"),
        (("--buffers", "none"), "The buffer policy 'none' is unknown. Use 'shared', 'personal' or 'reset'"),
        (("--set", "batch_norm=true"), "keeps running statistics"),
        (("--set", "hiden=[3]"), "model 'mlp' has no option 'hiden'. Did you mean 'hidden'"),
        (("--set", "hidden=64"), "hidden = 64"),
    ],
)
def test_split_refuses_what_it_cannot_show(plures, args, says):
    assert_refused(plures("split", "mlp", *args), says)


def test_split_of_an_unknown_model_is_refused_with_the_nearest(plures):
    assert_refused(plures("split", "mpl"), "There is no model 'mpl'. Did you mean 'mlp'?")


def test_brackets_in_a_message_are_shown_as_they_are(plures, experiment):
    said = plures("run", experiment, "--set", "method_options.lr=[red]", "--set", "method_options.clip_norm=[bold]")

    assert "[red]" in said.err


def test_a_run_that_diverges_is_one_message_and_its_whole_rounds_are_kept(plures, experiment):
    lr = 'method_options.lr={schedule = "exponential", start = 0.1, factor = 1e10}'

    said = plures("run", experiment, "--set", "rounds=6", "--set", lr, "--out", "results")

    assert (said.code, said.out) == (2, "")
    (message,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert "client " in message
    assert "phase shared). Lower the learning rate" in message
    result = json.loads(Path("results/result.json").read_text(encoding="utf-8"))
    lines = Path("results/rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert result["status"] == "diverged"
    assert f"round {len(lines) + 1}," in message


def test_an_interrupt_ends_with_code_130_and_says_where_the_results_are(plures, experiment, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Evaluator, "evaluate", interrupted)

    said = plures("run", experiment, "--out", "results")

    assert (said.code, said.out) == (130, "")
    assert "Traceback" not in said.err
    assert "interrupted" in said.err
    assert "results" in said.err
    assert json.loads(Path("results/result.json").read_text(encoding="utf-8"))["status"] == "interrupted"


def test_an_interrupt_before_there_are_results_promises_none(plures, experiment, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("plures.recipes.load_experiment", interrupted)

    said = plures("run", experiment, "--out", "results")

    assert (said.code, said.out) == (130, "")
    assert "kept" not in said.err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    ids=["Ctrl-C", "as a cluster ends a job", "as a terminal is closed"],
)
def test_a_real_interrupt_keeps_the_whole_rounds_of_a_real_process(tmp_path, experiment, number):
    folder = tmp_path / "results"
    command = [PLURES, "run", experiment, "--set", "rounds=100000", "--set", "method=pflego", "--out", folder]
    running = subprocess.Popen(
        list(map(str, command)), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        wait_for_rounds(folder / "rounds.jsonl", 6, running)
        os.kill(running.pid, number)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()

    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert result["status"] == "interrupted"
    assert result["rounds_done"] in (len(lines), len(lines) + 1)  # + 1: between the round and its line
    assert (folder / "shared.safetensors").is_file()
    assert (folder / "personal.safetensors").is_file()


def wait_for_rounds(path: Path, count: int, running: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until and running.poll() is None:
        if path.exists() and path.read_text(encoding="utf-8").count("\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} rounds: {running.communicate()}")


def test_a_real_process_ends_with_code_2_and_one_message(tmp_path, experiment):
    done = process("run", experiment, "--set", "method=fedvag", "--out", tmp_path / "results", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: There is no method 'fedvag'.")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()
