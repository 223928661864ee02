"""How each method gives a model to a client that was never trained on."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
import torch

from plures.core.adapting import Newcomer
from plures.core.client import arrival
from plures.core.errors import Diverged, InvalidConfig
from plures.core.wire import NOTHING_SENT, Parcel
from plures.local import adam, epochs, exponential, own_visits, sgd, steps
from plures.local.masks import masks_in
from plures.methods import METHODS, ditto, fedspa, heterofl, pfedhn, pfedme, sub_fedavg
from plures.methods.sub_fedavg import num_prunings
from plures.server.hypernetwork import EMBEDDING, generated
from tests.conformance.table import TABLE
from tests.helpers.methods import (
    BODY,
    HEAD,
    SIZES,
    NormedNetwork,
    Population,
    TinyNetwork,
    assert_near,
    assert_same_bits,
    copy_of,
    equal_bits,
    federation,
    network,
    part_of,
    play,
    same_bits,
)
from tests.oracles import pfedhn as hyper
from tests.oracles.common import batches_of, client_loss, gradient, step
from tests.oracles.fedspa import next_mask
from tests.oracles.sub_fedavg import sub_fedavg as sub_fedavg_oracle

ALL = BODY + HEAD
FIRST, SECOND = 5, 6
"""Two newcomers, of 8 and 6 examples; the run has clients 0 to 4."""
EVERYBODY = federation((*SIZES, 8, 6))
MINI = epochs(2, batch=3)
SMALL = {"hidden": 6, "layers": 1, "lr": 0.3, "server": 0.5, "budget": steps(2), "newcomer_steps": 5}
EAGER = {"prune_share": 0.3, "accuracy_threshold": 0.0, "distance_threshold": 0.0, "lr": 0.3}
PRUNING = EAGER | {"budget": epochs(6, batch=3)}
WHOLE, TWIN, OWN_HEAD = ("body.*", "head.*"), ("twin.*",), ("head.*",)
NORM = ("norm.weight", "norm.bias")
STATISTICS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
NORMED = ("body.weight", "head.*", *NORM)
WEIGHT_MASKS = ("mask.body.weight", "mask.head.weight")

MOVED = {
    "apfl": ({}, TWIN),  # the mixing weight holds still
    "ditto": ({}, TWIN),
    "ditto: ft": ({"variant": "ft"}, WHOLE),
    "fedalt": ({}, OWN_HEAD),
    "fedalt: mean regularised": ({"mean_regularised": 0.1}, TWIN),
    "fedavg": ({}, WHOLE),
    "fedavg: normed": ({"buffers": "shared"}, (*NORMED, *STATISTICS)),
    "fedbabu": ({}, WHOLE),
    "fedbabu: head": ({"finetune_part": "head"}, OWN_HEAD),
    "fedbn: normed": ({}, (*NORM, *STATISTICS)),
    "fedem": ({}, ("mixing",)),
    "fedmask": ({"density": 0.7, "lr": 0.5}, ("score.*", "owned.*", "vote.*", "given.*")),
    "fedper": ({}, OWN_HEAD),
    "fedprox": ({}, WHOLE),
    "fedrecon": ({}, OWN_HEAD),
    "fedrecon: pflego": ({"variant": "pflego"}, OWN_HEAD),
    "fedrep": ({}, OWN_HEAD),
    "fedsim": ({}, OWN_HEAD),
    "fedsim: stateless": ({"stateful": False}, OWN_HEAD),
    "fedspa": ({"density": 0.4}, (*WHOLE, *WEIGHT_MASKS, "mask.head.bias")),  # the other one is found again
    "fedspa: rsm": ({"search": "rsm"}, WHOLE),
    "fedspa: normed": ({"buffers": "personal"}, (*NORMED, *STATISTICS, *WEIGHT_MASKS, "mask.norm.bias")),
    "finetune": ({}, WHOLE),
    "finetune: head": ({"personal": "head"}, OWN_HEAD),
    "heterofl": ({"width": 0.5}, WHOLE),
    "lg_fedavg": ({}, ("body.*",)),
    "local": ({}, WHOLE),
    "per_fedavg": ({}, WHOLE),
    "pfedgate": ({"least": 0.34, "budget": steps(2), "post_norm": False}, ("gate.*",)),
    "pfedhn": (SMALL, (*WHOLE, EMBEDDING)),
    "pfedhn: with a personal head": (SMALL | {"personal": "head"}, (*WHOLE, EMBEDDING)),
    "pfedhn: heavy": (SMALL | {"server": sgd(0.2, momentum=0.5)}, (*WHOLE, "hyper.*")),
    "pfedhn: normed": (SMALL | {"buffers": "shared"}, (*NORMED, EMBEDDING)),  # the statistics are the server's
    "pfedme": ({}, TWIN),
    "pfedme: finetuned": ({"personal_model": "finetuned"}, WHOLE),
    "pflego": ({}, OWN_HEAD),
    "scaffold": ({}, WHOLE),  # neither control
    "sub_fedavg": (PRUNING, (*WHOLE, *WEIGHT_MASKS)),
    "sub_fedavg: normed": (EAGER | {"buffers": "reset"}, (*NORMED, *STATISTICS, *WEIGHT_MASKS)),
    "subsampling": ({}, WHOLE),
    **{name: ({}, entry.newcomer_moves) for name, entry in TABLE.items() if entry.newcomer_moves},
}
"""Of each method with some options, the names that a newcomer's welcome moves: these and no others."""
rows = pytest.mark.parametrize("row", MOVED)


