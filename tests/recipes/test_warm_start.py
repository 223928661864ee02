"""Weights to start from: by name, in order, and what is told of them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.models import resnet8_gn
from plures.recipes.warm_start import load_weights, start_from
from plures.report import records
from tests.recipes.helpers import ran


class NormBlock(nn.Module):
    """A convolution with batch norm, as in the usual ResNets: other names, and running statistics."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        if inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )


class BatchNormResNet(nn.Module):
    """ResNet-8 with batch norm and a head of 1,000 classes: in the order in which torchvision registers such layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        for number, sizes in enumerate(widths, 1):
            self.add_module(f"layer{number}", nn.Sequential(NormBlock(*sizes)))
        self.fc = nn.Linear(64, 1000)


def small(outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, outputs))


def test_a_network_started_from_its_own_weights_is_the_same_network():
    source, target = small(), small()
    _, matching = start_from(target, source.state_dict(), "file")
    assert all(torch.equal(target.state_dict()[name], value) for name, value in source.state_dict().items())
    assert (matching.fresh, matching.unused) == ([], [])
    assert str(matching) == "4 tensors taken (0 under another name)"


def test_what_the_file_lacks_keeps_its_own_first_values():
    target = small()
    before = target[2].weight.detach().clone()
    _, matching = start_from(target, {"0.weight": torch.ones(5, 4)}, "file")
    assert torch.equal(target[0].weight, torch.ones(5, 4))
    assert torch.equal(target[2].weight, before)
    assert matching.fresh == ["0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (
            {"0.weight": torch.ones(5, 4), "1.weight": torch.ones(2)},
            "'1.weight' of shape (2,), which the network has not",
        ),
        ({"2.weight": torch.ones(7, 5)}, "'2.weight' of shape (7, 5), the network one of (3, 5)"),
    ],
)
def test_an_exact_match_refuses_every_misfit_and_says_how_to_take_what_fits(weights, says):
    target = small()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(InvalidModel) as found:
        start_from(target, weights, "file")
    assert says in str(found.value)
    assert 'match = "loose"' in str(found.value)
    assert all(torch.equal(target.state_dict()[name], value) for name, value in before.items())


def test_a_batch_norm_resnet_goes_into_the_group_norm_one_tensor_by_tensor_with_a_fresh_head():
    """Both have 20 convolutions, scales and shifts before the head, 3 for each of conv and norm, in one order."""
    source, target = BatchNormResNet(), resnet8_gn(classes=10, shape=(1, 28, 28))
    head = target.head.weight.detach().clone()
    _, matching = start_from(target, source.state_dict(), "resnet.pth", "loose")
    learned = [name for name, _ in source.named_parameters() if not name.startswith("fc")]
    assert list(matching.taken.values()) == learned
    assert matching.fresh == ["head.weight", "head.bias"]
    assert torch.equal(target.head.weight, head)
    for name, origin in matching.taken.items():
        assert torch.equal(target.state_dict()[name], source.state_dict()[origin])
    assert "fc.weight" in matching.unused
    assert any(name.endswith("running_mean") for name in matching.unused)
    assert "under another name" in str(matching)


def test_a_run_tells_in_its_records_what_it_started_from(tmp_path):
    save_file({"body.1.weight": torch.ones(5, 4), "old.bias": torch.ones(3)}, tmp_path / "w.safetensors")
    model = {"weights": str(tmp_path / "w.safetensors"), "match": "loose"}
    ran("fedavg", tmp_path / "run", model=model)
    found = records.read_result(tmp_path / "run")["started_from"]
    assert found["taken"] == {"body.1.weight": "body.1.weight"}
    assert found["unused"] == ["old.bias"]
    assert "head.weight" in found["fresh"]
    assert "1 tensors taken" in found["report"]


def test_a_file_of_which_nothing_fits_is_refused():
    with pytest.raises(InvalidModel, match="No tensor of file fits the network"):
        start_from(small(), {"x": torch.ones(9)}, "file", "loose")


def test_weights_are_read_from_safetensors_and_from_state_dicts_bare_or_in_a_checkpoint(tmp_path):
    state = {name: value.clone() for name, value in small().state_dict().items()}
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "c.pt")
    for name in ("a.safetensors", "b.pth", "c.pt"):
        found = load_weights(tmp_path / name)
        assert found.keys() == state.keys()
        assert all(torch.equal(found[key], state[key]) for key in state)


class Harmful:
    def __reduce__(self):
        return (print, ("this must never run",))


@pytest.mark.parametrize("content", [Harmful(), {"epoch": 3}, [1, 2]])
def test_a_file_that_is_no_state_dict_is_one_error_and_runs_no_code(content, tmp_path, capsys):
    torch.save(content, tmp_path / "bad.pth")
    with pytest.raises(InvalidConfig, match=r"bad\.pth"):
        load_weights(tmp_path / "bad.pth")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["none.safetensors", "none.pth", "cut.safetensors", "cut.pth"])
def test_a_file_that_is_absent_or_cut_is_one_error(name, tmp_path):
    (tmp_path / "cut.safetensors").write_bytes(b"\x08\x00\x00")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04")
    with pytest.raises(InvalidConfig, match="Cannot read the weights"):
        load_weights(tmp_path / name)
