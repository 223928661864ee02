"""Experiment files that anybody may have written: an error of ours in time, and never anything else."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig
from plures.data import PARTITIONERS
from plures.local import SCHEDULES
from plures.methods import METHODS
from plures.participation import SAMPLERS
from plures.recipes.build import (
    build_conduct,
    build_plan,
    build_sampler,
    build_wire,
    configuration_of,
    given_options,
    named_method,
)
from plures.recipes.checkpointing import CheckpointPlan
from plures.recipes.experiment import load_experiment, make_experiment
from plures.recipes.options import ALL_OPTIMIZERS, called, method_options
from plures.recipes.partitions import build_partitioner
from plures.server.robust import ROBUST
from tests.fuzz.harness import fuzzed, hostile, mutated_bytes, mutated_tables, nested, numbers, refused, texts

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
FILES = [path.read_bytes() for path in EXAMPLES]
TABLES = [tomllib.loads(content.decode()) for content in FILES]
LARGE: dict[str, Any] = {
    "method": "fedper",
    "rounds": 3,
    "cohort": 0.5,
    "seed": 1,
    "engine": "cached",
    "data": {"source": {"name": "digits"}, "clients": 4, "split": [0.6, 0.2, 0.2], "classes_per_client": 2},
    "model": {"name": "mlp", "hidden": [5], "adapters": {"kind": "lora", "rank": 2}},
    "split": {"personal": "head", "buffers": "shared"},
    "method_options": {
        "lr": {"schedule": "cosine", "start": 0.1},
        "budget": {"epochs": 1, "batch": 5},
        "clip_norm": 1.0,
    },
    "server": {"optimizer": "fedadam", "lr": 0.1, "beta1": 0.9, "robust": {"rule": "trimmed_mean", "share": 0.1}},
    "evaluation": {"every": 1, "models": ["personal"], "metrics": ["auc"], "targets": [0.5], "guard": {"margin": 1.0}},
    "pipeline": {"pretrain": {"method": "fedavg", "rounds": 2, "lr": 0.1}, "tune": {"part": "all", "lr": 0.1}},
    "capacity": {"density": [0.5, 0.1]},
    "wire": {"upload": "int8"},
    "checkpoint": {"every": 2, "seconds": 1.0},
    "faults": {"absent": 0.1, "attackers": 0.1, "attack": "noise"},
    "tolerate": {"least_cohort": 0.5, "over_select": 1.3},
    "track": {"tensorboard": True},
    "tune": {"trials": 3, "search": {"method_options.lr": [0.1, 0.2]}},
}
"""A value for nearly every table."""


def use(experiment: Any) -> None:
    """All that is made of an experiment before any data are read or a network is built."""
    info = named_method(experiment.method)
    given = given_options(experiment, info)
    called(info.name, info.make, method_options(info, given, rounds=max(experiment.rounds, 1)))
    build_sampler(experiment)
    build_partitioner(experiment.data)
    build_conduct(experiment)
    build_wire(experiment)
    build_plan(experiment)
    CheckpointPlan(**experiment.checkpoint.model_dump())
    tomllib.loads(configuration_of(experiment).encode().decode())


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("toml") / "experiment.toml"


def test_there_are_files_to_start_from():
    assert len(FILES) >= 3
    for content in FILES:
        assert tomllib.loads(content.decode())
    for table in (*TABLES, LARGE):
        use(make_experiment(table))


@given(
    content=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")))
)
@example(content=b"a = " + b"1" * 5000)
@example(content=b"a = " + b"[" * 5000)
@example(content=b"a." * 200_000 + b"a = 1")
@example(content=b"[" + b"a." * 200_000 + b"a]")
@example(content=b"\xff\xfe")
@fuzzed(100)
def test_any_bytes_are_refused(path, content):
    path.write_bytes(content)
    assert refused("TOML: random bytes and texts", lambda: load_experiment(path)) is not None


@given(content=st.sampled_from(FILES).flatmap(mutated_bytes))
@fuzzed(80)
def test_an_example_with_other_bytes_is_an_experiment_or_refused(path, content):
    path.write_bytes(content)
    refused("TOML: examples with other bytes", lambda: use(load_experiment(path)))


@given(
    table=st.sampled_from([*TABLES, LARGE]).flatmap(mutated_tables), method=st.sampled_from([None, *sorted(METHODS)])
)
@example(table={"method": "fedavg", "seed": 10**400}, method=None)
@example(table={"method": "fedavg", "method_options": {"lr": nested(1, depth=150)}}, method=None)
@fuzzed(120)
def test_a_table_with_other_values_is_an_experiment_or_refused(table, method):
    table = table if method is None else table | {"method": method}
    refused("TOML: tables with other values", lambda: use(make_experiment(table)))


@given(
    table=st.dictionaries(
        st.sampled_from([*LARGE, "participation", "privacy", "loss", "device", "out", "unknown"]), hostile, max_size=5
    )
)
@fuzzed(80)
def test_tables_of_anything_are_refused(table):
    refused("TOML: tables of anything", lambda: use(make_experiment({"method": "fedavg", **table})))


kinds = st.sampled_from([*ALL_OPTIMIZERS, *SCHEDULES, *SAMPLERS, *PARTITIONERS, *ROBUST, "none"])
words = ("lr", "start", "end", "rounds", "warmup", "momentum", "beta1", "tau", "epochs", "steps", "batch", "share", "f")
tables = st.builds(
    lambda name, kind, rest: {name: kind, **rest},
    st.sampled_from(["optimizer", "schedule", "rule", "base", "epochs", "steps", "batches"]),
    kinds | numbers,
    st.dictionaries(st.sampled_from(words), numbers | texts, max_size=3),
)
options = numbers | kinds | texts | tables | st.lists(numbers | tables, max_size=3)
"""What could be an option of something."""


@st.composite
def with_options(draw: st.DrawFn) -> dict[str, Any]:
    """A method, a way to deal data and a rule for cohorts, each with some of its own options."""

    def some_of(make: Any) -> dict[str, Any]:
        return draw(st.dictionaries(st.sampled_from([*inspect.signature(make).parameters, "x"]), options, max_size=3))

    method, dealt, rule = (draw(st.sampled_from(sorted(names))) for names in (METHODS, PARTITIONERS, SAMPLERS))
    return {
        "method": method,
        "rounds": draw(st.integers(0, 9)),
        "method_options": some_of(METHODS[method].make),
        "data": {"partition": dealt} | some_of(PARTITIONERS[dealt]),
        "participation": {"rule": rule} | some_of(SAMPLERS[rule]),
        "server": draw(
            st.dictionaries(st.sampled_from(["optimizer", "lr", "weight", "robust", "tau"]), options, max_size=2)
        ),
    }


@given(table=with_options())
@fuzzed(60)
def test_options_of_any_kind_are_taken_or_refused(table):
    """Each by itself, so that the first that is refused hides no other."""
    for name in ("method_options", "data", "participation", "server"):
        alone = {"method": table["method"], "rounds": 3, name: table[name]}
        refused("TOML: options", lambda alone=alone: use(make_experiment(alone)))


keys = st.lists(st.sampled_from([*LARGE, "clients", "lr", "", "a b", "\0"]), min_size=1, max_size=4).map(".".join)
written = st.one_of(numbers.map(str), texts, hostile.map(repr), st.just("[" * 2000), st.just("9" * 5000))


@given(override=st.one_of(texts, st.builds("{}={}".format, keys, written)))
@fuzzed(80)
def test_any_override_is_taken_or_refused(path, override):
    path.write_bytes(tomli_w.dumps({"method": "fedavg", "data": {"clients": 4}}).encode())
    refused("TOML: overrides", lambda: use(load_experiment(path, [override])))


def test_an_error_tells_what_is_wrong_with_a_file_that_is_nested_too_deep(path):
    path.write_text("a = " + "[" * 20_000, encoding="utf-8")
    with pytest.raises(InvalidConfig, match="nested"):
        load_experiment(path)