@cache
def ran(row):
    """Two rounds of everybody but the newcomers."""
    name, options = row.partition(":")[0], MOVED[row][0]
    module = network(NormedNetwork if "normed" in row else TinyNetwork)
    return play(METHODS[name].make(**options), 2, module=module)


def coming(run, client=FIRST, population=EVERYBODY):
    return Newcomer(program=run.program, population=population, server=run.server, client=client)


def own_data(run, client=FIRST):
    return EVERYBODY.batches[client], run.server.round


# Every method


def test_all_that_are_registered_have_a_row_here():
    """If this fails: say in the method's conformance row what a newcomer moves (`newcomer_moves`)."""
    own = {name for name, info in METHODS.items() if info.make.__module__.startswith("plures.methods.")}
    assert {row.partition(":")[0] for row in MOVED} == own


@rows
def test_a_newcomer_moves_what_its_method_says_and_nothing_else(row):
    run = ran(row)
    binding, state = run.program.binding(FIRST), run.program.initial_state(FIRST, run.shared)
    before, after = binding.values | run.shared | state, coming(run).welcomed()
    received = arrival(binding, coming(run).visit(state))
    assert after.keys() == received.keys()
    named = {name for name in after if any(fnmatch(name, pattern) for pattern in MOVED[row][1])}
    assert {name for name in after if not equal_bits(after[name], received[name])} == named
    for name in after.keys() - named:
        assert equal_bits(after[name], before[name]), name


@rows
def test_a_welcome_leaves_server_store_and_clients_alone(row):
    run = ran(row)
    server, optimizer = copy_of(run.shared), {part: str(state) for part, state in run.server.optimizer.items()}
    kept = {client: copy_of(run.store.get(client) or {}) for client in range(5)}
    values = copy_of(run.program.binding(0).values)
    data = [copy_of(batch._asdict()) for batch in EVERYBODY.batches]
    coming(run).welcomed()
    assert_same_bits(run.shared, server)
    assert {part: str(state) for part, state in run.server.optimizer.items()} == optimizer
    for client in range(5):
        assert_same_bits(run.store.get(client) or {}, kept[client])
    assert_same_bits(run.program.binding(0).values, values)
    for batch, was in zip(EVERYBODY.batches, data, strict=True):
        assert_same_bits(batch._asdict(), was)
    assert FIRST not in run.store.clients()


@rows
def test_a_newcomers_model_is_the_same_whoever_else_comes(row):
    """The other one's data, and how much of them there is, have no say; its own have."""
    run, data = ran(row), EVERYBODY.batches
    other = Population([*data[:SECOND], federation((11,)).batches[0]])
    model = coming(run).welcomed()
    assert_same_bits(model, coming(run, population=other).welcomed())
    changed = Population([*data[:FIRST], data[FIRST]._replace(inputs=-data[FIRST].inputs), data[SECOND]])
    assert not same_bits(model, coming(run, population=changed).welcomed())
    assert not same_bits(coming(run, SECOND).welcomed(), coming(run, SECOND, other).welcomed())


@rows
def test_the_page_says_what_newcomers_train(row):
    page = Path(__file__).parents[2] / f"docs/methods/{row.partition(':')[0]}.md"
    assert page.read_text(encoding="utf-8").count("**Newcomers**") == 1


# Pulled training


