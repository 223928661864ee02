"""Options of methods as they stand in a file: rates, schedules, optimisers, budgets, weights, selections."""

from __future__ import annotations

import pytest
import torch

from plures.core.errors import InvalidConfig
from plures.core.types import Facts
from plures.local.optimizers import Adam, Sgd
from plures.models import mlp
from plures.server.optimizers import FedAdagrad, FedAdam, FedYogi
from tests.recipes.helpers import built, problem_of

FACTS = Facts(examples=20, cohort_examples=50, all_examples=200, cohort_clients=2, all_clients=8, inclusion=0.25)


def first_rule(method: str = "fedavg", rounds: int = 2, **options):
    return built(method, rounds=rounds, method_options=options).method.local[0].optimizer


def first_budget(**budget):
    return built(method_options={"budget": budget}).method.local[0].budget


@pytest.mark.parametrize("rate", [0.25, 1, 0])
def test_a_number_is_a_rate_of_plain_sgd(rate):
    rule = first_rule(lr=rate)

    assert isinstance(rule, Sgd)
    assert (rule.momentum, rule.weight_decay) == (0.0, 0.0)
    assert [rule.lr(round) for round in (1, 2, 99)] == [rate] * 3


def test_a_schedule_ends_with_the_run():
    rule = first_rule(rounds=10, lr={"schedule": "linear", "start": 0.9, "warmup": 0.0})

    # from 0.9 in round 1 to 0 in round 10, by a tenth each round
    assert [rule.lr(round) for round in (1, 4, 10)] == pytest.approx([0.9, 0.6, 0.0])


def test_a_schedule_ends_where_it_says():
    rule = first_rule(rounds=10, lr={"schedule": "cosine", "start": 0.8, "end": 0.2, "rounds": 5})

    # half a cosine wave over rounds 1 to 5: its middle, round 3, lies half-way
    assert [rule.lr(round) for round in (1, 3, 5, 10)] == pytest.approx([0.8, 0.5, 0.2, 0.2])


@pytest.mark.parametrize(
    ("table", "rates"),
    [
        ({"schedule": "constant", "value": 0.3}, [0.3, 0.3]),
        ({"schedule": "exponential", "start": 0.8, "factor": 0.5}, [0.8, 0.4]),
        ({"schedule": "exponential", "start": 0.8, "factor": 0.5, "every": 2}, [0.8, 0.8]),
        ({"schedule": "inverse_sqrt", "start": 0.8}, [0.8, 0.8 / 2**0.5]),
        ({"schedule": "power", "a": 0.6, "b": 1, "p": 1}, [0.6, 0.3]),
    ],
)
def test_every_schedule_can_stand_in_a_file(table, rates):
    rule = first_rule(lr=table)

    assert [rule.lr(1), rule.lr(2)] == pytest.approx(rates)


def test_a_table_names_an_optimiser_with_its_options():
    rule = first_rule(lr={"optimizer": "sgd", "lr": 0.2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01})

    assert isinstance(rule, Sgd)
    assert (rule.lr(1), rule.momentum, rule.nesterov, rule.weight_decay) == (0.2, 0.9, True, 0.01)


def test_betas_of_adam_are_a_list_in_a_file():
    rule = first_rule(lr={"optimizer": "adam", "lr": 0.2, "betas": [0.8, 0.95], "eps": 1e-6})

    assert isinstance(rule, Adam)
    assert (rule.lr(1), rule.betas, rule.eps) == (0.2, (0.8, 0.95), 1e-6)


def test_an_optimiser_may_have_a_schedule_that_ends_with_the_run():
    rule = first_rule(rounds=5, lr={"optimizer": "adam", "lr": {"schedule": "linear", "start": 0.4, "warmup": 0}})

    assert isinstance(rule, Adam)
    assert [rule.lr(1), rule.lr(3), rule.lr(5)] == pytest.approx([0.4, 0.2, 0.0])


def test_a_budget_of_epochs_has_a_batch_size_and_a_cap():
    budget = first_budget(epochs=2, batch=8)
    capped = first_budget(epochs=2, batch=8, cap=4)

    assert (budget.num_updates(20), capped.num_updates(20)) == (6, 4)  # 3 batches an epoch: 8, 8 and 4 examples


