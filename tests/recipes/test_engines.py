"""Which engine a run has: by name, by the rule, by a trial; and that it is recorded."""

from __future__ import annotations

import pytest

import plures
from plures import load_experiment
from plures.data import digits_federation
from plures.engines.workers import Workers
from plures.methods import fedavg
from plures.models import mlp
from plures.recipes import engines
from plures.report import records
from tests.recipes.helpers import ran

CLIENTS = digits_federation(num_clients=12, classes_per_client=2)


def digits(**options):
    return plures.run(fedavg(), CLIENTS, mlp, rounds=1, **options)


def test_the_rule_takes_workers_where_there_are_cores_and_work(monkeypatch):
    monkeypatch.setattr(engines, "usable_cores", lambda: 4)
    monkeypatch.setattr(engines, "LEAST_WORK", 1e5)
    facts = digits().facts
    assert facts["engine"] == "workers"
    assert facts["engine_reason"].startswith("auto: 4 cores, ")


@pytest.mark.parametrize(
    ("cores", "least", "cohort", "says"),
    [(1, 0, "all", "1 cores"), (4, 0, 1, "1 clients in a round"), (4, 1e12, "all", "little work")],
)
def test_the_rule_takes_one_process_elsewhere(monkeypatch, cores, least, cohort, says):
    monkeypatch.setattr(engines, "usable_cores", lambda: cores)
    monkeypatch.setattr(engines, "LEAST_WORK", least)
    facts = digits(cohort=cohort).facts
    assert facts["engine"] == "cached"
    assert says in facts["engine_reason"]


def test_what_the_rule_chooses_between_has_the_same_bits():
    assert digits(engine=Workers(2)).fingerprint == digits(engine="cached").fingerprint


@pytest.mark.parametrize("name", engines.ENGINES)
def test_a_name_forces_an_engine(name):
    facts = digits(engine=name).facts
    assert (facts["engine"], facts["engine_reason"]) == (name, "as asked")


def test_a_trial_measures_all_and_writes_its_choice_into_the_configuration(tmp_path):
    result = ran("fedper", tmp_path / "run", engine="trial")
    chosen = result.facts["engine"]
    assert chosen in engines.ENGINES
    assert all(name in result.facts["engine_reason"] for name in engines.ENGINES)
    assert load_experiment(tmp_path / "run" / records.EXPERIMENT).engine == chosen
    again = ran("fedper", engine=chosen)
    assert again.fingerprint == result.fingerprint  # the trial left nothing behind
