"""A client's model in a file predicts as it did in the run: every method, every format."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open

import plures
from plures.core.errors import InvalidConfig, InvalidData, InvalidModel, RunFolderError
from plures.data import digits_federation
from plures.methods import METHODS, fedalt, fedem
from plures.models import mlp
from plures.recipes.formats import FORMATS, SUFFIXES
from tests.cli.helpers import environment
from tests.recipes.helpers import INPUTS, ran

REFUSED = {("pfedgate", "torch"), ("pfedgate", "onnx")}
"""What cannot be exported; docs/exporting.md has the same table."""
QUICK = {"safetensors": tuple(METHODS), "torch": ("apfl", "fedbn", "fedem", "pfedgate"), "onnx": ("fedem", "pfedgate")}
"""Of each kind of network one; programs take a second to make, so the others are slow tests."""


def cases():
    for method in METHODS:
        for format in FORMATS:
            marks = [] if method in QUICK[format] else [pytest.mark.slow]
            yield pytest.param(method, format, marks=marks, id=f"{method}-{format}")


def outputs_of(path, inputs):
    """What a file says to inputs, read without Plures where that is possible."""
    if path.suffix == ".safetensors":
        return plures.load_client(path)(inputs)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(inputs)
    session = onnxruntime.InferenceSession(path)
    return torch.from_numpy(session.run(None, {"inputs": inputs.numpy()})[0])


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of torch, as it loads programs
@pytest.mark.parametrize(("method", "format"), list(cases()))
def test_every_method_in_every_format_predicts_as_in_the_run(kept, tmp_path, method, format):
    run, path = kept(method), tmp_path / f"model{SUFFIXES[format]}"
    if (method, format) in REFUSED:
        with pytest.raises(InvalidModel, match=f"no {format} program has. Use the format safetensors"):
            plures.export_client(run, 1, path)
        assert not path.exists()
        return
    made = plures.export_client(run, 1, path)
    inputs, targets = run.federation.client(1).test
    wanted, found = run.personal_model(1)(inputs), outputs_of(path, inputs)
    assert torch.equal(found, wanted) if format == "safetensors" else torch.allclose(found, wanted, atol=1e-5)
    assert torch.allclose(outputs_of(path, inputs[:1]), wanted[:1], atol=1e-5) or method == "pfedgate"
    (score,) = [score for score in run.scores() if score.client == 1]
    assert float((found.argmax(dim=1) == targets).double().mean()) == pytest.approx(score.accuracy, abs=1e-6)
    assert made.value == pytest.approx(made.recorded, abs=1e-6)
    if format == "onnx":
        check_onnx(path)
    assert b"site-packages" not in path.read_bytes()  # no file of the machine that made it


def check_onnx(path):
    """It says what it is, and takes any number of examples."""
    model = onnx.load(path)
    onnx.checker.check_model(model)
    facts = {entry.key: json.loads(entry.value) for entry in model.metadata_props if entry.key.startswith("plures.")}
    assert facts["plures.client"] == {"number": 1, "name": "1"}
    first = model.graph.input[0]
    assert first.name == "inputs"
    assert [dim.dim_param or dim.dim_value for dim in first.type.tensor_type.shape.dim] == ["batch", INPUTS]


WITHOUT_PLURES = """
import sys, json, torch
sys.modules["plures"] = None
extra = {"plures.json": ""}
model = torch.export.load(sys.argv[1], extra_files=extra).module()
inputs = torch.tensor(json.loads(sys.argv[2]), dtype=torch.float32)
print(json.dumps([model(inputs).tolist(), json.loads(extra["plures.json"])["client"]["name"]]))
try:
    import plures
except ImportError:
    print("no plures")