@pytest.mark.parametrize("batch", ["full", 3])
def test_a_budget_of_steps_counts_updates(batch):
    budget = first_budget(steps=7, batch=batch)

    draws = torch.Generator().manual_seed(0)
    sizes = {20 if indices is None else len(indices) for indices in budget.batches(20, draws)}
    assert budget.num_updates(20) == 7
    assert sizes == ({20} if batch == "full" else {3, 2})


@pytest.mark.parametrize(
    ("weight", "share", "per"),
    [
        ("samples", 20, 20),
        ("uniform", 1, 1),
        ({"batches": 8}, 3, 3),  # 20 examples are 8 + 8 + 4
        ("global_ht", 20 / 200 / 0.25, None),
        ("round_ht", 20 / 0.25, 20),
    ],
    ids=str,
)
def test_every_weight_can_stand_in_a_file(weight, share, per):
    found = built(method_options={"weight": weight}).method.weight

    assert found.share(FACTS) == pytest.approx(share)
    assert (None if found.per is None else found.per(FACTS)) == per


@pytest.mark.parametrize("section", ["split", "method_options"])
@pytest.mark.parametrize(
    ("personal", "names"),
    [
        ("head", {"head.weight", "head.bias"}),
        ("head()", {"head.weight", "head.bias"}),
        ("first_layer", {"body.1.weight", "body.1.bias"}),
        ("*.bias", {"body.1.bias", "head.bias"}),
        (["head.weight", "first_layer"], {"head.weight", "body.1.weight", "body.1.bias"}),
        ("all_personal", {"body.1.weight", "body.1.bias", "head.weight", "head.bias"}),
    ],
    ids=["role", "role()", "first layer", "pattern", "list", "everything"],
)
def test_the_personal_part_is_a_role_a_pattern_or_a_list_of_those(personal, names, section):
    method = built("fedalt", **{section: {"personal": personal}}).method

    parts = method.split.resolve(mlp())
    assert {name for name, part in parts.items() if part == "personal"} == names


def test_choices_and_flags_reach_the_method():
    method = built("pflego", method_options={"tau": 7, "batch": 5, "stateful": False, "preset": "exact"}).method

    assert [phase.budget.count for phase in method.local] == [6, 1]
    assert [phase.budget.batch for phase in method.local] == [5, 5]
    assert method.stateful is False
    assert isinstance(method.server, Sgd)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("fedavg", "lr", "0.1"),
        ("fedavg", "lr", True),
        ("fedavg", "lr", [0.1]),
        ("fedavg", "budget", 3),
        ("fedavg", "budget", {"epochs": 1, "steps": 2}),
        ("fedavg", "budget", {"batch": 32}),
        ("fedavg", "weight", 5),
        ("fedavg", "clip_norm", "1"),
        ("fedalt", "personal_l2", "x"),
        ("fedalt", "stateful", 1),
        ("fedalt", "start", "zero"),
        ("pflego", "tau", "50"),
        ("pflego", "tau", True),
        ("pflego", "tau", 2.5),
        ("pflego", "preset", "exactly"),
        ("pflego", "solver", "newtn"),
        ("pflego", "batch", "ful"),
    ],
)
def test_an_option_of_the_wrong_type_is_one_problem_that_names_it(method, name, value):
    error = problem_of(method, method_options={name: value})

    assert isinstance(error, InvalidConfig)
    assert len(error.problems) == 1
    assert name in error.problems[0]
    assert repr(value) in error.problems[0] or str(value) in error.problems[0]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", {"weight": ["samples"]}),
        ("fedavg", {"weight": {"samples": 1}}),
        ("fedavg", {"lr": {"schedule": ["cosine"]}}),
        ("fedavg", {"lr": {"optimizer": ["adam"]}}),
        ("fedavg", {"lr": {"optimizer": "adam", "lr": 0.1, "betas": 0.9}}),
        ("pflego", {"personal": 5}),
        ("pflego", {"personal": [5]}),
    ],
    ids=str,
)
def test_an_option_of_a_form_nobody_thought_of_is_an_error_that_names_it(method, options):
    error = problem_of(method, method_options=options)

    assert isinstance(error, InvalidConfig)
    assert any(name in str(error) for name in ("weight", "schedule", "optimizer", "personal"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lr": {"start": 0.1}}, "lr: a table needs the key 'schedule' or 'optimizer'"),
        ({"lr": {"schedule": "cosin", "start": 0.1}}, "There is no schedule 'cosin'. Did you mean 'cosine'"),
        ({"lr": {"schedule": "cosine"}}, "schedule 'cosine' needs start"),
        ({"lr": {"schedule": "cosine", "strat": 1}}, "schedule 'cosine' has no option 'strat'. Did you mean 'start'"),
        ({"lr": {"optimizer": "adma", "lr": 0.1}}, "There is no optimizer 'adma'. Did you mean 'adam'"),
        ({"lr": {"optimizer": "sgd", "lr": 1, "momentun": 0.9}}, "has no option 'momentun'. Did you mean 'momentum'"),
        ({"budget": {"epochs": 1, "bacth": 3}}, "budget has no option 'bacth'. Did you mean 'batch'"),
        ({"weight": "sample"}, "There is no weight 'sample'. Did you mean 'samples'"),
        ({"weight": "batches"}, r"weight = 'batches' needs a batch size: weight = \{batches = 32\}"),
        ({"learning_rate": 0.1}, "fedavg has no option 'learning_rate'"),
        ({"budgt": {"epochs": 1}}, "fedavg has no option 'budgt'. Did you mean 'budget'"),
    ],
)
def test_what_a_file_gets_wrong_is_told_with_what_to_write_instead(options, match):
    with pytest.raises(InvalidConfig, match=match) as found:
        built(method_options=options)
    assert len(found.value.problems) == 1


