"""What an exported model takes: raw bytes, rows and tokens, or prepared inputs; nothing else passes for them."""

from __future__ import annotations

import pytest
import torch

import plures
from plures.core.errors import InvalidData
from plures.data.datasets import Scaled
from plures.data.tables import Features
from plures.recipes.preparations import columns_of, described, rebuilt
from tests.recipes.test_exporting import outputs_of


def raw_and_prepared(run, client=1):
    return run.federation.population.load(client).test.inputs, run.federation.client(client).test.inputs


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of torch, as it loads programs
@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        *((name, ".safetensors") for name in ("images", "rows", "texts")),
        ("images", ".onnx"),
        ("rows", ".pt2"),
        *(
            pytest.param(name, suffix, marks=pytest.mark.slow)
            for name, suffix in (("images", ".pt2"), ("rows", ".onnx"), ("texts", ".pt2"), ("texts", ".onnx"))
        ),
    ],
)
def test_raw_inputs_are_prepared_by_the_model_itself(request, tmp_path, name, suffix):
    run = request.getfixturevalue(name)
    made = plures.export_client(run, 1, tmp_path / f"a{suffix}")
    raw, prepared = raw_and_prepared(run)
    wanted = run.personal_model(1)(prepared)
    found = outputs_of(tmp_path / f"a{suffix}", raw)
    assert torch.equal(found, wanted) if suffix == ".safetensors" else torch.allclose(found, wanted, atol=1e-5)
    assert made.value == pytest.approx(made.recorded, rel=1e-5)


@pytest.mark.parametrize(("name", "shape"), [("images", (1, 4, 4)), ("rows", (6,))])
def test_prepared_inputs_are_taken_if_so_asked_and_raw_ones_refused(request, tmp_path, name, shape):
    run = request.getfixturevalue(name)
    plures.export_client(run, 1, tmp_path / "a.safetensors", prepared=True)
    model = plures.load_client(tmp_path / "a.safetensors")
    raw, prepared = raw_and_prepared(run)
    assert tuple(model.facts["inputs"]["shape"]) == tuple(prepared.shape[1:]) == shape
    assert torch.equal(model(prepared), run.personal_model(1)(prepared))
    with pytest.raises(InvalidData, match="prepared inputs, float32"):
        model(raw)


@pytest.mark.parametrize(("name", "told"), [("images", "raw pixels, uint8"), ("rows", "raw rows, float64")])
def test_prepared_inputs_never_pass_for_raw_ones(request, tmp_path, name, told):
    run = request.getfixturevalue(name)
    plures.export_client(run, 1, tmp_path / "a.safetensors")
    _, prepared = raw_and_prepared(run)
    with pytest.raises(InvalidData, match=f"The inputs are torch.float32, but.*{told}"):
        plures.load_client(tmp_path / "a.safetensors")(prepared)


def test_arrays_of_numpy_are_taken_as_tensors_are(images, tmp_path):
    plures.export_client(images, 1, tmp_path / "a.safetensors")
    model = plures.load_client(tmp_path / "a.safetensors")
    raw, _ = raw_and_prepared(images)
    array = raw.numpy().copy()
    array.flags.writeable = False
    assert torch.equal(model(array), model(raw))
    with pytest.raises(InvalidData, match=r"The inputs are torch.float64, but.*raw pixels, uint8"):
        model(array / 255)
    with pytest.raises(InvalidData, match="The inputs are of type object, not numbers"):
        model(None)


def test_labels_of_texts_are_words(texts, tmp_path):
    plures.export_client(texts, 0, tmp_path / "a.safetensors")
    model = plures.load_client(tmp_path / "a.safetensors")
    assert model.labels[:5] == ["<pad>", "<bos>", "<eos>", "<oov>", "a"]
    assert model(torch.full((2, 6), 4)).shape == (2, 9, 6)
    with pytest.raises(InvalidData, match=r"takes torch.int64"):
        model(torch.zeros(2, 6))


def test_the_columns_of_raw_rows_are_told(rows):
    (numbers, words) = columns_of(rows.federation.prepare)[0], columns_of(rows.federation.prepare)[1]
    assert numbers == {"name": "age"}
    assert words == {"name": "town", "words": {"Bern": 0, "Oslo": 1, "Rome": 2}}


def test_a_preparation_survives_being_written(rows):
    for prepare in (rows.federation.prepare, Scaled(mean=(0.5, 0.4), std=(0.1, 0.2))):
        assert isinstance(prepare, Features | Scaled)
        assert rebuilt(described(prepare)) == prepare
    assert rebuilt(None) is None


def test_a_preparation_of_ones_own_stays_outside_of_the_model(tmp_path):
    data = {"source": "tests.recipes.other_data:own_preparation", "clients": 4}
    run = plures.run_experiment(plures.make_experiment({"method": "fedavg", "rounds": 1, "data": data}))
    made = plures.export_client(run, 1, tmp_path / "a.safetensors")
    assert made.inputs == "prepared inputs, float32 of shape 4"
    model = plures.load_client(tmp_path / "a.safetensors")
    assert model.facts["preparation"] == {"kind": "own", "name": "halved"}
    _, prepared = raw_and_prepared(run)
    assert torch.equal(model(prepared), run.personal_model(1)(prepared))