"""


def test_a_torch_program_runs_where_plures_is_not_installed(kept, tmp_path):
    run, path = kept("fedem"), tmp_path / "model.pt2"
    plures.export_client(run, 2, path)
    inputs = run.federation.client(2).test.inputs
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_PLURES, str(path), json.dumps(inputs.tolist())]
    done = subprocess.run(command, env=environment(), capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told, absent = done.stdout.splitlines()
    found, name = json.loads(told)
    assert torch.allclose(torch.tensor(found), run.personal_model(2)(inputs), atol=1e-5)
    assert (name, absent) == ("2", "no plures")


def test_a_plain_reader_finds_the_tensors_by_the_names_of_the_network(kept, tmp_path):
    run = kept("ditto")
    plures.export_client(run, 0, tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert set(file.keys()) == set(run.personal_model(0).state_dict())
        facts = {name: json.loads(text) for name, text in file.metadata().items()}
    assert facts["method"]["name"] == "ditto"
    assert facts["client"] == {"number": 0, "name": "0"}
    assert facts["model"] == {"kind": "personal", "chosen": None}
    assert facts["run"]["fingerprint"] == run.fingerprint
    assert facts["network"]["hidden"] == [5]
    assert facts["inputs"] == {"takes": "raw", "shape": [INPUTS], "dtype": "float32"}
    assert facts["labels"] == ["0", "1", "2", "3"]


# Which model


def test_another_kind_of_model_can_be_asked_for(kept, tmp_path):
    run = kept("finetune")
    inputs = run.federation.client(1).test.inputs
    found = {}
    for kind in ("personal", "global", "finetuned"):
        made = plures.export_client(run, 1, tmp_path / f"{kind}.safetensors", model=kind)
        assert made.model == kind
        found[kind] = plures.load_client(tmp_path / f"{kind}.safetensors")(inputs)
        assert torch.equal(found[kind], run.personal_model(1, kind)(inputs))
    assert torch.equal(found["personal"], found["global"])
    assert not torch.equal(found["personal"], found["finetuned"])
    with pytest.raises(InvalidConfig, match="has no global model"):
        plures.export_client(kept("fedalt"), 1, tmp_path / "x.safetensors", model="global")


def test_a_guarded_client_gets_what_it_chose_also_of_another_network(tmp_path):
    ran("fedavg", tmp_path / "other", model={"hidden": [3]})
    guard = {"against": str(tmp_path / "other"), "margin": 0.5}
    run = plures.load_run(ran("fedalt", tmp_path / "run", rounds=3, evaluation={"guard": guard}).folder)
    assert set(run.choices.values()) == {"personal", "shared"}
    for client, chosen in run.choices.items():
        path = tmp_path / f"{client}.safetensors"
        made = plures.export_client(run, client, path)
        assert (made.model, made.chosen) == ("guarded", chosen)
        assert made.value == pytest.approx(made.recorded, abs=1e-6)
        network = plures.load_client(path).network
        assert network.head.in_features == (5 if chosen == "personal" else 3)


def test_heads_of_own_classes_are_exported_with_their_labels(tmp_path):
    run = ran("fedper", tmp_path / "run", data={"label_space": "local"})
    path = tmp_path / "a.safetensors"
    made = plures.export_client(plures.load_run(run.folder), 1, path)
    model = plures.load_client(path)
    inputs, targets = run.federation.client(1).test
    assert model.labels == [str(label) for label in run.federation.client(1).classes]
    assert model(inputs).shape == (len(inputs), 2)
    assert float((model(inputs).argmax(dim=1) == targets).double().mean()) == made.value


@pytest.mark.parametrize("policy", ["shared", "personal", "reset"])
def test_running_statistics_are_the_clients_own_whatever_the_policy(tmp_path, policy):
    run = ran("fedavg", model={"batch_norm": True}, split={"buffers": policy})
    inputs = run.federation.client(1).test.inputs
    for client in range(4):
        plures.export_client(run, client, tmp_path / f"{client}.safetensors")
        model = plures.load_client(tmp_path / f"{client}.safetensors")
        assert torch.equal(model(inputs), run.personal_model(client)(inputs))


def test_adapters_and_a_network_of_ones_own_are_built_again(tmp_path):
    adapters = {"kind": "lora", "rank": 2, "on": "body.1"}
    own = {"name": "tests.recipes.helpers:asks_for_both", "scale": 2.0}
    lora = ran("fedalt", model={"adapters": adapters}, split={"personal": "*.adapter.*"})
    code = plures.run_experiment(
        plures.make_experiment({"method": "ditto", "rounds": 1, "data": {"source": "tiny", "clients": 4}, "model": own})
    )
    for run in (lora, code):
        path = tmp_path / f"{run.title}.safetensors"
        plures.export_client(run, 1, path)
        inputs = run.federation.client(1).test.inputs
        assert torch.equal(plures.load_client(path)(inputs), run.personal_model(1)(inputs))


def test_a_run_from_code_is_loaded_with_its_network_from_code(tmp_path):
    federation = digits_federation(num_clients=5, classes_per_client=2)
    inputs = federation.client(1).test.inputs
    for method in (fedalt(), fedem(components=2)):
        run, path = plures.run(method, federation, mlp, rounds=1), tmp_path / f"{method.local[0].name}.safetensors"
        plures.export_client(run, 1, path)
        with pytest.raises(InvalidConfig, match="run from code: give its network"):
            plures.load_client(path)
        if method.wrap is not None:
            with pytest.raises(InvalidConfig, match="run from code: give its method too"):
                plures.load_client(path, model=mlp)
        found = plures.load_client(path, model=mlp, method=method)
        assert torch.equal(found(inputs), run.personal_model(1)(inputs))
        with pytest.raises(InvalidModel, match="do not fit the network"):
            plures.load_client(path, model=lambda: mlp(hidden=(3,)), method=method)


# What is refused


def test_a_file_that_is_there_is_not_overwritten_unless_asked(kept, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_text("mine")
    with pytest.raises(InvalidConfig, match=r"a.safetensors exists already.*--force"):
        plures.export_client(kept("fedavg"), 0, path)
    assert path.read_text() == "mine"
    plures.export_client(kept("fedavg"), 0, path, overwrite=True)
    assert plures.load_client(path).facts["client"]["number"] == 0
    with pytest.raises(InvalidConfig, match="There is no folder"):
        plures.export_client(kept("fedavg"), 0, tmp_path / "nowhere" / "a.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(RunFolderError, match="Cannot write"):
        plures.export_client(kept("fedavg"), 0, tmp_path / "folder.safetensors", overwrite=True)
    assert not list(tmp_path.glob(".*"))


def test_a_format_and_a_name_that_disagree_are_told(kept, tmp_path):
    with pytest.raises(InvalidConfig, match="is called as onnx, but the format is torch"):
        plures.export_client(kept("fedavg"), 0, tmp_path / "a.onnx", format="torch")
    with pytest.raises(InvalidConfig, match="There is no format 'pickle'"):
        plures.export_client(kept("fedavg"), 0, tmp_path / "a", format="pickle")


def test_without_onnx_there_is_one_clear_error(kept, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InvalidConfig, match=r'needs the package onnxscript: pip install "plures\[onnx\]"'):
        plures.export_client(kept("fedavg"), 0, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


class Branching(torch.nn.Module):
    """Takes another way for other inputs, which no program can follow."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 10)

    def forward(self, inputs):
        return self.head(inputs.flatten(1) * (2.0 if inputs.sum() > 3 else 1.0))


