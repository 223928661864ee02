"""A newcomer gets a model from a finished run, by the way of every method; examples that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import plures
from plures.core.adapting import Newcomer
from plures.core.errors import InvalidConfig, InvalidData
from plures.methods import METHODS
from plures.recipes.newcomer_examples import check_whole
from plures.recipes.newcomer_files import read_given
from tests.recipes.helpers import ran, tiny

INPUTS, TARGETS = tiny().examples


def mine(count: int = 20):
    """Examples of two of the four classes."""
    chosen = torch.nonzero(TARGETS < 2).flatten()[:count]
    return INPUTS[chosen], TARGETS[chosen]


WAYS = {
    "fedem": "its mixing for 10 steps",
    "fedmask": "its scores for 5 epochs",
    "fedspa": "finds its masks in 1 visit of its own",
    "local": "its personal part for 5 epochs",
    "pfedgate": "its gate for 5 epochs",
    "pfedhn": "an embedding in 3 visits",
    "sub_fedavg": "finds its masks in 14 visits of its own",
}
"""What newcomers of methods with a way of their own do; with the others they train personal parts or copies."""


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_a_model_for_a_newcomer_in_its_own_way(kept, tmp_path, method):
    run = kept(method)
    made = plures.adapt(run, *mine(), hold_out=0.25)
    assert (made.train, made.held_out) == (15, 5)
    assert WAYS.get(method, "trains its") in made.way
    assert np.isfinite(made.after.loss)
    newcomer = Newcomer(program=made.picked.program, population=made.clients, server=run.server, client=4)
    view = run.program.method.predict
    seen = view(newcomer.welcomed(), made.clients.client(4).train.inputs)
    exported = made.save(tmp_path / "new.safetensors")
    model = plures.load_client(tmp_path / "new.safetensors")
    values = dict(model.network.named_parameters())
    assert all(torch.equal(value, seen[name]) for name, value in values.items())
    inputs, targets = made.clients.client(4).test
    assert torch.equal(model(inputs), made.model(inputs))
    found = float((model(inputs).argmax(dim=1) == targets).double().mean())
    assert found == made.after.accuracy == exported.value


def test_the_run_stays_as_it_is_and_the_same_newcomer_gets_the_same_model(kept):
    run = kept("fedspa")
    before = {name: value.clone() for name, value in run.server.shared.items()}
    first, second = (plures.adapt(run, *mine()) for _ in range(2))
    assert all(torch.equal(value, before[name]) for name, value in run.server.shared.items())
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
    assert first.before == second.before
    other = plures.adapt(run, *mine(), seed=5)
    assert not torch.equal(other.clients.client(4).test.inputs, first.clients.client(4).test.inputs)


def test_what_the_newcomer_began_with_stands_beside_its_model(kept):
    shared = plures.adapt(kept("finetune"), *mine())
    assert shared.begins == "shared model"
    assert plures.adapt(kept("fedalt"), *mine()).begins == "shared part, own part untrained"
    assert plures.adapt(kept("local"), *mine()).begins == "untrained model"
    inputs, targets = shared.clients.client(4).test
    right = kept("finetune").personal_model(0, "global")(inputs).argmax(dim=1) == targets
    assert shared.before.accuracy == float(right.double().mean())


def test_with_nothing_held_out_all_examples_are_trained_on(kept):
    made = plures.adapt(kept("finetune"), *mine(), hold_out=0)
    assert (made.train, made.held_out, made.before, made.after) == (20, 0, None, None)


def test_a_newcomer_has_a_head_of_its_own_classes(tmp_path):
    run = plures.load_run(ran("fedper", tmp_path / "run", data={"label_space": "local"}).folder)
    made = plures.adapt(run, INPUTS[:30], TARGETS[:30].clamp(max=2))
    assert made.model.labels == ["0", "1", "2"]
    assert made.model(INPUTS[:5]).shape == (5, 3)
    made.save(tmp_path / "new.safetensors")
    assert torch.equal(plures.load_client(tmp_path / "new.safetensors")(INPUTS[:5]), made.model(INPUTS[:5]))


def test_a_capacity_must_be_told_where_clients_differ_in_it():
    run = ran("fedspa", capacity={"density": [0.3, 0.5, 0.6, 0.8]})
    with pytest.raises(InvalidConfig, match=r"capacities from 0.3 to 0.8 \(density\): say what"):
        plures.adapt(run, *mine())
    made = plures.adapt(run, *mine(), capacity=0.4)
    used = sum(int(torch.count_nonzero(value)) for value in made.model.network.parameters())
    assert used <= sum(made.picked.program.sizes(4).values()) < sum(run.program.sizes(3).values())
    with pytest.raises(InvalidConfig, match="above 0 and at most 1"):
        plures.adapt(run, *mine(), capacity=2.0)
    with pytest.raises(InvalidConfig, match="gives every client the whole model"):
        plures.adapt(ran("fedavg"), *mine(), capacity=0.4)


# Files


def test_arrays_of_files_and_from_code_give_the_same_model(kept, tmp_path):
    run, (inputs, targets) = kept("ditto"), mine()
    np.savez(tmp_path / "a.npz", inputs=inputs.numpy(), targets=targets.numpy())
    np.savez(tmp_path / "b.npz", x=inputs.numpy(), y=targets.numpy())
    save_file({"inputs": inputs, "targets": targets}, tmp_path / "a.safetensors")
    pairs = zip(inputs.tolist(), targets.tolist(), strict=True)
    lines = [",".join(map(repr, [*row, label])) for row, label in pairs]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,c,d,class", *lines]))
    wanted = plures.adapt(run, inputs, targets).model.state_dict()
    for name in ("a.npz", "b.npz", "a.safetensors", "a.csv"):
        found = plures.adapt(run, *read_given(tmp_path / name, run.federation)).model.state_dict()
        assert all(torch.equal(value, wanted[key]) for key, value in found.items()), name


def test_bytes_of_images_are_prepared_as_those_of_the_run(images):
    pixels, labels = images.federation.population.load(1).train
    made = plures.adapt(images, pixels.numpy(), labels.numpy())
    assert made.model(pixels).shape == (len(pixels), 4)
    with pytest.raises(InvalidData, match=r"are torch.float32, but those of the run are bytes from 0 to 255"):
        plures.adapt(images, pixels / 255, labels)
    with pytest.raises(InvalidData, match="at most 255"):
        plures.adapt(images, pixels.to(torch.int64) + 200, labels)


def test_a_table_is_read_by_the_names_of_its_columns(rows, tmp_path):
    path = tmp_path / "new.csv"
    lines = [f"{row},{1.6 + row / 50},{('Oslo', 'Paris')[row % 2]},{'' if row == 3 else 30 + row}" for row in range(12)]
    path.write_text("\n".join(["size,height,town,age", *lines]))
    given = read_given(path, rows.federation, target="size")
    assert given.inputs[0].tolist() == [30.0, 1.0, 1.6]  # age, town (Oslo), height
    assert given.inputs[1][1] == -1.0  # Paris is in no training row
    assert np.isnan(given.inputs[3][0])
    made = plures.adapt(rows, *given)
    assert made.after.values["rmse"] >= 0
    assert made.model.labels is None
    with pytest.raises(InvalidConfig, match="has no column 'weight'"):
        read_given(path, rows.federation, target="weight")
    path.write_text("\n".join(["size,height,age", "1,2,3"]))
    with pytest.raises(InvalidData, match="has no column 'town', which the run's data have"):
        read_given(path, rows.federation, target="size")


def test_tokens_are_whole_numbers_of_the_vocabulary(texts):
    inputs, targets = texts.federation.client(0).train
    made = plures.adapt(texts, inputs, targets)
    assert made.model(inputs).shape == (len(inputs), 9, 6)
    with pytest.raises(InvalidData, match="those of the run are numbers of tokens, at most 8"):
        plures.adapt(texts, inputs + 5, targets)
    with pytest.raises(InvalidData, match="The targets go from"):
        plures.adapt(texts, inputs, targets + 5)


@pytest.mark.parametrize(
    ("inputs", "targets", "told"),
    [
        (INPUTS[:, :3], TARGETS, r"shape \(48, 3\), but the run's have \(examples, 4\)"),
        (INPUTS, TARGETS[:9], "48 inputs but 9 targets"),
        (INPUTS, TARGETS + 3, "The targets go from 3 to 6, but the run has classes 0 to 3"),
        (INPUTS, ["0", "lion"] * 24, "The run has no class 'lion'"),
        (INPUTS[:0], TARGETS[:0], "There are no examples"),
        (INPUTS[:1], TARGETS[:1], r"There is one example.*\(hold_out=0, or --hold-out 0\)"),
        ((INPUTS * 9).to(torch.uint8), TARGETS, r"are torch.uint8, but those of the run are torch.float32, from"),
        ([[1.0, 2.0], [1.0]], TARGETS, "different lengths"),
        (INPUTS * torch.inf, TARGETS, "not finite"),
        (np.array([["a", "b", "c", "d"]] * 48), TARGETS, "not numbers"),
        (INPUTS, TARGETS + 0.5, "whole numbers from 0"),
    ],
)
def test_examples_that_do_not_fit_are_refused(kept, inputs, targets, told):
    with pytest.raises(InvalidData, match=told):
        plures.adapt(kept("fedavg"), inputs, targets)


def test_files_that_do_not_fit_are_named(kept, tmp_path):
    federation = kept("fedavg").federation
    contents = {
        "a.npz": (b"abc", r"a.npz: it is no npz file. Save inputs and targets, as numbers, with numpy.savez.$"),
        "a.safetensors": (b"no", "Cannot read"),
        "a.txt": (b"no", "is neither npz, safetensors nor csv"),
        "a.csv": (b"a,b\n1,2\n", "has 1 columns beside 'b', but an input of the run has 4"),
        "b.csv": (b"a,b,c,d,e\n1,2,3,x,0\n", "row 1: column 'd' has 'x' where it should have a number"),
        "c.csv": (b"a,b,c,d,e\n1,2,3,4,\n", "row 1: the target, column 'e', is missing"),
    }
    for name, (content, told) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidData, match=told):
            read_given(tmp_path / name, federation)
    np.savez(tmp_path / "b.npz", x=np.array([1, "two"], object), y=INPUTS.numpy())
    with pytest.raises(InvalidData, match=r"has Python objects in the array 'x'. Save inputs and targets, as numbers"):
        read_given(tmp_path / "b.npz", federation)
    np.savez(tmp_path / "c.npz", x=INPUTS.numpy())
    with pytest.raises(InvalidData, match=r"c.npz has no inputs and targets \(of these it has: x\)"):
        read_given(tmp_path / "c.npz", federation)
    with pytest.raises(InvalidData, match="There is no file"):
        read_given(tmp_path / "gone.npz", federation)
    with pytest.raises(InvalidConfig, match="--target names a column"):
        read_given(tmp_path / "c.npz", federation, target="y")


def test_whole_numbers_in_a_csv_file_are_real_numbers(kept, tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(["a,b,c,d,class", *("1,0,-2,3,1" for _ in range(4))]))
    run = kept("fedavg")
    given = read_given(tmp_path / "a.csv", run.federation)
    assert plures.adapt(run, *given).train == 3


def test_whole_numbers_fit_a_run_whose_own_are_whole():
    held, given = torch.tensor([[1.0, 200.0]]), torch.tensor([[3, 4]])
    check_whole(given, held)
    with pytest.raises(InvalidData, match=r"from 0 to 0.5: give real numbers, scaled as those of the run are"):
        check_whole(given, torch.tensor([[0.0, 0.5]]))


def test_columns_are_told_in_the_order_of_the_file_and_not_all_of_them(kept, tmp_path):
    names = [f"pixel{number}" for number in range(64)]
    (tmp_path / "a.csv").write_text("\n".join([",".join([*names, "digit"]), ",".join(["1"] * 65)]))
    federation = kept("fedavg").federation
    with pytest.raises(InvalidConfig) as told:
        read_given(tmp_path / "a.csv", federation, target="nope")
    assert str(told.value).endswith("It has 65 columns: pixel0, pixel1, pixel2, pixel3, pixel4, ..., digit.")
    with pytest.raises(InvalidConfig, match=r"Did you mean 'digit'\?"):
        read_given(tmp_path / "a.csv", federation, target="digits")


def test_inputs_of_another_scale_are_remarked(kept):
    inputs, targets = mine()
    assert plures.adapt(kept("fedavg"), inputs, targets).notes == ()
    (note,) = plures.adapt(kept("fedavg"), inputs * 255, targets).notes
    assert "are they scaled alike?" in note


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_to_hold_out_is_less_than_all(kept, share):
    with pytest.raises(InvalidConfig, match="hold_out is"):
        plures.adapt(kept("fedavg"), *mine(), hold_out=share)
