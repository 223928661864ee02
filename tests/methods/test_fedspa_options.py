"""FedSpa's options: in experiment files, and those that cannot be."""

from __future__ import annotations

import sys
import tomllib

import pytest
import torch
from torch import nn

from plures.cli import main
from plures.core.errors import InvalidConfig, InvalidModel
from plures.local import adam, cosine, exponential, sgd
from plures.methods import fedspa
from tests.helpers.methods import Product, federation, play
from tests.methods.test_fedspa import sparse

# Experiment files


def ran(monkeypatch, capsys, tmp_path, **options):
    """`plures run` on a file with these options of FedSpa: code, output and errors."""
    lines = [f"{name} = {value}" for name, value in options.items()]
    text = ['method = "fedspa"', "rounds = 2", "cohort = 3", "[data]", "clients = 6", "[method_options]", *lines]
    (tmp_path / "experiment.toml").write_text("\n".join(text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["plures", "run", "experiment.toml", "--out", "run"])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    return stopped.value.code or 0, said.out, said.err


def test_an_experiment_file_with_static_masks_runs(monkeypatch, capsys, tmp_path):
    code, out, err = ran(monkeypatch, capsys, tmp_path, density="0.3", search='"rsm"')
    assert code == 0, err
    assert "personal" in out
    kept = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text(encoding="utf-8"))["method_options"]
    assert (kept["density"], kept["search"], kept["regrow"]) == (0.3, "rsm", "gradient")


def test_an_experiment_file_anneals_any_prune_rate_over_its_rounds(monkeypatch, capsys, tmp_path):
    rate = '{schedule = "cosine", start = 0.3}'
    code, _, err = ran(monkeypatch, capsys, tmp_path, prune_rate=rate, regrow='"random"')
    assert code == 0, err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search": '"dts"'}, ["search = 'dts'", "'dst' or 'rsm'"]),
        ({"regrow": '"gradients"'}, ["regrow = 'gradients'", "'gradient' or 'random'"]),
        ({"densities": '"erdos"'}, ["densities = 'erdos'", "'erk' or 'uniform'"]),
        ({"density": "0.0"}, ["density of fedspa", "above 0"]),
        ({"density": "1.5"}, ["at most 1, not 1.5"]),
        ({"prune_rate": "1.5"}, ["prune_rate", "at most 1, not 1.5"]),
        ({"prune_rate": '{schedule = "cosine", start = 3.0}'}, ["prune_rate in round 1", "at most 1, not 3.0"]),
        ({"densty": "0.5"}, ["fedspa has no option 'densty'", "'density'"]),
    ],
)
def test_a_wrong_word_in_a_file_is_one_clear_error(monkeypatch, capsys, tmp_path, options, words):
    code, out, err = ran(monkeypatch, capsys, tmp_path, **options)
    told = " ".join(err.split())
    assert (code, out) == (2, "")
    assert all(word in told for word in words)
    assert "problems:" not in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


# What is refused


@pytest.mark.parametrize(
    "options",
    [
        *({"density": value} for value in (0, -0.1, 1.1, float("nan"), float("inf"), "half", True)),
        *({"prune_rate": value} for value in (-0.1, 1.1, float("nan"), sgd(0.1), adam(0.1), exponential(1.5, 0.5))),
        *({name: "nonsense"} for name in ("search", "regrow", "densities", "buffers", "lr", "budget", "weight")),
        *({"search": value} for value in (None, 5)),
        *({"clip_norm": value} for value in (0.0, -1.0)),
        *({name: -1.0} for name in ("lr", "server")),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(InvalidConfig):
        fedspa(**options)


def test_a_schedule_of_prune_rates_that_leaves_its_bounds_is_told_with_its_round():
    """0.5 in round 1 and 1.25 in round 2."""
    with pytest.raises(InvalidConfig, match=r"prune_rate in round 2 .* not 1\.25"):
        sparse(3, prune_rate=exponential(0.5, 2.5))
    assert len(sparse(2, prune_rate=cosine(1.0, 2)).reports) == 2


def test_a_density_that_leaves_a_tensor_with_nothing_is_refused_before_round_1():
    """27 weights in 4 tensors: 0.1 of them are 2."""
    with pytest.raises(InvalidConfig, match=r"keep 2 entries in all, and each of 4 tensors needs one"):
        sparse(0, density=0.1)


def test_a_model_with_the_name_of_a_mask_is_told_to_rename_it():
    module = Product()
    module.mask = nn.Module()
    module.mask.u = nn.Parameter(torch.zeros((), dtype=torch.float64))
    with pytest.raises(InvalidModel, match=r"'mask\.u', but 'mask\.' names masks\. Rename"):
        play(fedspa(), 0, population=federation([3]), module=module)
