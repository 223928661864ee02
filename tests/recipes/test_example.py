"""The commented experiment file: it runs as it is, and every key there is stands in it."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from plures import load_experiment, run_experiment
from plures.methods import METHODS
from plures.participation import SAMPLERS
from plures.recipes.build import build
from plures.recipes.deploy_tables import DeployTable
from plures.recipes.experiment import RESERVED, Experiment, Participation
from plures.recipes.fault_tables import FaultsTable, TolerateTable
from plures.recipes.stage_tables import Pipeline, PretrainTable, SearchTable, TuneTable
from plures.report import records
from tests.recipes.helpers import same_bits

PATH = Path(__file__).parents[2] / "examples" / "experiment.toml"
TEXT = PATH.read_text(encoding="utf-8")


def sections() -> dict[str, set[str]]:
    """The keys under each heading, also those that are commented out; indented ones are examples in the text."""
    found: dict[str, set[str]] = {"": set()}
    section = ""
    for line in TEXT.splitlines():
        if heading := re.match(r"(?:# )?\[([\w.]+)\](?!.*\] *\[)", line):
            section = heading.group(1)
            found[section] = set()
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            found[section].add(key.group(1))
    return found


def schema() -> dict[str, set[str]]:
    """The keys of each table of the schema."""
    tables = {
        "": set(Experiment.model_fields),
        "participation": set(Participation.model_fields),
        "pipeline": set(Pipeline.model_fields) - {"pretrain", "tune"},
        "pipeline.pretrain": set(PretrainTable.model_fields),
        "pipeline.tune": set(TuneTable.model_fields),
        "tune": set(SearchTable.model_fields),
        "faults": set(FaultsTable.model_fields),
        "tolerate": set(TolerateTable.model_fields),
        "deploy": set(DeployTable.model_fields),
    }
    for name, field in Experiment.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            tables[name] = set(field.annotation.model_fields)
    return tables


def test_the_example_runs_as_it_is(tmp_path):
    result = run_experiment(load_experiment(PATH), out=tmp_path / "run")

    assert result.status == "finished"
    assert result.metrics["finetuned/test/accuracy"].weighted > 0.5  # two of ten digits each: guessing gives a half


def test_the_example_resolves_to_a_file_that_runs_to_the_same_result(tmp_path):
    first = run_experiment(load_experiment(PATH, ["rounds=1"]), out=tmp_path / "run")

    again = run_experiment(load_experiment(tmp_path / "run" / records.EXPERIMENT))

    assert again.fingerprint == first.fingerprint
    assert same_bits(again.server.shared, first.server.shared)


@pytest.mark.parametrize(
    ("section", "keys"), schema().items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_key_of_the_schema_stands_in_the_example(section, keys):
    tables = schema().keys() | {"method_options", "capacity"}
    written = sections()[section] | (sections().keys() & tables if section == "" else set())

    assert keys <= written


def test_the_schema_has_the_tables_of_the_plan():
    tables = {"data", "model", "split", "method_options", "server", "evaluation", "participation", "pipeline"}
    tables |= {"wire", "track", "tune", "checkpoint", "faults", "tolerate", "deploy"}

    assert tables <= set(Experiment.model_fields)
    assert schema().keys() == {"", "pipeline.pretrain", "pipeline.tune", *tables} - {"method_options"}


def test_every_option_of_the_examples_method_stands_in_the_example():
    method = tomllib.loads(TEXT)["method"]
    elsewhere = {"personal", "buffers", "server", "weight"}  # in [split] and [server]

    options = set(inspect.signature(METHODS[method].make).parameters)

    assert sections()["method_options"] == options - elsewhere


def test_every_participation_rule_is_named_in_the_example():
    (line,) = [line for line in TEXT.splitlines() if line.startswith("# rule = ")]

    assert set(re.findall(r'"(\w+)"', line)) == set(SAMPLERS)


def test_the_reserved_tables_are_listed_in_a_comment():
    (line,) = [line for line in TEXT.splitlines() if line.startswith("# [privacy]")]

    assert re.findall(r"\[(\w+)\]", line) == list(RESERVED)


def test_participation_is_commented_out_since_it_excludes_the_cohort():
    table = tomllib.loads(TEXT)

    assert "cohort" in table
    assert "participation" not in table


def test_what_is_commented_out_can_be_used(tmp_path):
    text = TEXT.replace("cohort = ", "# cohort = ")
    for key in ("[participation]", 'rule = "binomial"', "rate = 0.5", "mean_regularised = 0.1"):
        assert f"# {key}" in text
        text = text.replace(f"# {key}", key)
    path = tmp_path / "experiment.toml"
    path.write_text(text, encoding="utf-8")

    built = build(load_experiment(path))

    assert built.sampler == SAMPLERS["binomial"](0.5)


def test_the_example_fits_120_columns():
    assert max(len(line) for line in TEXT.splitlines()) <= 120
