"""The hypernetwork at the server: what it makes, what is kept of an embedding, and what uploads say."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.networks import Network
from plures.core.seeds import generator, global_draws
from plures.core.types import PERSONAL, SHARED
from plures.core.visit import Beginning
from plures.local import adam, sgd
from plures.server import fedadam
from plures.server.hypernetwork import EMBEDDING, HYPER, MEAN, Hypernetwork, generated, own_model, pulled_back
from tests.helpers.methods import assert_near, assert_same_bits, copy_of

CLIENTS = 6
PLAIN = sgd(0.1)


def bare_network(**parts):
    """A matrix, a scalar, and a vector that is personal; parts may be changed."""
    params = {"w": torch.zeros(2, 3).double(), "s": torch.zeros(()).double(), "own": torch.zeros(4).double()}
    whose = {"w": SHARED, "s": SHARED, "own": PERSONAL} | parts
    return Network(module=nn.Identity(), params=params, parts=whose, num_clients=CLIENTS)


def extension(seed=1, **options):
    with global_draws(seed, "test"):
        return Hypernetwork(**{"rule": PLAIN, "hidden": 5, "layers": 2} | options)(bare_network())


def shared_part(**sizes):
    made = extension(**sizes)
    return made[SHARED] | made[HYPER]


def random_upload(shared):
    draws = torch.Generator().manual_seed(3)
    return {name: torch.randn(shared[name].shape, generator=draws, dtype=torch.float64) for name in ("w", "s")}


# What it makes


def test_a_model_is_what_torchs_own_layers_make_of_the_embedding():
    shared, embedding = shared_part(), torch.tensor([0.3, -1.2]).double()
    body = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5)).double()
    layers = [f"hyper.body.{number}" for number in (0, 1, 2)]
    for layer, name in zip(body[::2], layers, strict=True):
        layer.load_state_dict({kind: shared[f"{name}.{kind}"] for kind in ("weight", "bias")})
    features = body(embedding).detach()
    assert (features < 0).any()  # so that a ReLU after the last layer would show
    expected = {
        name: shared[f"hyper.heads.{name}.weight"] @ features + shared[f"hyper.heads.{name}.bias"] for name in "ws"
    }
    assert_near(generated(shared, embedding), {"w": expected["w"].reshape(2, 3), "s": expected["s"].reshape(())})


def test_without_hidden_layers_a_model_is_linear_in_its_embedding():
    shared = shared_part(layers=0)
    one, other = torch.tensor([1.0, 0.5]).double(), torch.tensor([-2.0, 4.0]).double()
    between = generated(shared, (one + other) / 2)
    assert_near(between, {name: (generated(shared, one)[name] + generated(shared, other)[name]) / 2 for name in "ws"})
    bent = shared_part(layers=1)
    assert not torch.allclose(
        generated(bent, (one + other) / 2)["w"], (generated(bent, one)["w"] + generated(bent, other)["w"]) / 2
    )


def test_the_parts_are_the_hypernetworks_the_mean_the_model_made_of_it_and_a_clients_own():
    made = extension()
    assert set(made) == {HYPER, "shared.hyper.mean", SHARED, "known"}
    layers = ["body.0", "body.1", "body.2", "heads.w", "heads.s"]
    assert list(made[HYPER]) == [f"hyper.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    # int(1 + 6 / 4) = 2 numbers in an embedding; 6 and 1 values in what it makes.
    sizes = [tuple(value.shape) for value in made[HYPER].values()]
    assert sizes == [(5, 2), (5,), (5, 5), (5,), (5, 5), (5,), (6, 5), (6,), (1, 5), (1,)]
    nothing = torch.zeros(2).double()
    assert_same_bits(made["shared.hyper.mean"], {MEAN: nothing})
    assert_same_bits(made[SHARED], generated(shared_part(), nothing))
    assert_same_bits(made["known"], {EMBEDDING: nothing})


def test_first_values_are_drawn_as_torch_draws_those_of_such_layers():
    """Linear layers from U[-b, b], b = 1 / sqrt(inputs), whose deviation is b / sqrt(3)."""
    large = extension(hidden=400, embedding=400)[HYPER]
    for name, inputs in {"body.0": 400, "body.2": 400, "heads.w": 400}.items():
        weight, limit = large[f"hyper.{name}.weight"], 1 / sqrt(inputs)
        assert 0.99 * limit < weight.abs().max() <= limit
        assert float(weight.std()) == pytest.approx(limit / sqrt(3), rel=0.03)
        assert large[f"hyper.{name}.bias"].abs().max() <= limit


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_clients_embedding_is_drawn_when_it_begins_from_its_own_generator(precision):
    """In double precision whatever the network's; of 16 numbers and more torch draws others in single precision."""
    hyper = Hypernetwork(rule=fedadam(0.1, initial_second=0.25))
    common = {"own": torch.ones(2), **hyper.kept(torch.zeros(40, dtype=precision))}
    copies = copy_of(common)
    begun = hyper.begin(beginning_of(40_000, common))
    drawn = torch.randn(40, generator=generator(7, "start", 40_000), dtype=torch.float64).to(precision)
    assert_same_bits(begun, common | {EMBEDDING: drawn})
    assert_same_bits(common, copies)
    assert (begun[f"{EMBEDDING}.second"] == 0.25).all()


