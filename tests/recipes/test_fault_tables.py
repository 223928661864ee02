"""The tables [faults] and [tolerate]: what they make, what they mean when they are silent, and what they refuse."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plures.core.context import Conduct
from plures.core.errors import InvalidConfig
from plures.core.losses import Tolerance
from plures.participation import FAULTS, Faults, OverSelection, all_clients, uniform
from plures.recipes.explaining import problems_in
from plures.recipes.fault_tables import (
    LARGEST_NORM,
    FaultsTable,
    TolerateTable,
    make_conduct,
    make_faults,
    make_tolerance,
    over_selecting,
)
from plures.recipes.tables import Table


class File(Table):
    """An experiment with these tables alone."""

    faults: FaultsTable | None = None
    tolerate: TolerateTable | None = None


def conduct_of(**tables) -> Conduct:
    file = File.model_validate(tables)
    return make_conduct(file.faults, file.tolerate)


def problems_of(**tables) -> list[str]:
    try:
        conduct_of(**tables)
    except ValidationError as error:
        return problems_in(error, File)
    except InvalidConfig as error:
        return error.problems
    return []


def test_without_tables_nobody_may_be_missing_and_nothing_goes_wrong():
    assert conduct_of() == Conduct()
    assert conduct_of(faults={}) == Conduct()
    assert conduct_of(faults={"seed": 3, "absent": 0}) == Conduct()


def test_the_table_has_every_option_of_faults_with_the_same_default():
    assert FaultsTable().model_dump() == vars(Faults())
    given = {"slow": 0.1, "delay": 2.5, "attackers": 0.2, "attack": "noise", "attack_scale": 3, "seed": 7}
    assert make_faults(FaultsTable(**given)) == Faults(**given)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "slow"])
def test_who_asks_for_a_fault_means_it_to_be_borne(fault):
    conduct = conduct_of(faults={fault: 0.1})
    assert conduct.faults == Faults(**{fault: 0.1})
    assert conduct.tolerance == Tolerance(least_cohort=1, largest_norm=LARGEST_NORM if fault == "huge" else None)


def test_a_rate_is_borne_and_what_it_makes_huge_is_refused():
    assert conduct_of(faults={"rate": 0.05}).tolerance == Tolerance(least_cohort=1, largest_norm=LARGEST_NORM)


def test_what_is_said_counts_more_than_what_is_meant():
    said = {"least_cohort": 0.5, "deadline": 20, "largest_norm": 3.0}
    assert conduct_of(faults={"rate": 0.1}, tolerate=said).tolerance == Tolerance(**said)
    assert conduct_of(tolerate={"largest_norm": 3.0}).tolerance == Tolerance(largest_norm=3.0)
    assert make_tolerance(TolerateTable(least_cohort=4), None) == Tolerance(least_cohort=4)
    assert make_tolerance(TolerateTable(least_cohort=0), Faults(nan=0.5)) == Tolerance(least_cohort=0)


def test_a_number_of_clients_is_no_share():
    one, all_of_them = (TolerateTable(least_cohort=least).least_cohort for least in (1, 1.0))
    assert (type(one), type(all_of_them)) == (int, float)
    assert make_tolerance(TolerateTable(least_cohort=1), None).least(5) == 1
    assert make_tolerance(TolerateTable(least_cohort=1.0), None).least(5) == 5


def test_more_are_called_where_that_is_asked_for():
    assert over_selecting(uniform(4), None) == uniform(4)
    assert over_selecting(uniform(4), TolerateTable(deadline=3.0)) == uniform(4)
    assert over_selecting(uniform(4), TolerateTable(over_select=1.5)) == OverSelection(sampler=uniform(4), factor=1.5)
    with pytest.raises(InvalidConfig, match="every cohort has all 9 clients"):
        over_selecting(all_clients(), TolerateTable(over_select=1.5)).check(9)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"faults": {"absent": -0.1}}, ["faults.absent = -0.1: input should be greater than or equal to 0."]),
        ({"faults": {"absent": 1.0}}, ["faults.absent = 1.0: input should be less than 1."]),
        ({"faults": {"absnt": 0.1}}, ["Unknown key 'faults.absnt'. Did you mean 'absent'?"]),
        ({"faults": {"attack": "flip"}}, ["faults.attack = 'flip': input should be 'sign_flip', 'scaled' or 'noise'."]),
        ({"faults": {"nan": True}}, ["faults.nan = True: input should be a valid number."]),
        ({"faults": {"seed": -1}}, ["faults.seed = -1: input should be greater than or equal to 0."]),
        (
            {"tolerate": {"over_select": 0.5}},
            ["tolerate.over_select = 0.5: input should be greater"],
        ),
        ({"tolerate": {"deadline": 0}}, ["tolerate.deadline = 0: input should be greater than 0."]),
        (
            {"tolerate": {"largest_norm": float("nan")}},
            ["tolerate.largest_norm = nan: input should be"],
        ),
        ({"tolerate": {"deadlin": 1}}, ["Unknown key 'tolerate.deadlin'. Did you mean 'deadline'?"]),
        ({"tolerate": 3, "faults": {"gone": 2}}, ["tolerate = 3: ", "faults.gone = 2: input should be less than 1."]),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(tables, told):
    found = problems_of(**tables)
    assert len(found) == len(told)
    assert all(any(problem.startswith(one) for problem in found) for one in told)


@pytest.mark.parametrize("least", [-1, 1.5, 0.0, "half", True])
def test_the_least_cohort_is_a_number_of_clients_or_a_share(least):
    (problem,) = problems_of(tolerate={"least_cohort": least})
    assert problem.startswith(f"tolerate.least_cohort = {least!r}: input should be ")


def test_settings_that_do_nothing_together_are_told_all_at_once():
    many = {"absent": 0.7, "gone": 0.7, "slow": 0.1}
    assert [problem.partition(",")[0] for problem in problems_of(faults=many)] == [
        "The shares of [faults] add up to 1.5: a visit has one fault at most. Lower them.",
        "faults.slow = 0.1",
    ]
    (nobody_is_slow,) = problems_of(faults={"gone": 0.1}, tolerate={"deadline": 5.0})
    assert "tolerate.deadline = 5, but nobody is slow: seconds are simulated" in nobody_is_slow
    assert problems_of(faults={"slow": 0.1}, tolerate={"deadline": 5.0}) == []
    assert problems_of(faults={"slow": 0.1}, tolerate={"over_select": 1.5}) == []
    assert problems_of(faults={"rate": 0.1}, tolerate={"deadline": 5.0}) == []
