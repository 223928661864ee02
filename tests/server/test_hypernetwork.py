"""The hypernetwork at the server: what it makes, what it learns from uploads, and whose rows a step moves."""

from __future__ import annotations

from math import sqrt
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.method import Network
from plures.core.seeds import global_draws
from plures.core.types import PERSONAL, SHARED
from plures.local import adam, sgd
from plures.server import fedadam, fedyogi
from plures.server.hypernetwork import (
    EMBEDDINGS,
    HYPER,
    Hypernetwork,
    HyperRound,
    generated,
    mean_model,
    moved,
    numbered,
    own_model,
    pulled_back,
)
from tests.helpers.methods import assert_near, assert_same_bits

CLIENTS = 6
RULES = {
    "sgd": sgd(0.1, momentum=0.9, weight_decay=0.1),
    "adam": adam(0.1),
    "fedadam": fedadam(0.1),
    "yogi": fedyogi(1),
}


def bare_network(**parts):
    """A matrix, a scalar, and a vector that is personal; parts may be changed."""
    params = {"w": torch.zeros(2, 3).double(), "s": torch.zeros(()).double(), "own": torch.zeros(4).double()}
    whose = {"w": SHARED, "s": SHARED, "own": PERSONAL} | parts
    return Network(module=nn.Identity(), params=params, parts=whose, num_clients=CLIENTS)


def extension(seed=1, **sizes):
    with global_draws(seed, "test"):
        return Hypernetwork(**{"hidden": 5, "layers": 2} | sizes)(bare_network())


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