@pytest.mark.parametrize(
    ("method", "strength", "named"),
    [
        (ditto(lam=0.7, lr=0.1, personal_lr=0.3, adapt=steps(6)), 0.7, "twin."),
        (ditto(lam=0.7, centre="trained", lr=0.3, adapt=steps(6)), 0.7, "twin."),
        (ditto(lam=0.7, variant="ft", lr=0.3, adapt=steps(6)), 2 * 0.7, ""),  # without the half
        (pfedme(lam=0.7, inner_lr=0.3, adapt=steps(6)), 0.7, "twin."),
        (pfedme(lam=0.7, inner_lr=0.3, adapt=steps(6), personal_model="finetuned"), 0.7, ""),
    ],
    ids=["ditto", "ditto, trained centre", "ditto ft", "pfedme", "pfedme finetuned"],
)
def test_where_models_are_held_near_the_shared_one_a_newcomer_descends_from_it(method, strength, named):
    """v <- v - 0.3 (grad F(v) + strength (v - w)), six times from v = w, the shared model of the last round."""
    run = play(method, 2)
    v = w = part_of(run.shared, ALL)
    for _ in range(6):
        grads = gradient(client_loss, v, EVERYBODY.batches[FIRST])
        v = {name: v[name] - 0.3 * (grads[name] + strength * (v[name] - w[name])) for name in v}
    model = coming(run).welcomed()
    assert_near({name: model[named + name] for name in ALL}, v)


# Slices


def test_a_newcomer_of_heterofl_trains_the_slice_that_its_capacity_allows():
    """Half of three channels are two: 2 rows of the body, 2 columns of the head, and never anything else."""
    run = play(heterofl(), 2, capacity_of=lambda client: 0.5 if client == FIRST else 1.0)
    narrow, wide = (coming(run, client).welcomed() for client in (FIRST, SECOND))
    body, head = torch.tensor([True, True, False])[:, None], torch.tensor([True, True, False])[None, :]
    assert torch.equal(narrow["body.weight"] != 0, body.expand(3, 4))
    assert torch.equal(narrow["head.weight"] != 0, head.expand(3, 3))
    assert all(wide[name].all() for name in ALL)
    assert not any(torch.equal(narrow[name], run.shared[name]) for name in ALL)


# Masks that are searched for


def sparse(**options):
    return fedspa(**{"density": 0.4, "lr": 0.3, "budget": MINI, "adapt": MINI} | options)


def descent_under(mask, w, client, batches, rate):
    own = {name: mask[name] * w[name] for name in w}
    for rows_of_batch in batches:
        grads = gradient(client_loss, own, client, rows_of_batch)
        own = {name: own[name] - rate * (mask[name] * grads[name]) for name in w}
    return own


@pytest.mark.parametrize("prune_rate", [None, exponential(0.3, 0.5)], ids=["annealed", "given"])
def test_a_newcomer_of_fedspa_searches_once_and_adapts_under_the_new_mask(prune_rate):
    """From its first mask: a visit in its own round 1 and a search, at 0.5 or 0.3; then the shared model again."""
    run = play(sparse(prune_rate=prune_rate), 3)
    client, last = own_data(run)
    w, visit, tune = part_of(run.shared, ALL), *(batches_of(EVERYBODY.batches, MINI)(t, FIRST) for t in (1, last))
    mask = masks_in(run.program.initial_state(FIRST))
    own = descent_under(mask, w, client, visit, 0.3)
    worth = gradient(client_loss, own, client, visit[0])
    mask = {name: next_mask(mask[name], own[name], worth[name], 0.5 if prune_rate is None else 0.3) for name in w}
    model = coming(run).welcomed()
    assert_same_bits(masks_in(model), mask)
    assert_near(part_of(model, ALL), descent_under(mask, w, client, tune, 0.3))


@pytest.mark.parametrize("same_masks", [True, False])
def test_a_newcomer_of_fedspa_has_as_many_weights_as_its_capacity_allows_and_others_than_at_first(same_masks):
    capacity = {FIRST: 0.4, SECOND: 0.7}
    run = play(sparse(same_masks=same_masks), 2, capacity_of=lambda client: capacity.get(client, 0.5))
    for client in capacity:
        first, model = coming(run, client).state(), coming(run, client).welcomed()
        ones = {name: int(mask.sum()) for name, mask in masks_in(model).items()}
        assert ones == {name: int(mask.sum()) for name, mask in masks_in(first).items()} == run.program.sizes(client)
        assert not torch.equal(model["mask.body.weight"], first["mask.body.weight"])
        assert all(not model[name][~mask].any() for name, mask in masks_in(model).items())


def test_with_masks_that_stay_a_newcomer_of_fedspa_only_adapts():
    run, still = (play(sparse(search=search, prune_rate=0.0), 2) for search in ("rsm", "dst"))
    model = coming(run).welcomed()
    assert_same_bits(masks_in(model), masks_in(run.program.initial_state(FIRST)))
    assert_same_bits(model, coming(run).adapted(coming(run).state()))
    assert_same_bits(model, coming(still).welcomed())