def test_all_problems_of_the_options_are_told_at_once():
    error = problem_of("pflego", method_options={"tau": "x", "preset": "y", "tua": 3})

    assert [problem.split()[0] for problem in error.problems] == ["tau", "preset", "pflego"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"lr": -0.1}, "-0.1"),
        ({"lr": float("nan")}, "nan"),
        ({"lr": float("inf")}, "inf"),
        ({"lr": {"schedule": "cosine", "start": -0.1}}, "-0.1"),
        ({"lr": {"optimizer": "sgd", "lr": 0.1, "momentum": 1.5}}, "1.5"),
        ({"budget": {"epochs": -1}}, "-1"),
        ({"budget": {"epochs": 1, "batch": 0}}, "0"),
        ({"weight": {"batches": 0}}, "0"),
    ],
    ids=str,
)
def test_a_number_out_of_range_is_told_with_the_range(options, part):
    error = problem_of(method_options=options)

    assert isinstance(error, InvalidConfig)
    assert part in str(error)
    assert "must be" in str(error)


@pytest.mark.parametrize("name", ["lr", "personal_lr", "server"])
def test_a_negative_rate_is_told_with_the_name_of_its_option(name):
    assert name in str(problem_of("fedalt", method_options={name: -0.1})).split()


def test_a_negative_norm_to_clip_to_is_refused():
    assert "clip_norm" in str(problem_of(method_options={"clip_norm": -1.0}))


def test_a_budget_has_one_name_for_its_length():
    assert "count" in str(problem_of(method_options={"budget": {"epochs": 1, "count": 3}}))


def test_the_servers_rate_alone_keeps_the_methods_own_rule():
    server = built("fedavg", server={"lr": 0.5}).method.server

    assert isinstance(server, Sgd)
    assert server.lr(1) == 0.5


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sgd", Sgd), ("adam", Adam), ("fedadam", FedAdam), ("fedyogi", FedYogi), ("fedadagrad", FedAdagrad)],
)
def test_every_optimiser_can_serve(name, kind):
    server = built("fedavg", server={"optimizer": name, "lr": 0.01}).method.server

    assert isinstance(server, kind)
    assert server.lr(1) == 0.01


