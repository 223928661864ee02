"""Experiment files: defaults, every table, changes from the command line, and what is refused."""

from __future__ import annotations

import pytest

from plures import load_experiment, make_experiment
from plures.core.errors import InvalidConfig
from plures.recipes.build import build
from plures.recipes.experiment import RESERVED, apply_override
from tests.recipes.helpers import problem_of

EVERY_TABLE = """
method = "fedalt"
rounds = 7
seed = 3
engine = "sequential"
device = "cpu"
out = "somewhere"

[data]
source = "digits"
partition = "dirichlet"
clients = 12
label_space = "local"
seed = 4
alpha = 0.3

[model]
name = "mlp"
hidden = [32, 16]

[split]
personal = ["head.*", "first_layer"]
buffers = "reset"

[method_options]
lr = {schedule = "cosine", start = 0.1}
stateful = false

[server]
optimizer = "fedadam"
weight = "uniform"
lr = 0.01

[evaluation]
every = 2
models = ["personal", "finetuned"]
splits = ["test"]
post_local = true

[participation]
rule = "random_size"
low = 2
high = 5
"""


def problems_with(**changes) -> list[str]:
    with pytest.raises(InvalidConfig) as found:
        make_experiment({"method": "fedavg"} | changes)
    return found.value.problems


def test_a_method_alone_is_a_whole_experiment():
    found = make_experiment({"method": "pflego"})

    top = (found.method, found.rounds, found.cohort, found.seed, found.engine, found.device, found.out)
    assert top == ("pflego", 50, "all", 0, "auto", "cpu", None)
    data = found.data
    assert (data.source, data.partition, data.clients, data.seed) == ("digits", "by_class", 20, 0)
    assert (data.label_space, data.split, data.options) == ("global", (0.6, 0.2, 0.2), {})
    assert (found.model.name, found.model.options) == ("mlp", {})
    assert (found.split.personal, found.split.buffers) == (None, None)
    assert (found.server.optimizer, found.server.weight, found.server.options) == (None, None, {})
    assert (found.method_options, found.participation) == ({}, None)
    plan = found.evaluation
    assert (plan.every, plan.models, plan.splits, plan.post_local) == (5, None, ["validation", "test"], False)


def test_the_default_federation_has_20_clients_with_2_digits_each():
    federation = build(make_experiment({"method": "pflego"})).federation

    assert federation.num_clients == 20
    assert {len(federation.client(client).classes) for client in range(20)} == {2}
    assert federation.classes == 10


