"""What every network by name keeps to, and the page that lists them."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plures.models
from plures.core.task import Task
from plures.models import MODELS, cnn_p, lenet5, resnet8_gn
from plures.parts import head
from plures.recipes.plain import plain_defaults
from tests.models.helpers import count, gradients_one_by_one_and_at_once, made, pictures, tokens

PAGE = Path(__file__).parents[2] / "docs/models.md"
SMALL = {
    "logistic": {"shape": (5,), "classes": 3},
    "mlp": {"shape": (5,), "classes": 3},
    "cnn_p": {"shape": (2, 6, 5), "classes": 3, "filters": (4, 3), "fc": (6,)},
    "cnn_o": {"shape": (2, 16, 17), "classes": 3, "filters": 4},
    "leaf_cnn": {"shape": (2, 16, 17), "classes": 3, "filters": (4, 3), "fc": (6,)},
    "lenet32": {"shape": (2, 16, 17), "classes": 3, "filters": (4, 3), "fc": (6, 5)},
    "lenet5": {"shape": (2, 16, 17), "classes": 3, "filters": (4, 3), "fc": (6,)},
    "vgg11_gn": {"shape": (2, 32, 32), "classes": 3},
    "resnet8_gn": {"shape": (2, 8, 8), "classes": 3, "widths": (8, 16, 16)},
    "resnet18_gn": {"shape": (2, 8, 8), "classes": 3, "widths": (8, 16), "groups": "by_width", "stem": "large"},
    "cnn_1d": {"shape": (2, 20), "classes": 3, "filters": (4, 3), "fc": (6,)},
    "char_lstm": {"shape": (6,), "classes": 5, "hidden": 4},
    "char_transformer": {"shape": (6,), "classes": 5, "width": 8, "hidden": 6},
    "transformer": {"shape": (6,), "classes": 5, "width": 8, "hidden": 6},
}
"""Every network, small."""

every_name = pytest.mark.parametrize("name", MODELS)


def small(name, seed=0):
    return made(MODELS[name], seed, **SMALL[name])


def examples(name, batch=4):
    """Inputs and targets that a network of that name takes."""
    shape, classes = SMALL[name]["shape"], SMALL[name]["classes"]
    if "char" in name or name == "transformer":
        return tokens(batch, *shape, classes=classes), tokens(batch, *shape, classes=classes, seed=1)
    return pictures(batch, *shape), tokens(batch, classes=classes)


def test_every_network_has_its_small_twin_here():
    assert set(SMALL) == set(MODELS)


@every_name
def test_it_is_found_by_its_own_name_and_exported(name):
    assert MODELS[name].__name__ == name
    assert getattr(plures.models, name) is MODELS[name]
    assert name in plures.models.__all__


@every_name
def test_it_takes_keywords_alone_which_have_defaults_and_say_shape_and_classes(name):
    parameters = inspect.signature(MODELS[name]).parameters
    assert {"shape", "classes"} <= set(parameters)
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters.values())
    # Every default can stand in a file, or is left out: that of `channels` is the shape's own.
    assert plain_defaults(MODELS[name]).keys() == parameters.keys() - {"channels"}


@every_name
def test_the_head_is_its_last_layer_and_ends_in_the_classes(name):
    model = small(name)
    assert head()(model) == {name for name, _ in model.named_parameters() if name.startswith("head.")}
    assert list(model.named_children())[-1][0] == "head"
    assert model.head.bias.shape == (SMALL[name]["classes"],)


@every_name
def test_only_the_head_depends_on_the_number_of_classes_unless_tokens_are_both(name):
    one, other = small(name), made(MODELS[name], **SMALL[name] | {"classes": 4})
    pairs = zip(one.named_parameters(), other.named_parameters(), strict=True)
    differing = {name for (name, a), (_, b) in pairs if a.shape != b.shape}
    assert differing - {"embedding.weight"} == head()(one)


@every_name
def test_its_values_follow_the_global_seed(name):
    first, same, other = small(name).state_dict(), small(name).state_dict(), small(name, seed=1).state_dict()
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@every_name
def test_it_has_no_buffers_and_does_not_mind_a_single_example(name):
    model, (inputs, _) = small(name), examples(name)
    assert not list(model.buffers())
    torch.testing.assert_close(model(inputs[:1]), model(inputs)[:1], rtol=1e-4, atol=1e-5)


@every_name
def test_it_is_a_pure_function_of_its_parameters_in_training_and_evaluation(name):
    model, other, (inputs, targets) = small(name), small(name, seed=1), examples(name)
    kept = inputs.clone()
    task = Task(model, F.cross_entropy, torch.device("cpu"))
    params = {key: value.detach() for key, value in other.named_parameters()}
    for training in (True, False):
        task.train(training)
        torch.testing.assert_close(task.output(params, inputs), other(inputs))
    assert torch.equal(inputs, kept)
    assert F.cross_entropy(other(inputs), targets).isfinite()


@every_name
def test_every_parameter_has_a_gradient(name):
    model, (inputs, targets) = small(name), examples(name)
    F.cross_entropy(model(inputs), targets).backward()
    assert [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


# An LSTM in single precision has no rule for vmap on a CPU: torch warns and computes one by one.
VECTORISED = [name for name in MODELS if name != "char_lstm"]


@pytest.mark.parametrize("name", VECTORISED)
def test_gradients_at_two_sets_of_parameters_are_those_of_each(name):
    makers = [lambda seed=seed: small(name, seed).double() for seed in (0, 1)]
    inputs, targets = examples(name)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    alone, at_once = gradients_one_by_one_and_at_once(makers, inputs, targets)
    for one, other in zip(alone, at_once, strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.equal(alone[0]["head.bias"], alone[1]["head.bias"])


@pytest.mark.parametrize(
    ("make", "shape"),
    [(lenet5, (1, 28, 28)), (resnet8_gn, (1, 28, 28)), (lambda: cnn_p(filters=(8, 8), fc=(16,)), (3, 32, 32))],
    ids=["lenet5", "resnet8_gn", "cnn_p"],
)
def test_the_sizes_of_the_papers_are_vectorised_in_single_precision_too(make, shape):
    makers = [lambda seed=seed: made(make, seed) for seed in (0, 1)]
    alone, at_once = gradients_one_by_one_and_at_once(makers, pictures(3, *shape), tokens(3, classes=10))
    for one, other in zip(alone, at_once, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@every_name
def test_no_layer_depends_on_other_examples_or_works_in_place(name):
    for layer in MODELS[name]().modules():
        assert not isinstance(layer, nn.modules.batchnorm._BatchNorm)
        assert not getattr(layer, "inplace", False)


# The page


def rows(text, heading):
    """The cells of the rows below a heading that begin with a name or a call."""
    below = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def told(name):
    """The input and the keywords of a network as the page should write them."""
    parameters = inspect.signature(MODELS[name]).parameters
    keywords = [f"`{key}={p.default!r}`".replace("'", '"') for key, p in parameters.items() if key != "shape"]
    return f"`{parameters['shape'].default}`", ", ".join(keywords)


def test_the_page_lists_every_network_with_its_defaults_and_size():
    table = rows(PAGE.read_text(encoding="utf-8"), "Networks by name")
    assert [row[0].strip("`") for row in table] == list(MODELS)
    for name, _, shape, parameters, keywords in table:
        plain = name.strip("`")
        assert (plain, shape, keywords) == (plain, *told(plain))
        assert parameters == f"{count(MODELS[plain]()):,}"


def test_the_forms_of_the_papers_on_the_page_have_the_sizes_it_says():
    table = rows(PAGE.read_text(encoding="utf-8"), "Forms of the papers")
    assert len(table) >= 10
    for call, _, total, body, last in table:
        model = called(call.strip("`"))
        sizes = [count(model), count(model) - count(model.head), count(model.head)]
        assert [f"{size:,}" for size in sizes] == [total, body, last], call


def called(text):
    """The result of a call of a network with literals for arguments."""
    found = ast.parse(text, mode="eval").body
    assert re.fullmatch(r"\w+", found.func.id)
    return MODELS[found.func.id](**{word.arg: ast.literal_eval(word.value) for word in found.keywords})


@pytest.mark.parametrize(
    "name", ["cnn_p", "cnn_o", "leaf_cnn", "lenet32", "lenet5", "vgg11_gn", "resnet8_gn", "resnet18_gn"]
)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_number_of_channels_may_be_given_alone(name, channels):
    model = MODELS[name](channels=channels, classes=4)
    first = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    assert first.in_channels == channels