def test_options_of_the_servers_optimiser_stand_in_its_table():
    server = built("fedavg", server={"optimizer": "fedadam", "lr": 0.01, "beta1": 0.5, "tau": 0.1}).method.server

    assert (server.beta1, server.beta2, server.tau) == (0.5, 0.99, 0.1)


def test_the_servers_rate_may_follow_a_schedule_that_ends_with_the_run():
    server = built("fedavg", rounds=4, server={"lr": {"schedule": "linear", "start": 0.9, "warmup": 0}}).method.server

    assert [server.lr(round) for round in (1, 2, 4)] == pytest.approx([0.9, 0.6, 0.0])


def test_weights_of_uploads_stand_in_the_servers_table():
    assert built("fedavg", server={"weight": "uniform"}).method.weight.name == "uniform"


def test_weights_by_batches_stand_in_the_servers_table_too():
    try:
        found = built("fedavg", server={"weight": {"batches": 8}}).method.weight.name
    except InvalidConfig as error:
        found = str(error)
    assert found == "batches"


@pytest.mark.parametrize(("preset", "kind"), [("paper", Adam), ("exact", Sgd)])
def test_a_rate_alone_keeps_the_rule_of_pflegos_preset_and_the_last_head_step_takes_it(preset, kind):
    method = built("pflego", method_options={"preset": preset}, server={"lr": 0.03}).method

    assert isinstance(method.server, kind)
    inner, joint = method.local
    assert (method.server.lr(1), joint.optimizer.lr(1), inner.optimizer.lr(1)) == (0.03, 0.03, 0.006)
    assert isinstance(joint.optimizer, Sgd)


def test_the_last_head_step_of_pflego_follows_the_servers_schedule():
    lr = {"schedule": "exponential", "start": 0.4, "factor": 0.5}

    method = built("pflego", server={"lr": lr}).method

    assert isinstance(method.server, Adam)
    for rule in (method.server, method.local[-1].optimizer):
        assert [rule.lr(1), rule.lr(2), rule.lr(3)] == pytest.approx([0.4, 0.2, 0.1])


def test_an_optimiser_replaces_pflegos_own_and_the_last_head_step_takes_its_rate():
    method = built("pflego", server={"optimizer": "sgd", "lr": 0.7, "momentum": 0.5}).method

    assert isinstance(method.server, Sgd)
    assert method.server.momentum == 0.5
    assert method.local[-1].optimizer.lr(1) == 0.7
    assert method.local[-1].optimizer.momentum == 0.0


@pytest.mark.parametrize(
    ("method", "section", "content", "match"),
    [
        ("fedavg", "split", {"personal": "head"}, r"fedavg has no choice of 'personal': remove it from \[split\]"),
        ("local", "split", {"personal": "head"}, r"local has no choice of 'personal': remove it from \[split\]"),
        ("local", "server", {"lr": 0.1}, r"local has no choice of 'server': remove it from \[server\]"),
        ("pflego", "server", {"weight": "samples"}, r"pflego has no choice of 'weight': remove it from \[server\]"),
        ("fedavg", "server", {"momentum": 0.9}, r"\[server\] momentum needs an optimizer"),
        ("fedavg", "server", {"optimizer": "fedadm"}, "There is no optimizer 'fedadm'. Did you mean 'fedadam'"),
        ("fedavg", "server", {"lr": "x"}, "server = 'x': give a rate such as 0.1"),
    ],
)
def test_tables_that_a_method_cannot_use_are_refused_with_the_table_to_change(method, section, content, match):
    with pytest.raises(InvalidConfig, match=match):
        built(method, **{section: content})


@pytest.mark.parametrize(
    ("name", "section", "content"),
    [
        ("personal", "split", {"personal": "head"}),
        ("buffers", "split", {"buffers": "shared"}),
        ("server", "server", {"lr": 0.1}),
        ("weight", "server", {"weight": "uniform"}),
    ],
)
def test_what_stands_in_two_tables_is_refused(name, section, content):
    options = {"personal": "head", "buffers": "shared", "server": 0.2, "weight": "samples"}

    with pytest.raises(InvalidConfig, match=rf"'{name}' is given twice, in \[method_options\] and in its own table"):
        built("fedalt", method_options={name: options[name]}, **{section: content})
