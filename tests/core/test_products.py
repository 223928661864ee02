"""Products by oneDNN are those of torch's own, for values and gradients; what does not suit is left to torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional as F

from plures.core import products
from plures.core.client import run_client
from plures.core.context import lone_facts, make_visit
from plures.core.loop import start
from plures.core.networks import OneNetwork
from plures.core.products import FasterLinear, add_product, faster_products, linear, product, suits
from plures.core.program import Program
from plures.core.types import Batch
from plures.data import federate
from plures.engines.cached import cached_steps
from plures.local import steps
from plures.methods import fedavg
from plures.stores.memory import MemoryStore

NEAR = 2e-5
"""Of sums of some hundred numbers around 1, in single precision."""

pytestmark = pytest.mark.skipif(
    not (torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")), reason="torch has no oneDNN here"
)


@pytest.fixture(autouse=True)
def faster(monkeypatch):
    """As if on a machine where oneDNN is faster; how often it was called."""
    called = []
    by_rows = products.by_rows
    monkeypatch.setattr(products, "is_faster", lambda: True)
    monkeypatch.setattr(products, "by_rows", lambda *args: called.append(1) or by_rows(*args))
    return called


def drawn(*shape, **options):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), **options)


def assert_close(found, wanted):
    found, wanted = found.detach(), wanted.detach()
    assert found.shape == wanted.shape
    assert torch.allclose(found.double(), wanted, rtol=NEAR, atol=NEAR * float(wanted.abs().max()))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(64,), (4, 16), (2, 3, 11)])
def test_a_linear_layer_and_its_gradients_are_those_in_double_precision(shape, biased, faster):
    values = [drawn(*shape, 256), drawn(300, 256), *([drawn(300)] if biased else [])]
    upstream = drawn(*shape, 300)

    def gradients(layer, dtype):
        given = [value.to(dtype, copy=True).requires_grad_() for value in values]
        output = layer(*given)
        return [output, *torch.autograd.grad(output, given, upstream.to(dtype))]

    for found, wanted in zip(gradients(linear, torch.float32), gradients(F.linear, torch.float64), strict=True):
        assert_close(found, wanted)
    assert len(faster) == 3, "forward, and back to inputs and weights"


def test_what_holds_still_costs_no_product(faster):
    inputs, weight, bias = drawn(64, 256), drawn(300, 256), drawn(300).requires_grad_()

    (grad,) = torch.autograd.grad(linear(inputs, weight, bias).sum(), bias)

    assert torch.equal(grad, torch.full((300,), 64.0))
    assert len(faster) == 1


@pytest.mark.parametrize(
    ("inputs", "weight", "bias"),
    [
        (drawn(256, 64).T, drawn(256, 300).T, None),
        (drawn(64, 512)[:, ::2], drawn(300, 512)[:, :256], drawn(600)[::2]),
        (drawn(128, 256)[::2], drawn(512, 300)[:256].T, drawn(1).expand(300)),
        (drawn(1, 256).expand(64, 256), drawn(1, 256).expand(300, 256), drawn(900)[600:]),
        (drawn(64, 1).expand(64, 256), drawn(300, 1).expand(300, 256), drawn(300)),
    ],
    ids=["turned", "sliced", "every second row", "repeated", "all alike"],
)
def test_any_order_in_memory_will_do(inputs, weight, bias, faster):
    wanted = F.linear(inputs.double(), weight.double(), None if bias is None else bias.double())

    assert_close(linear(inputs, weight, bias), wanted)
    assert len(faster) == 1


def test_what_is_no_number_stays_in_its_row(faster):
    inputs, weight = drawn(64, 256).abs(), drawn(300, 256).abs()
    inputs[0, 0], inputs[1, 1] = math.nan, math.inf

    found = linear(inputs, weight)

    assert found[0].isnan().all()
    assert found[1].isposinf().all()
    assert found[2:].isfinite().all()
    assert len(faster) == 1


def test_gradients_of_gradients_are_torchs_own():
    inputs, weight = drawn(64, 256), drawn(300, 256)

    def curved(layer, dtype):
        point = inputs.to(dtype, copy=True).requires_grad_()
        (slope,) = torch.autograd.grad(layer(point, weight.to(dtype)).tanh().sum(), point, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), point)[0]

    assert_close(curved(linear, torch.float32), curved(F.linear, torch.float64))


class Named(torch.Tensor):
    """A subclass, as trackers and samplers of gradients have them."""


@pytest.mark.parametrize(
    ("inputs", "weight"),
    [
        (drawn(64, 256, dtype=torch.float64), drawn(300, 256, dtype=torch.float64)),
        (drawn(64, 256), drawn(300, 256, dtype=torch.float64)),
        (drawn(4, 4096), drawn(300, 4096)),
        (drawn(64, 20), drawn(30, 20)),
        (drawn(64, 256), drawn(256 * 64)),
        (drawn(64, 256).as_subclass(Named), drawn(300, 256)),
    ],
    ids=["double", "mixed", "few rows", "little work", "a vector", "a subclass"],
)
def test_what_does_not_suit(inputs, weight):
    assert not suits(inputs, weight)


@pytest.mark.parametrize(
    "values",
    [
        (drawn(64, 256), drawn(300, 200)),
        (drawn(64, 256), drawn(300, 256), drawn(299)),
        (drawn(64, 256), drawn(300, 256), drawn(300, dtype=torch.float64)),
        (drawn(64, 256), drawn(300, 256).double()),
    ],
    ids=["width", "bias", "type of the bias", "type of the weight"],
)
def test_what_does_not_fit_together_is_torchs_own_error(values, faster):
    with pytest.raises(RuntimeError) as usual:
        F.linear(*values)
    with pytest.raises(RuntimeError) as found:
        linear(*values)

    assert str(found.value) == str(usual.value)
    assert faster == []


def test_machines_where_blas_is_as_fast_keep_it(monkeypatch):
    monkeypatch.setattr(products, "is_faster", lambda: False)

    assert not suits(drawn(64, 256), drawn(300, 256))
    assert not isinstance(faster_products(nn.Linear(256, 300)), FasterLinear)


def test_functorch_is_left_alone(faster):
    inputs, weight = drawn(5, 64, 256), drawn(300, 256)

    found = vmap(lambda some: linear(some, weight))(inputs)

    assert_close(found, inputs.double() @ weight.double().T)
    assert faster == []


def test_layers_of_any_network_are_faster_while_it_is_on(faster):
    network = nn.Sequential(nn.Linear(256, 300), nn.ReLU(), nn.Linear(300, 10))
    inputs = drawn(64, 256)
    wanted = network.double()(inputs.double()).detach()
    network.float()

    with faster_products(network):
        assert_close(network(inputs), wanted)
    during = len(faster)
    network(inputs)

    assert during == len(faster) == 1, "the second layer has little work"


def test_networks_of_small_matrices_are_not_looked_at():
    assert not isinstance(faster_products(nn.Sequential(nn.Conv2d(1, 64, 3), nn.Linear(64, 10))), FasterLinear)


@pytest.mark.parametrize("width", [300, 3])
def test_products_by_hand(width, faster):
    left, right, into = drawn(64, 256).T, drawn(64, width), drawn(256, width)
    exact = left.double() @ right.double()

    assert_close(product(left, right), exact)
    assert_close(add_product(into.clone(), left, right, alpha=-0.5), into.double() - 0.5 * exact)
    assert_close(add_product(into.clone(), left, right, beta=0.9, alpha=2.0), 0.9 * into.double() + 2.0 * exact)
    assert len(faster) == (3 if width == 300 else 0)


@pytest.mark.parametrize(
    ("stepping", "least"), [(cached_steps, 2), (None, 0)], ids=["an engine's steps", "plain steps"]
)
def test_a_clients_work_is_faster_with_an_engines_steps_alone(stepping, least, faster):
    examples = Batch(drawn(64, 256), torch.arange(64) % 10)
    federation = federate([(examples, examples)], num_classes=10)
    network = nn.Sequential(nn.Linear(256, 300), nn.GELU(), nn.Linear(300, 10))
    program = Program(fedavg(budget=steps(1)), OneNetwork(module=network), loss=F.cross_entropy, seed=0)
    visit = make_visit(program, federation, MemoryStore(), start(program), 0, 1, lone_facts(federation, 0))

    run_client(program.method, program.binding(0), visit, stepping=stepping)

    assert len(faster) == least, "forward and back to the weights of the first layer; the second has little work"