def test_a_network_that_cannot_be_followed_is_refused_with_the_reason(tmp_path):
    run = plures.run("fedavg", digits_federation(num_clients=5, classes_per_client=2), Branching, rounds=1)
    with pytest.raises(InvalidModel, match=r"Branching cannot be written as torch: .*Use the format safetensors"):
        plures.export_client(run, 0, tmp_path / "a.pt2")
    plures.export_client(run, 0, tmp_path / "a.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.safetensors", b"nothing", "Cannot read .* as safetensors"),
        ("a.onnx", b"nothing", "Read it by onnxruntime"),
        ("gone.safetensors", None, "There is no file"),
    ],
)
def test_what_is_no_model_of_a_client_is_told(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RunFolderError, match=told):
        plures.load_client(tmp_path / name)


def test_inputs_of_another_type_or_shape_are_refused(kept, tmp_path):
    plures.export_client(kept("fedavg"), 0, tmp_path / "a.safetensors")
    model = plures.load_client(tmp_path / "a.safetensors")
    with pytest.raises(InvalidData, match=r"The inputs have shape \(2, 5\), but this model takes \(examples, 4\)"):
        model(torch.zeros(2, 5))
    with pytest.raises(InvalidData, match=r"The inputs are torch.int64, but this model takes torch.float32"):
        model(torch.zeros(2, 4, dtype=torch.int64))
    assert torch.equal(model(torch.ones(2, 4, dtype=torch.float64)), model(torch.ones(2, 4)))
    assert np.isfinite(model(torch.ones(2, 4)).numpy()).all()
