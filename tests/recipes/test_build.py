"""From a file to networks and federations: models by name, label spaces, cohorts."""

from __future__ import annotations

import pytest
import torch

from plures import make_experiment
from plures.core.errors import InvalidConfig, InvalidModel
from plures.participation import SAMPLERS
from plures.recipes.build import build
from tests.recipes.helpers import CLASSES, INPUTS, Linear, built, problem_of, ran, table

HERE = "tests.recipes.helpers"
UNEQUAL = {"source": "digits", "partition": "dirichlet", "alpha": 0.1, "clients": 6, "label_space": "local"}
QUICK = {"pflego": {"tau": 2}, "fedper": {"budget": {"steps": 1}}}


def own_model(name: str, **options):
    """The network of an experiment whose [model] is just this."""
    return build(make_experiment({**table(), "model": {"name": name, **options}})).networks.build(None)


def test_the_network_is_told_the_shape_of_the_data_and_the_number_of_classes():
    module = built(model={"hidden": [6, 5]}).networks.build(None)

    shapes = [tuple(value.shape) for value in module.parameters()]
    assert shapes == [(6, INPUTS), (6,), (5, 6), (5,), (CLASSES, 5), (CLASSES,)]


def test_a_model_can_be_a_function_of_the_users_own():
    module = own_model(f"{HERE}:asks_for_both")

    assert isinstance(module, Linear)
    assert (module.head.in_features, module.head.out_features) == (INPUTS, CLASSES)


def test_options_of_the_table_reach_the_users_function():
    assert own_model(f"{HERE}:asks_for_both", scale=3.0).scale == 3.0


def test_a_function_that_asks_for_nothing_is_given_nothing():
    assert isinstance(own_model(f"{HERE}:asks_for_nothing"), Linear)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("mpl", "There is no model 'mpl'. Did you mean 'mlp'"),
        ("no_such_package.nets:make", "Cannot load the model 'no_such_package.nets:make': No module named"),
        (f"{HERE}:no_such_function", "Cannot load the model .*has no attribute 'no_such_function'"),
        (f"{HERE}:no_network", "gave a str, not a torch module"),
    ],
)
def test_a_model_that_cannot_be_had_is_told_by_name(name, match):
    with pytest.raises(InvalidConfig, match=match):
        own_model(name)


@pytest.mark.parametrize("name", [f"{HERE}:NOT_CALLABLE", ":", ":make"])
def test_a_model_that_is_no_function_is_told_by_name(name):
    with pytest.raises(InvalidConfig, match="model"):
        own_model(name)


@pytest.mark.parametrize("hidden", [64, "64", [6.5], ["a"]], ids=str)
def test_hidden_sizes_of_the_wrong_type_are_an_error_that_names_them(hidden):
    error = problem_of(model={"hidden": hidden})

    assert isinstance(error, InvalidConfig | InvalidModel)
    assert "hidden" in str(error)


def test_first_weights_follow_the_seed_and_nothing_else():
    torch.manual_seed(1)
    one = built(seed=4).networks.build(None).state_dict()
    torch.manual_seed(2)
    same = built(seed=4).networks.build(None).state_dict()
    other = built(seed=5).networks.build(None).state_dict()

    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_the_data_follow_their_own_seed_and_not_that_of_the_run():
    fingerprints = [
        built(seed=seed, data={"seed": data_seed}).federation.fingerprint()
        for seed, data_seed in ((0, 0), (1, 0), (0, 1))
    ]

    assert fingerprints[0] == fingerprints[1]
    assert fingerprints[0]["split"] != fingerprints[2]["split"]
    assert fingerprints[0]["data"] == fingerprints[2]["data"]


def test_a_run_may_start_from_the_weights_of_another(tmp_path):
    before = ran("fedper", tmp_path / "before", method_options=QUICK["fedper"])

    module = built(seed=9, model={"weights": str(tmp_path / "before" / "shared.safetensors")}).networks.build(None)

    fresh = built(seed=9).networks.build(None)
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.server.shared.items())
    assert torch.equal(module.head.weight, fresh.head.weight)  # FedPer shares the body, so the file has no head
    assert not torch.equal(module.body[1].weight, fresh.body[1].weight)


def test_weights_that_do_not_fit_are_told_one_by_one(tmp_path):
    ran("fedavg", tmp_path / "before")
    path = str(tmp_path / "before" / "shared.safetensors")

    error = problem_of(model={"weights": path, "hidden": [6]})

    assert isinstance(error, InvalidModel)
    *problems, remedy = error.problems
    assert len(problems) == 3  # weight and bias of the body, weight of the head; its bias fits
    assert all(path in problem for problem in problems)
    assert 'match = "loose"' in remedy
    assert "'body.1.weight' of shape (5, 4), the network one of (6, 4)" in str(error)