def test_the_parts_are_the_hypernetworks_the_mean_model_and_the_clients_number():
    made = extension()
    assert set(made) == {HYPER, SHARED, "known"}
    layers = ["body.0", "body.1", "body.2", "heads.w", "heads.s"]
    wanted = [EMBEDDINGS] + [f"hyper.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    assert list(made[HYPER]) == wanted
    # int(1 + 6 / 4) = 2 numbers in an embedding; 6 and 1 values in what it makes.
    sizes = [tuple(made[HYPER][name].shape) for name in wanted if name != EMBEDDINGS]
    assert sizes == [(5, 2), (5,), (5, 5), (5,), (5, 5), (5,), (6, 5), (6,), (1, 5), (1,)]
    assert made[HYPER][EMBEDDINGS].shape == (6, 2)
    assert_same_bits(made[SHARED], mean_model(made[SHARED] | made[HYPER]))
    assert_near(mean_model(made[SHARED] | made[HYPER]), generated(shared_part(), made[HYPER][EMBEDDINGS].sum(0) / 6))


def test_first_values_are_drawn_as_torch_draws_those_of_such_layers():
    """Linear layers from U[-b, b], b = 1 / sqrt(inputs), whose deviation is b / sqrt(3); embeddings from N(0, 1)."""
    large = extension(hidden=400, embedding=400)[HYPER]
    for name, inputs in {"body.0": 400, "body.2": 400, "heads.w": 400}.items():
        weight, limit = large[f"hyper.{name}.weight"], 1 / sqrt(inputs)
        assert 0.99 * limit < weight.abs().max() <= limit
        assert float(weight.std()) == pytest.approx(limit / sqrt(3), rel=0.03)
        assert large[f"hyper.{name}.bias"].abs().max() <= limit
    # 2400 draws: the deviation of their mean is 0.02, that of their deviation 0.014.
    assert abs(float(large[EMBEDDINGS].mean())) < 0.08
    assert float(large[EMBEDDINGS].std()) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("client", [0, 1, 5, 2**20 + 3, 2**32 - 1])
def test_a_clients_number_is_kept_in_binary_digits(client):
    state = {"hyper.number": torch.zeros(32, dtype=torch.bool), "own": torch.ones(2)}
    started = numbered(SimpleNamespace(client=client, state=state))
    assert "".join(str(int(bit)) for bit in reversed(started["hyper.number"].tolist())) == f"{client:032b}"
    assert started["own"] is state["own"]
    assert not state["hyper.number"].any()


def test_a_client_gets_the_model_of_its_embedding_and_running_statistics_and_nothing_else():
    shared = shared_part() | {"norm.running_mean": torch.arange(3.0).double()}
    for client in range(CLIENTS):
        known = numbered(SimpleNamespace(client=client, state={"hyper.number": torch.zeros(32, dtype=torch.bool)}))
        parcel = own_model(shared, known)
        assert parcel.held is None
        expected = generated(shared, shared[EMBEDDINGS][client])
        assert_same_bits(parcel.values, expected | {"norm.running_mean": shared["norm.running_mean"]})


# What it learns


def test_an_upload_is_carried_back_by_the_transposed_jacobian():
    """Against the whole Jacobian, row by row; nobody else's embedding is in it."""
    shared, client = shared_part(), 4
    upload = random_upload(shared)
    grads = pulled_back(shared, client, upload)
    assert set(grads) == set(extension()[HYPER])
    for name in grads:
        point = shared[EMBEDDINGS][client] if name == EMBEDDINGS else shared[name]

        def flat_model(value, name=name):
            embedding = value if name == EMBEDDINGS else shared[EMBEDDINGS][client]
            model = generated(shared | {name: value}, embedding)
            return torch.cat([model["w"].flatten(), model["s"].flatten()])

        jacobian = torch.autograd.functional.jacobian(flat_model, point).flatten(1)
        flat_upload = torch.cat([upload["w"].flatten(), upload["s"].flatten()])
        assert_near({name: grads[name].flatten()}, {name: jacobian.T @ flat_upload})
        assert grads[name].shape == point.shape


@pytest.mark.parametrize("name", RULES)
def test_a_step_is_the_optimisers_own_on_the_rows_of_some_clients_and_none_on_others(name):
    """Two steps, so that there is a momentum; the rule by itself on a table of these two rows is the same."""
    rule, clients = RULES[name], (4, 1)
    hyper = extension()[HYPER]
    draws = torch.Generator().manual_seed(5)
    small = hyper | {EMBEDDINGS: hyper[EMBEDDINGS][[4, 1]]}
    state, small_state = rule.init(hyper), rule.init(small)
    before, first = hyper[EMBEDDINGS].clone(), rule.init(hyper)
    for _ in range(2):
        grads = {n: torch.randn(value.shape, generator=draws, dtype=torch.float64) for n, value in small.items()}
        hyper, state = moved(hyper, state, grads, clients, rule, 0.1)
        small, small_state = rule.update(grads, small_state, small, 0.1)
    assert_same_bits({**hyper, EMBEDDINGS: hyper[EMBEDDINGS][[4, 1]]}, small)
    others = [0, 2, 3, 5]
    assert torch.equal(hyper[EMBEDDINGS][others], before[others])
    assert state.keys() == small_state.keys() == first.keys()
    for group in [group for group in state if EMBEDDINGS in state[group]]:
        assert torch.equal(state[group][EMBEDDINGS][[4, 1]], small_state[group][EMBEDDINGS])
        assert torch.equal(state[group][EMBEDDINGS][others], first[group][EMBEDDINGS][others])


def test_a_step_writes_into_nothing_it_was_given():
    hyper = extension()[HYPER]
    rule = RULES["sgd"]
    state = rule.init(hyper)
    copies = {n: value.clone() for n, value in hyper.items()}, {n: v.clone() for n, v in state["momentum"].items()}
    grads = {n: torch.ones_like(value[[2]] if n == EMBEDDINGS else value) for n, value in hyper.items()}
    stepped, new = moved(hyper, state, grads, (2,), rule, 0.1)
    assert_same_bits(hyper, copies[0])
    assert_same_bits(state["momentum"], copies[1])
    assert all(not torch.equal(stepped[n], hyper[n]) for n in hyper)
    assert new["momentum"][EMBEDDINGS][2].any()


# What is refused


def test_what_cannot_be_made_is_refused():
    with pytest.raises(InvalidModel, match="nothing to make"):
        Hypernetwork()(bare_network(w=PERSONAL, s="frozen"))
    with pytest.raises(InvalidModel, match=r"the model has 'hyper\.x'"):
        Hypernetwork()(bare_network(**{"hyper.x": SHARED}))
    unknown = Network(module=nn.Identity(), params=bare_network().params, parts=bare_network().parts)
    with pytest.raises(InvalidConfig, match="number of clients"):
        Hypernetwork()(unknown)


@pytest.mark.parametrize("sizes", [{"hidden": 0}, {"layers": -1}, {"layers": 1.0}, {"embedding": 0}], ids=str)
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(InvalidConfig, match=f"{next(iter(sizes))} of the hypernetwork must be a whole number"):
        Hypernetwork(**sizes)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(InvalidConfig, match="largest norm of the server's gradient must be"):
        HyperRound(clip_norm=limit)