# Masks that shrink


def density(model):
    return sum(int(model[name].sum()) for name in WEIGHT_MASKS)


@pytest.mark.parametrize("client", [FIRST, SECOND])
def test_a_newcomer_of_sub_fedavg_prunes_down_to_the_target_and_adapts(client):
    """21 weights: ceil(0.3 * 11) + ceil(0.3 * 8) = 7 go first, then 3, for ceil(0.5 * 21) = 11 are the target.

    The oracle's server stands still, and so is downloaded anew at each of the two visits.
    """
    run = play(sub_fedavg(**PRUNING, adapt=MINI), 2)
    (data, last), w, budget = own_data(run, client), part_of(run.shared, ALL), PRUNING["budget"]
    after = []
    for visits in (1, 2):
        limits = {"lr": 0.3, "share": 0.3, "target": 0.5, "distance": 0.0, "accuracy": -1.0, "server_lr": 0.0}
        batches = batches_of(EVERYBODY.batches, budget)
        after.append(sub_fedavg_oracle(EVERYBODY.batches, w, [(client,)] * visits, batches, **limits)[1][client])
    assert [sum(int(mask[name].sum()) for name in ("body.weight", "head.weight")) for mask in after] == [14, 11]
    model, mask = coming(run, client).welcomed(), after[-1]
    assert all(torch.equal(model[f"mask.{name}"], mask[name] > 0) for name in ALL)
    tune = batches_of(EVERYBODY.batches, MINI)(last, client)
    assert_near(part_of(model, ALL), descent_under(mask, w, data, tune, 0.3))


@pytest.mark.parametrize("target", [1.0, 0.7, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.6])
def test_a_newcomer_of_sub_fedavg_never_has_less_than_the_target(share, target):
    run = play(sub_fedavg(**PRUNING | {"prune_share": share, "target_density": target}), 1)
    left = density(coming(run).welcomed())
    assert left >= 21 * target
    assert (left < 21) == (share > 0 and target < 1)


@pytest.mark.parametrize("condition", [{"accuracy_threshold": 1.1}, {"distance_threshold": 1.0}, {"lr": 0.0}], ids=str)
def test_a_newcomer_of_sub_fedavg_prunes_on_the_conditions_of_all_clients(condition):
    """None is ever more accurate than 1, no masks differ by more than all, and without a step by nothing."""
    run = play(sub_fedavg(**PRUNING | condition), 2)
    model = coming(run).welcomed()
    assert density(model) == 21
    assert_same_bits(model, coming(run).adapted(coming(run).state()))


@pytest.mark.parametrize(
    ("share", "target", "number"),
    [(0.05, 0.5, 14), (0.5, 0.25, 2), (0.1, 0.729, 3), (0.1, 0.72, 4), (0.3, 1.0, 0), (0.0, 0.5, 0), (0.9, 0.5, 1)],
)
def test_so_many_prunings_lead_from_the_dense_model_to_the_target(share, target, number):
    """0.95^13 = 0.513 and 0.95^14 = 0.488; 0.9^3 = 0.729, of which roundings must not make a fourth."""
    assert num_prunings(share, target) == number


def test_a_newcomer_whose_visit_does_not_stay_finite_is_told():
    """And not given masks that were chosen by numbers that are none."""
    run, data = play(sub_fedavg(**PRUNING), 1), EVERYBODY.batches
    endless = Population([*data[:FIRST], data[FIRST]._replace(inputs=data[FIRST].inputs / 0.0)])
    with pytest.raises(Diverged, match="client 5, round 1"):
        coming(run, population=endless).welcomed()


# Embeddings


def made_by_hand(client, phi, e, own, shapes, visits, *, lr, server_lr, momentum=0.0, decay=0.0, clip=float("inf")):
    """A newcomer's embedding and personal layers after so many visits, the hypernetwork phi held still."""
    speed = 0.0 * e
    for round, batches in enumerate(visits, 1):
        theta = hyper.made(phi, e, shapes)
        w = theta | own
        for rows_of_batch in batches:
            w = step(w, gradient(client_loss, w, client, rows_of_batch), lr)
        own = part_of(w, list(own))
        pulled = gradient(hyper.agreement, phi | {"e": e}, shapes, step(theta, w, 1.0))["e"]
        pulled = pulled * min(1.0, clip / (float(pulled.norm()) + 1e-6))
        speed = momentum * speed + pulled + decay * e
        e = e - server_lr(round) * speed
    return e, own