@pytest.mark.parametrize("content", [None, b"no tensors"], ids=["missing", "of another kind"])
def test_a_file_that_holds_no_weights_is_told_by_name(content, tmp_path):
    path = tmp_path / "weights.safetensors"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InvalidConfig, match=r"Cannot read the weights in .*weights\.safetensors"):
        built(model={"weights": str(path)})


@pytest.mark.parametrize("method", ["pflego", "fedper"])
def test_personal_heads_have_as_many_outputs_as_their_client_has_classes(method):
    result = ran(method, rounds=1, data=UNEQUAL, method_options=QUICK[method])

    wanted = [result.federation.num_classes(client) for client in range(6)]
    heads = [result.store.get(client)["head.weight"].shape[0] for client in range(6)]
    assert heads == wanted
    assert len(set(wanted)) > 1
    assert all(len(result.federation.client(client).classes) == wanted[client] for client in range(6))


@pytest.mark.parametrize("method", ["fedavg", "finetune"])
def test_a_shared_head_has_as_many_outputs_as_the_client_with_most_classes(method):
    result = ran(method, rounds=1, data=UNEQUAL)

    wanted = [result.federation.num_classes(client) for client in range(6)]
    assert result.server.shared["head.weight"].shape[0] == max(wanted)
    assert min(wanted) < max(wanted)


def test_a_shared_body_under_heads_of_different_sizes_starts_the_same_for_all():
    networks = built("pflego", data=UNEQUAL).networks
    keys = {networks.key(client) for client in range(6)}
    bodies = []
    for key in keys:
        torch.manual_seed(0)
        bodies.append(networks.build(key).body[1].weight)

    assert len(keys) > 1
    assert all(torch.equal(body, bodies[0]) for body in bodies)


def test_in_the_global_label_space_every_head_has_all_classes():
    result = ran("pflego", rounds=1, data=UNEQUAL | {"label_space": "global"}, method_options=QUICK["pflego"])

    assert {result.store.get(client)["head.weight"].shape[0] for client in range(6)} == {10}


@pytest.mark.parametrize("split", [(0.5, 0.25, 0.25), (0.5, 0.0, 0.5)])
def test_shares_of_the_splits_are_as_asked(split):
    federation = built(data={"split": split}).federation

    for client in range(4):
        sizes = [batch.num_examples for batch in federation.client(client).splits.values()]
        assert sizes == pytest.approx([sum(sizes) * share for share in split], abs=1)
        assert (sizes[1] == 0) == (split[1] == 0)


OPTIONS = {
    "all": {},
    "uniform": {"size": 2},
    "binomial": {"rate": 0.5},
    "random_size": {"low": 1, "high": 3},
    "round_robin": {"size": 3},
}


def test_the_table_of_participation_rules_below_has_them_all():
    assert OPTIONS.keys() == SAMPLERS.keys()


@pytest.mark.parametrize("rule", OPTIONS)
def test_every_participation_rule_can_stand_in_a_file(rule):
    result = ran(rounds=6, participation={"rule": rule, **OPTIONS[rule]})

    expected = SAMPLERS[rule](**OPTIONS[rule])
    assert [tuple(line["cohort"]) for line in result.history] == [expected.draw(4, r, 0).clients for r in range(1, 7)]


def test_a_cohort_may_be_a_number_or_a_share_of_the_clients():
    assert [len(line["cohort"]) for line in ran(cohort=3).history] == [3, 3]
    assert [len(line["cohort"]) for line in ran(cohort=0.5).history] == [2, 2]
    assert [len(line["cohort"]) for line in ran(cohort="all").history] == [4, 4]


@pytest.mark.parametrize(
    ("participation", "match"),
    [
        ({"rule": "binomal"}, "There is no participation rule 'binomal'. Did you mean 'binomial'"),
        ({"rule": "binomial"}, "participation 'binomial' needs rate"),
        ({"rule": "binomial", "rate": 2}, "rate of binomial participation must be above 0 and at most 1, not 2"),
        ({"rule": "round_robin", "size": 2.5}, "size of round_robin must be a whole number"),
        ({"rule": "round_robin", "size": 5}, "a cohort of 5 clients cannot be drawn from 4"),
    ],
)
def test_a_participation_that_cannot_be_is_told(participation, match):
    with pytest.raises(InvalidConfig, match=match):
        ran(participation=participation)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ({"source": "digit"}, "There is no data source 'digit'. Did you mean 'digits'"),
        ({"partition": "byclass"}, "There is no partition 'byclass'. Did you mean 'by_class'"),
        ({"split": (0.6, 0.2, 0.3)}, "sums to 1.1"),
        ({"split": (0.8, 0.2, 0.0)}, "leaves nothing to test on"),
        ({"partition": "dirichlet", "alpha": -1}, "alpha is -1"),
    ],
)
def test_data_that_cannot_be_had_are_told(data, match):
    with pytest.raises(InvalidConfig, match=match):
        ran(data=data)