def beginning_of(client, state):
    return Beginning(state=state, received={}, network=bare_network(), capacity=1.0, seed=7, client=client)


class Remembering:
    """An optimiser that remembers where it began."""

    def init(self, params):
        return {"first": dict(params)}


def test_what_the_optimiser_remembers_begins_with_the_embedding_that_was_drawn():
    hyper = Hypernetwork(rule=Remembering())
    begun = hyper.begin(beginning_of(3, hyper.kept(torch.zeros(4))))
    assert begun[EMBEDDING].any()
    assert torch.equal(begun[f"{EMBEDDING}.first"], begun[EMBEDDING])


@pytest.mark.parametrize(
    ("rule", "groups"),
    [(sgd(0.1), []), (sgd(0.1, momentum=0.5), ["momentum"]), (adam(0.1), ["first", "second"])],
    ids=["plain", "momentum", "adam"],
)
def test_beside_an_embedding_is_what_the_optimiser_remembers_of_it_and_no_count_of_steps(rule, groups):
    kept = Hypernetwork(rule=rule).kept(torch.ones(4))
    assert set(kept) == {EMBEDDING, *(f"{EMBEDDING}.{group}" for group in groups)}
    assert {value.shape for value in kept.values()} == {(4,)}


def test_a_client_gets_the_model_of_its_embedding_and_running_statistics_and_nothing_else():
    running = {"norm.running_mean": torch.arange(3.0).double()}
    shared, embedding = shared_part() | running | {MEAN: torch.ones(2).double()}, torch.tensor([0.3, -1.2]).double()
    parcel = own_model(shared, {EMBEDDING: embedding, f"{EMBEDDING}.momentum": torch.ones(2).double()})
    assert parcel.held is None
    assert_same_bits(parcel.values, generated(shared, embedding) | running)


# What it learns


def test_an_upload_is_carried_back_by_the_transposed_jacobian():
    """Against the whole Jacobian, row by row; the mean of embeddings has no part in it."""
    shared, embedding = shared_part() | {MEAN: torch.ones(2).double()}, torch.tensor([0.3, -1.2]).double()
    upload = random_upload(shared)
    grads = pulled_back(shared, embedding, upload)
    assert set(grads) == {*extension()[HYPER], EMBEDDING}
    for name in grads:
        point = embedding if name == EMBEDDING else shared[name]

        def flat_model(value, name=name):
            model = generated(shared | {name: value}, value if name == EMBEDDING else embedding)
            return torch.cat([model["w"].flatten(), model["s"].flatten()])

        jacobian = torch.autograd.functional.jacobian(flat_model, point).flatten(1)
        flat_upload = torch.cat([upload["w"].flatten(), upload["s"].flatten()])
        assert_near({name: grads[name].flatten()}, {name: jacobian.T @ flat_upload})
        assert grads[name].shape == point.shape
    assert not embedding.requires_grad


# What is refused


def test_what_cannot_be_made_is_refused():
    with pytest.raises(InvalidModel, match="nothing to make"):
        Hypernetwork(rule=PLAIN)(bare_network(w=PERSONAL, s="frozen"))
    with pytest.raises(InvalidModel, match=r"the model has 'hyper\.x'"):
        Hypernetwork(rule=PLAIN)(bare_network(**{"hyper.x": SHARED}))
    unknown = Network(module=nn.Identity(), params=bare_network().params, parts=bare_network().parts)
    with pytest.raises(InvalidConfig, match="number of clients"):
        Hypernetwork(rule=PLAIN)(unknown)
    assert Hypernetwork(rule=PLAIN, embedding=3)(unknown)["known"][EMBEDDING].shape == (3,)


@pytest.mark.parametrize("sizes", [{"hidden": 0}, {"layers": -1}, {"layers": 1.0}, {"embedding": 0}], ids=str)
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(InvalidConfig, match=f"{next(iter(sizes))} of the hypernetwork must be a whole number"):
        Hypernetwork(rule=PLAIN, **sizes)
