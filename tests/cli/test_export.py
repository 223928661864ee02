"""The commands that give models out: export and adapt."""

from __future__ import annotations

import json

import numpy as np
import pytest

from plures import load_client, make_experiment, run_experiment
from plures.data import digits_federation
from tests.cli.helpers import widest


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Five clients of two digits each."""
    folder = tmp_path_factory.mktemp("export") / "run"
    table = {"method": "fedrep", "rounds": 2, "data": {"clients": 5}, "model": {"hidden": [8]}}
    return run_experiment(make_experiment(table), out=folder)


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """Two digits of somebody else."""
    path = tmp_path_factory.mktemp("mine") / "mine.npz"
    client = digits_federation(num_clients=5, classes_per_client=2, seed=3).client(0)
    np.savez(path, inputs=client.train.inputs.numpy(), targets=client.train.targets.numpy())
    return path


def test_export_writes_a_model_here_and_tells_of_it(plures, run, tmp_path):
    said = plures("export", run.folder, "--client", "1")
    assert (said.code, said.err) == (0, "")
    assert "Client 1: personal model, safetensors" in said.out
    recorded = next(score.accuracy for score in run.scores() if score.client == 1)
    assert f"accuracy {recorded:.1%} (recorded: {recorded:.1%})" in " ".join(said.out.split())
    assert said.out.endswith("Wrote client-1.safetensors\n")
    assert widest(said.out) <= 80
    inputs = run.federation.client(1).test.inputs
    assert load_client(tmp_path / "here" / "client-1.safetensors")(inputs).shape == (len(inputs), 10)


def test_export_never_overwrites_unless_forced(plures, run):
    first = plures("export", run.folder, "--client", "0", "--json")
    told = json.loads(first.out)
    assert (told["path"], told["model"], told["client"]) == ("client-0.safetensors", "personal", 0)
    assert told["value"] == pytest.approx(told["recorded"], abs=1e-6)
    again = plures("export", run.folder, "--client", "0")
    assert again.code == 2
    assert "client-0.safetensors exists already" in again.err
    assert plures("export", run.folder, "--client", "0", "--force").code == 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--client", "9"], "There is no client '9'. Known: 0, 1, 2, 3, 4."),
        (["--client", "0", "--model", "guarded"], "not asked by a guard"),
        (["--client", "0", "--model", "global"], "has no global model"),
        (["--client", "0", "--format", "torch", "--out", "a.onnx"], "is called as onnx"),
        (["--client", "0", "--out", "none/a.onnx"], "There is no folder none"),
    ],
)
def test_what_cannot_be_exported_is_one_error(plures, run, args, told, tmp_path):
    said = plures("export", run.folder, *args)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert not list((tmp_path / "here").iterdir())


def test_a_folder_that_is_no_run_is_one_error(plures, tmp_path):
    said = plures("export", tmp_path, "--client", "0")
    assert (said.code, said.out) == (2, "")
    assert "has no result.json: it is no run" in said.err


def test_adapt_shows_both_models_and_writes_the_newcomers(plures, run, mine, tmp_path):
    said = plures("adapt", run.folder, "--data", mine)
    assert (said.code, said.err) == (0, "")
    assert "it trains its personal part for 10 epochs in batches of 32" in " ".join(said.out.split())
    assert "shared part, own part untrained" in said.out
    assert "its own model" in said.out
    assert said.out.endswith("Wrote newcomer.safetensors\n")
    assert widest(said.out) <= 80
    assert load_client(tmp_path / "here" / "newcomer.safetensors").facts["client"]["name"] == "newcomer"
    again = plures("adapt", run.folder, "--data", mine)
    assert again.code == 2
    assert "newcomer.safetensors exists already" in again.err


def test_adapt_tells_programs_what_it_did(plures, run, mine):
    said = plures("adapt", run.folder, "--data", mine, "--hold-out", "0.5", "--out", "me.safetensors", "--json")
    told = json.loads(said.out)
    assert told["train"] == pytest.approx(told["held_out"], abs=1)
    assert told["after"]["accuracy"] > told["before"]["accuracy"]
    assert told["file"]["path"] == "me.safetensors"
    whole = plures("adapt", run.folder, "--data", mine, "--hold-out", "0")
    assert "No examples were kept out" in whole.out


def test_one_example_is_no_plural(plures, run, mine, tmp_path):
    arrays = np.load(mine)
    np.savez(tmp_path / "two.npz", inputs=arrays["inputs"][:2], targets=arrays["targets"][:2])
    said = plures("adapt", run.folder, "--data", tmp_path / "two.npz")
    assert "The newcomer has 1 example to train on" in said.out
    assert "on 1 example kept out" in said.out


def test_adapt_refuses_bytes_where_the_run_has_real_numbers(plures, run, mine, tmp_path):
    arrays = np.load(mine)
    np.savez(tmp_path / "u8.npz", inputs=(arrays["inputs"] * 255).astype(np.uint8), targets=arrays["targets"])
    said = plures("adapt", run.folder, "--data", tmp_path / "u8.npz")
    assert (said.code, said.out) == (2, "")
    assert "are torch.uint8, but those of the run are torch.float32, from 0 to 1" in " ".join(said.err.split())
    assert not list((tmp_path / "here").iterdir())


def test_adapt_refuses_what_does_not_fit_before_it_writes(plures, run, tmp_path):
    np.savez(tmp_path / "bad.npz", inputs=np.zeros((4, 3)), targets=np.zeros(4, dtype=int))
    said = plures("adapt", run.folder, "--data", tmp_path / "bad.npz")
    assert (said.code, said.out) == (2, "")
    assert "The inputs have shape (4, 3), but the run's have (examples, 1, 8, 8)" in said.err
    assert not list((tmp_path / "here").iterdir())
