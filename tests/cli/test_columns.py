"""Every table of every command fits a terminal of 80 columns, and colour is for terminals only."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import numpy as np
import pytest

from plures import make_experiment, run_experiment, run_study
from plures.cli.app import Commands
from plures.data import digits_federation
from tests.cli.helpers import PLURES, environment

COPIED = re.compile(r"(Results|Try next|Dendrogram):|plures run |\.toml|/experiment")
"""Lines with a path or a command to copy may be as long as they are."""
COLOUR = re.compile(r"\x1b\[(?:\d+;)*3\d(?:;\d+)*m")
TABLE = {"rounds": 1, "data": {"clients": 6}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An experiment with every metric and model, a study of it, and a run with gates."""
    place = tmp_path_factory.mktemp("columns")
    (place / "experiment.toml").write_text(
        'method = "fedalt"\nrounds = 2\n[data]\nclients = 8\nnewcomers = 2\n[evaluation]\nevery = 1\nmodels = "all"\n'
        'metrics = ["macro_f1", "auc", "balanced_accuracy", "calibration_error"]\ntargets = [0.1, 0.2]\n',
        encoding="utf-8",
    )
    run_study(
        make_experiment({"method": "fedalt", **TABLE}), out=place / "study", seeds=1, beside=["sub_fedavg", "fedavg"]
    )
    gated = {"method": "pfedgate", "method_options": {"lr": 0.5, "gate_lr": 1.5}, **TABLE}
    run_experiment(make_experiment(gated), out=place / "gated")
    (place / "tune.toml").write_text(
        'method = "fedavg"\nrounds = 1\n[data]\nclients = 5\n[tune]\ntrials = 2\n'
        'search = {"method_options.lr" = [0.1, 0.2]}\n',
        encoding="utf-8",
    )
    client = digits_federation(num_clients=6).client(0).train
    np.savez(place / "newcomer.npz", inputs=client.inputs.numpy(), targets=client.targets.numpy())
    return place


CALLS = {
    "run": ("run", "{place}/experiment.toml", "--out", "new"),
    "run, a study": pytest.param(
        ("run", "{place}/experiment.toml", "--seeds", "2", "--beside", "local", "--out", "new"), marks=pytest.mark.slow
    ),
    "adapt": ("adapt", "{place}/study/fedalt/seed-0", "--data", "{place}/newcomer.npz", "--out", "own.safetensors"),
    "advise": pytest.param(
        ("advise", "{place}/experiment.toml", "--rounds", "1", "--pretrain", "1", "--out", "new"),
        marks=pytest.mark.slow,
    ),
    "clients": ("clients", "{place}/study", "--label", "sub_fedavg", "--against", "fedavg"),
    "compare": ("compare", "{place}/study", "--deltas"),
    "resume": ("resume", "{place}/study"),
    "resume, a run": ("resume", "{place}/gated"),
    "cost": ("cost", "{place}/experiment.toml"),
    "cost, all methods": ("cost", "{place}/experiment.toml", "--complexity"),
    "data list": ("data", "list"),
    "data info": ("data", "info", "digits"),
    "data show": ("data", "show", "{place}/experiment.toml"),
    "doctor": ("doctor", "{place}/gated"),
    "doctor, a study": ("doctor", "{place}/study"),
    "export": ("export", "{place}/gated", "--client", "0", "--out", "own.safetensors"),
    "gates": ("gates", "{place}/gated"),
    "methods": ("methods",),
    "paper list": ("paper", "list"),
    "paper": ("paper", "pflego", "--pages", "--out", "new"),
    "runs": ("runs", "{place}"),
    "split": ("split", "resnet18_gn", "--personal", "first_block"),
    "tune": pytest.param(("tune", "{place}/tune.toml", "--out", "new"), marks=pytest.mark.slow),
    "watch": ("watch", "{place}/gated"),
    "watch, a study": ("watch", "{place}/study"),
    "demo": pytest.param(("demo", "--rounds", "1", "--out", "new"), marks=pytest.mark.slow),
}


@pytest.mark.parametrize("args", CALLS.values(), ids=CALLS)
def test_what_a_command_prints_fits_80_columns_without_escape_codes(plures, place, args):
    said = plures(*(word.format(place=place) for word in args))

    assert said.code == 0, said.err
    assert len(said.out.splitlines()) > 1
    too_long = [line for line in (said.out + said.err).splitlines() if len(line.rstrip()) > 80]
    assert [line for line in too_long if not COPIED.search(line)] == []
    assert "\x1b" not in said.out + said.err
    assert "…" not in said.out


def test_every_command_that_prints_a_table_is_called_here():
    called = {name.split(",")[0].split(" ")[0] for name in CALLS}

    # `deploy evaluate` has the table of `run`, and needs nodes.
    assert Commands.table.keys() - called == {"new-method", "report", "deploy"}


@pytest.mark.parametrize("name", Commands.table)
def test_the_help_of_every_command_fits_80_columns(plures, name):
    said = plures(name, "--help")

    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= 80
    assert "\x1b" not in said.out


def on_a_terminal(*args, cwd, **variables: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [PLURES, *args], cwd=cwd, env=environment(TERM="xterm-256color", **variables), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
    assert done.wait(timeout=60) == 0
    return shown.decode("utf-8")


def test_a_terminal_gets_colour(place):
    assert COLOUR.search(on_a_terminal("runs", place, cwd=place))


def test_no_color_is_respected_on_a_terminal(place):
    shown = on_a_terminal("runs", place, cwd=place, NO_COLOR="1")

    assert "finished" in shown
    assert not COLOUR.search(shown)
