"""The tables [faults] and [tolerate] of an experiment file: what goes wrong on purpose, and what a round bears."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from plures.core.context import Conduct
from plures.core.errors import InvalidConfig
from plures.core.losses import Tolerance
from plures.participation import Attack, Faults, Sampler, over_select
from plures.recipes.tables import Table

LARGEST_NORM = 1e6
"""Of an upload, where faults make uploads huge and nobody says what is too large."""

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class FaultsTable(Table):
    """Shares of visits that go wrong, and clients that are hostile."""

    absent: Share = 0.0
    gone: Share = 0.0
    slow: Share = 0.0
    nan: Share = 0.0
    wrong_shape: Share = 0.0
    wrong_name: Share = 0.0
    wrong_dtype: Share = 0.0
    huge: Share = 0.0
    nothing: Share = 0.0
    failing: Share = 0.0
    kill_worker: Share = 0.0
    rate: Share = 0.0
    """Share of visits that have one of all the above."""
    delay: Positive = 10.0
    """Seconds that a slow visit takes on average."""
    attackers: Share = 0.0
    """Share of clients, for the whole run."""
    attack: Attack = "sign_flip"
    attack_scale: Positive = 10.0
    seed: Count = 0


class TolerateTable(Table):
    """What a round bears, and how more clients are called than are wanted."""

    least_cohort: Count | Annotated[float, Field(gt=0, le=1)] | None = None
    """Clients that must arrive, or their share; None: all of them, or, where there are [faults], one."""
    deadline: Positive | None = None
    """Seconds of simulated time."""
    over_select: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    """So many times as many are called as are wanted."""
    largest_norm: Positive | None = None
    """Of an upload; None: any, or, where [faults] make uploads huge, a million."""


def make_faults(table: FaultsTable | None) -> Faults | None:
    """The faults of a file; None where nothing goes wrong."""
    faults = None if table is None else Faults(**table.model_dump())
    return faults if faults is not None and faults.has_any else None


def make_tolerance(table: TolerateTable | None, faults: Faults | None) -> Tolerance:
    """What a file's rounds bear: who asks for faults means them to be borne."""
    given = table or TolerateTable()
    huge = faults is not None and faults.chance("huge") > 0
    return Tolerance(
        least_cohort=1 if given.least_cohort is None and faults is not None else given.least_cohort,
        deadline=given.deadline,
        largest_norm=LARGEST_NORM if given.largest_norm is None and huge else given.largest_norm,
    )


def make_conduct(faults: FaultsTable | None, tolerate: TolerateTable | None) -> Conduct:
    """How the rounds of a file are held; every problem of the two tables is told at once."""
    made, problems = None, list[str]()
    try:
        made = make_faults(faults)
    except InvalidConfig as error:
        problems += error.problems
    problems += without_effect(faults or FaultsTable(), tolerate or TolerateTable())
    if problems:
        raise InvalidConfig(problems)
    return Conduct(tolerance=make_tolerance(tolerate, made), faults=made)


def without_effect(faults: FaultsTable, tolerate: TolerateTable) -> list[str]:
    """Settings that would do nothing: seconds count only where somebody is slow, and slowness where they count."""
    problems: list[str] = []
    if faults.slow and tolerate.deadline is None and tolerate.over_select is None:
        problems.append(
            f"faults.slow = {faults.slow:g}, but nobody waits for seconds. Give [tolerate] a deadline or over_select."
        )
    if tolerate.deadline is not None and not faults.slow and not faults.rate:
        problems.append(
            f"tolerate.deadline = {tolerate.deadline:g}, but nobody is slow: seconds are simulated, and only "
            "[faults] makes clients take some. Give it slow, or remove the deadline."
        )
    return problems


def over_selecting(sampler: Sampler, tolerate: TolerateTable | None) -> Sampler:
    """The sampler of a file, or one that calls more clients than it draws."""
    if tolerate is None or tolerate.over_select is None:
        return sampler
    return over_select(sampler, tolerate.over_select)