def phi_of(shared):
    return {n.removeprefix("hyper."): value for n, value in shared.items() if n.startswith(("hyper.b", "hyper.heads."))}


@pytest.mark.parametrize("clip", [0.02, None])
@pytest.mark.parametrize("personal", ["all_shared", "head"], ids=["pFedHN", "pFedHN-PC"])
def test_a_newcomer_of_pfedhn_learns_an_embedding_from_its_visits(personal, clip):
    """By the server's rule, from round 1 of its own and with a memory of its own, which starts empty."""
    rule = sgd(exponential(0.5, 0.9), momentum=0.5, weight_decay=0.01)
    run = play(pfedhn(**SMALL | {"personal": personal, "server": rule, "server_clip": clip, "budget": MINI}), 3)
    state, shapes = coming(run).state(), {n: run.shared[n].shape for n in ALL if n in run.shared}
    own = part_of(state, HEAD if personal == "head" else ())
    e, own = made_by_hand(
        EVERYBODY.batches[FIRST],
        phi_of(run.shared),
        state[EMBEDDING],
        own,
        shapes,
        [batches_of(EVERYBODY.batches, MINI)(round, FIRST) for round in range(1, 6)],
        lr=0.3,
        server_lr=lambda round: 0.5 * 0.9 ** (round - 1),
        momentum=0.5,
        decay=0.01,
        clip=clip or float("inf"),
    )
    model = coming(run).welcomed()
    assert_near({EMBEDDING: model[EMBEDDING]}, {EMBEDDING: e})
    assert_near(part_of(model, ALL), hyper.made(phi_of(run.shared), e, shapes) | own)


@pytest.mark.parametrize("count", [0, 1, 30])
def test_a_newcomers_model_is_what_the_hypernetwork_makes_of_its_embedding_and_is_no_further_trained(count):
    run = play(pfedhn(**SMALL | {"newcomer_steps": count}), 4)
    shared, first, model = copy_of(run.shared), coming(run).state()[EMBEDDING], coming(run).welcomed()
    assert_same_bits(part_of(model, ALL), generated(run.shared, model[EMBEDDING]))
    assert torch.equal(model[EMBEDDING], first) == (count == 0)
    assert_same_bits(run.shared, shared)


def test_the_loss_of_a_newcomers_model_falls_with_the_steps_of_its_embedding():
    data, losses = EVERYBODY.batches[FIRST], []
    for count in (0, 10, 50):
        run = play(pfedhn(**SMALL | {"newcomer_steps": count}), 4)
        losses.append(float(client_loss(part_of(coming(run).welcomed(), ALL), data)))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.95 * losses[0]


def test_a_server_rule_that_counts_its_steps_counts_those_of_the_newcomer():
    """The first step of Adam has the length of its rate, as its memory is one gradient; after 15 it would not."""
    run = play(pfedhn(**SMALL | {"server": adam(0.05), "newcomer_steps": 1}), 3)
    moved = coming(run).welcomed()[EMBEDDING] - coming(run).state()[EMBEDDING]
    assert torch.allclose(moved.abs(), torch.full_like(moved, 0.05), rtol=1e-3)


class Halving:
    """A lossy wire: half of every number arrives of what goes up."""

    def carry(self, message, *, upward, draws):
        values, held = message.parcel
        sent = {name: value / 2 if upward else value for name, value in values.items()}
        return message._replace(parcel=Parcel(sent, held)), NOTHING_SENT


def test_an_embedding_learns_from_uploads_as_the_wire_carries_them():
    run = play(pfedhn(**SMALL | {"newcomer_steps": 1}), 0)
    lossy = play(run.program.method, 0, wire=Halving())
    first = coming(run).state()[EMBEDDING]
    moved, less = (coming(one).welcomed()[EMBEDDING] - first for one in (run, lossy))
    assert moved.any()
    assert torch.allclose(less, moved / 2, rtol=1e-12)


def test_a_newcomer_of_pfedhn_that_does_not_stay_finite_is_told():
    run = play(pfedhn(**SMALL), 1)
    method = replace(run.program.method, local=(replace(run.program.method.local[0], optimizer=sgd(1e308)),))
    with pytest.raises(Diverged, match="client 5, round 1"):
        coming(play(method, 0)).welcomed()


@pytest.mark.parametrize("count", [-1, 1.5, True, float("nan")])
def test_numbers_of_visits_and_steps_that_cannot_be_are_refused(count):
    with pytest.raises(InvalidConfig, match="whole number"):
        pfedhn(newcomer_steps=count)
    with pytest.raises(InvalidConfig, match="whole number"):
        own_visits(count)