def test_every_table_of_a_file_is_read(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(EVERY_TABLE, encoding="utf-8")

    found = load_experiment(path)

    assert (found.method, found.rounds, found.seed, found.out) == ("fedalt", 7, 3, "somewhere")
    assert (found.data.partition, found.data.clients, found.data.label_space) == ("dirichlet", 12, "local")
    assert (found.data.seed, found.data.options) == (4, {"alpha": 0.3})
    assert found.model.options == {"hidden": [32, 16]}
    assert (found.split.personal, found.split.buffers) == (["head.*", "first_layer"], "reset")
    assert found.method_options == {"lr": {"schedule": "cosine", "start": 0.1}, "stateful": False}
    assert (found.server.optimizer, found.server.weight, found.server.options) == ("fedadam", "uniform", {"lr": 0.01})
    plan = found.evaluation
    assert (plan.every, plan.models, plan.splits, plan.post_local) == (2, ["personal", "finetuned"], ["test"], True)
    assert found.participation is not None
    assert (found.participation.rule, found.participation.options) == ("random_size", {"low": 2, "high": 5})


def test_shares_of_train_validation_and_test_stand_in_a_file_as_a_list(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text('method = "fedavg"\n[data]\nsplit = [0.5, 0.25, 0.25]\n', encoding="utf-8")

    assert load_experiment(path).data.split == (0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    ("override", "where", "value"),
    [
        ("rounds=50", ("rounds",), 50),
        ("cohort=0.5", ("cohort",), 0.5),
        ("cohort=all", ("cohort",), "all"),
        ('cohort="all"', ("cohort",), "all"),
        (" rounds = 50 ", ("rounds",), 50),
        ("data.clients=10", ("data", "clients"), 10),
        ("data.source=digits", ("data", "source"), "digits"),
        ("evaluation.post_local=true", ("evaluation", "post_local"), True),
        ('split.personal=["head.*", "body.1.*"]', ("split", "personal"), ["head.*", "body.1.*"]),
        ("split.personal=head.*", ("split", "personal"), "head.*"),
        ("method_options.lr=1e-3", ("method_options", "lr"), 0.001),
        ("method_options.budget.epochs=3", ("method_options", "budget", "epochs"), 3),
        (
            'method_options.lr={schedule = "cosine", start = 0.1}',
            ("method_options", "lr"),
            {"schedule": "cosine", "start": 0.1},
        ),
        ("out=a=b", ("out",), "a=b"),
    ],
)
def test_a_change_sets_one_key_of_the_nested_tables(override, where, value):
    table: dict = {"data": {"seed": 1}}

    apply_override(table, override)

    found = table
    for key in where:
        found = found[key]
    assert found == value
    assert type(found) is type(value)
    assert table["data"]["seed"] == 1


def test_changes_replace_what_stands_in_the_file_and_the_last_one_counts(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text('method = "fedavg"\nrounds = 5\n[data]\nclients = 12\nseed = 9\n', encoding="utf-8")

    found = load_experiment(path, ["rounds=6", "data.clients=10", "method=pflego", "rounds=7"])

    assert (found.method, found.rounds, found.data.clients, found.data.seed) == ("pflego", 7, 10, 9)


@pytest.mark.parametrize("override", ["rounds", "=5", "", "  =5"])
def test_a_change_of_another_form_is_refused_with_an_example(override, tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text('method = "fedavg"\n', encoding="utf-8")

    with pytest.raises(InvalidConfig, match="not of the form KEY=VALUE, such as rounds=50"):
        load_experiment(path, [override])


def test_a_change_cannot_go_through_a_value():
    with pytest.raises(InvalidConfig, match=r"'rounds\.few' goes through 'rounds', which is a value and not a table"):
        apply_override({"rounds": 5}, "rounds.few=3")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", "50"),
        ("rounds", True),
        ("rounds", 2.0),
        ("rounds", 0),
        ("rounds", -1),
        ("seed", "0"),
        ("seed", 1.5),
        ("method", 3),
        ("engine", 1),
        ("device", 0),
        ("out", 5),
        ("data", 5),
        ("method_options", "tau"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_problem_that_names_key_and_value(key, value):
    (problem,) = problems_with(**{key: value})

    assert problem.startswith(f"{key} = {value!r}: ")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "clients", "20"),
        ("data", "clients", 0),
        ("data", "clients", True),
        ("data", "label_space", "locl"),
        ("data", "split", "0.6"),
        ("split", "buffers", "none"),
        ("evaluation", "every", 0),
        ("evaluation", "every", "5"),
        ("evaluation", "post_local", 1),
        ("evaluation", "models", "global"),
        ("server", "optimizer", 1),
        ("participation", "rule", 1),
    ],
)
def test_a_value_of_the_wrong_type_in_a_table_is_one_problem_that_names_the_table_too(section, key, value):
    (problem,) = problems_with(**{section: {key: value}})

    assert problem.startswith(f"{section}.{key} = {value!r}: ")


@pytest.mark.parametrize(("key", "value"), [("models", "globl"), ("splits", "tests")])
def test_a_wrong_name_in_a_list_is_told_with_the_right_ones(key, value):
    (problem,) = problems_with(evaluation={key: [value]})

    assert f"evaluation.{key}.0 = '{value}'" in problem
    assert ("'global'" if key == "models" else "'test'") in problem


@pytest.mark.parametrize("cohort", [3, 0.5, 1.0, "all"])
def test_a_cohort_is_a_number_a_share_or_all(cohort):
    found = make_experiment({"method": "fedavg", "cohort": cohort}).cohort

    assert found == cohort
    assert type(found) is type(cohort)


@pytest.mark.parametrize("cohort", ["al", True, [1, 2]])
def test_a_cohort_of_another_form_is_one_problem(cohort):
    (problem, *more) = problems_with(cohort=cohort)

    assert more == []
    assert problem.startswith(f"cohort = {cohort!r}: ")


@pytest.mark.parametrize("personal", [5, True, {"head": 1}])
def test_a_personal_part_of_another_form_is_one_problem(personal):
    (problem, *more) = problems_with(split={"personal": personal})

    assert more == []
    assert problem.startswith(f"split.personal = {personal!r}: ")


@pytest.mark.parametrize("cohort", [0, -1, 1.5, 0.0, float("nan")])
def test_a_cohort_that_nobody_could_be_in_is_refused(cohort):
    assert "cohort" in str(problem_of(cohort=cohort))


@pytest.mark.parametrize(
    ("changes", "unknown", "meant"),
    [
        ({"round": 3}, "round", "rounds"),
        ({"metod_options": {"tau": 3}}, "metod_options", "method_options"),
        ({"evaluation": {"modles": ["global"]}}, "evaluation.modles", "models"),
        ({"split": {"bufers": "reset"}}, "split.bufers", "buffers"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(changes, unknown, meant):
    (problem,) = problems_with(**changes)

    assert problem.startswith(f"Unknown key '{unknown}'. Did you mean '{meant}'")


def test_an_unknown_key_like_no_other_is_told_with_all_known_ones():
    (problem,) = problems_with(xyzzy=1)

    assert problem.startswith("Unknown key 'xyzzy'. Known: capacity, checkpoint, cohort, data, ")


FREE_TABLES = [
    pytest.param("data", {"clinets": 5}, "clients", id="data.clinets"),
    pytest.param("data", {"sorce": "digits"}, "source", id="data.sorce"),
    pytest.param("model", {"nmae": "mlp"}, "name", id="model.nmae"),
    pytest.param("server", {"weigth": "uniform"}, "weight", id="server.weigth"),
    pytest.param("participation", {"rul": "all"}, "rule", id="participation.rul"),
]


@pytest.mark.parametrize(("section", "content", "meant"), FREE_TABLES)
def test_a_misspelt_key_of_a_table_with_free_keys_is_told_with_the_tables_own_key(section, content, meant):
    (wrong,) = content

    message = str(problem_of(**{section: content}))

    assert wrong in message
    assert f"'{meant}'" in message


@pytest.mark.parametrize(
    ("section", "content", "meant"),
    [
        ("data", {"class_per_client": 2}, "classes_per_client"),
        ("model", {"hiden": [3]}, "hidden"),
        ("server", {"optimzer": "adam"}, "optimizer"),
        ("participation", {"rule": "binomial", "rat": 0.5}, "rate"),
    ],
)
def test_a_misspelt_option_in_a_table_with_free_keys_is_told_with_a_suggestion(section, content, meant):
    message = str(problem_of(**{section: content}))

    assert f"Did you mean '{meant}'" in message


def test_the_number_of_clients_has_one_name():
    assert "num_clients" in str(problem_of(data={"num_clients": 2}))


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_table_is_refused_by_name(name):
    assert problems_with(**{name: {}}) == [f"[{name}] is reserved for a later version; remove it."]


def test_the_reserved_tables_are_those_of_the_plan():
    assert set(RESERVED) == {"privacy"}


def test_cohort_and_participation_exclude_each_other():
    (problem,) = problems_with(cohort=3, participation={"rule": "all"})

    assert problem == "Both cohort and [participation] say who takes part. Keep one of them."


def test_all_problems_of_a_file_are_told_at_once():
    problems = problems_with(rounds="x", data={"clients": 0}, evaluation={"every": 0, "modles": []}, foo=1)

    starts = (
        "rounds = ",
        "data.clients = ",
        "evaluation.every = ",
        "Unknown key 'evaluation.modles'",
        "Unknown key 'foo'",
    )
    assert all(problem.startswith(start) for problem, start in zip(problems, starts, strict=True))


def test_several_problems_are_numbered_in_the_message():
    with pytest.raises(InvalidConfig) as found:
        make_experiment({"method": "fedavg", "rounds": 0, "seed": "x"})

    lines = str(found.value).splitlines()
    assert lines[0] == "2 problems:"
    assert [line[:5] for line in lines[1:]] == ["  1. ", "  2. "]


def test_a_file_without_a_method_is_told_what_it_needs():
    with pytest.raises(InvalidConfig, match=r"'method' is missing. An experiment needs at least: method = "):
        make_experiment({"rounds": 3})


def test_an_unknown_method_is_told_with_the_nearest():
    with pytest.raises(InvalidConfig, match=r"There is no method 'pflgo'\. Did you mean 'pflego'"):
        build(make_experiment({"method": "pflgo"}))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"method = \n", r"bad\.toml is not valid TOML: Invalid value \(at line 1, column 10\)"),
        (b'method = "fedavg"\nmethod = "local"\n', r"bad\.toml is not valid TOML: .*\(at line 2, column 17\)"),
        (b'method = "fedavg"\n[data\n', r"bad\.toml is not valid TOML: .*line 2"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", r"Cannot read .*bad\.toml"),
    ],
    ids=["no value", "twice", "open bracket", "binary"],
)
def test_what_is_no_toml_is_told_with_file_and_place(content, match, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)

    with pytest.raises(InvalidConfig, match=match):
        load_experiment(path)


def test_a_missing_file_is_told_by_name(tmp_path):
    with pytest.raises(InvalidConfig, match=r"Cannot read .*absent\.toml: No such file or directory"):
        load_experiment(tmp_path / "absent.toml")


def test_a_folder_is_no_experiment_file(tmp_path):
    with pytest.raises(InvalidConfig, match=r"Cannot read .*: Is a directory"):
        load_experiment(tmp_path)
