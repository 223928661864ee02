"""Contenders take turns, and ratios are taken within a repeat."""

from __future__ import annotations

import pytest

from benchmarks.bare import ONE_THREAD, TWO_PROCESSES, TWO_THREADS
from benchmarks.measuring import CannotRun, Contender, Name, interleaved, times_faster
from benchmarks.targets import best_bare, judged_engine, verdicts
from benchmarks.workloads import Turn


class Scripted:
    """Notes its turns in a common list; takes the times it was given."""

    def __init__(self, name: str, log: list[str], seconds: list[float]) -> None:
        self.name, self.log, self.seconds = name, log, list(seconds)

    def turn(self) -> Turn:
        self.log.append(self.name)
        return Turn(self.seconds.pop(0), 10)

    def close(self) -> None:
        self.log.append(f"{self.name} closed")


class Refusing(Scripted):
    def turn(self) -> Turn:
        raise CannotRun("it has no environment")


def turns(*seconds: float, steps: int = 10) -> list[Turn]:
    return [Turn(value, steps) for value in seconds]


def test_contenders_take_turns_after_one_turn_to_warm_up() -> None:
    log: list[str] = []
    contenders: dict[Name, Contender] = {Name("a", name): Scripted(name, log, [9.0, 1.0, 2.0]) for name in "ABC"}
    measured = interleaved(contenders, 2)
    assert "".join(log) == "ABC" * 3
    assert measured.turns == {Name("a", name): turns(1.0, 2.0) for name in "ABC"}


def test_ratios_are_of_times_in_the_same_repeat() -> None:
    """A machine that is ten times slower in the second repeat changes no ratio: 4 / 2 = 40 / 20 = 2.

    Ratios across repeats would be anything from 4 / 20 to 40 / 2.
    """
    log: list[str] = []
    fast, slow = Name("a", "fast"), Name("a", "slow")
    contenders: dict[Name, Contender] = {
        fast: Scripted("fast", log, [1.0, 2.0, 20.0, 2.0]),
        slow: Scripted("slow", log, [1.0, 4.0, 40.0, 6.0]),
    }
    found = interleaved(contenders, 3).turns
    assert times_faster(found[fast], found[slow]) == (2.0, 2.0, 3.0)


def test_where_cohorts_differ_the_time_of_a_step_counts() -> None:
    """2 s for 10 steps against 3 s for 30: 0.2 s against 0.1 s a step."""
    assert times_faster(turns(2.0), turns(3.0, steps=30), per_step=True).median == pytest.approx(0.5)


def test_repeats_of_different_number_are_not_divided() -> None:
    with pytest.raises(ValueError, match="zip"):
        times_faster(turns(1.0, 1.0), turns(1.0))


def test_who_refuses_is_left_out_with_its_reason() -> None:
    log: list[str] = []
    able, unable = Name("a", "able"), Name("a", "unable")
    contenders: dict[Name, Contender] = {
        unable: Refusing("unable", log, []),
        able: Scripted("able", log, [1.0, 1.0]),
    }
    measured = interleaved(contenders, 1)
    assert measured.skipped == {unable: "it has no environment"}
    assert list(measured.turns) == [able]


def test_other_errors_are_not_swallowed() -> None:
    with pytest.raises(IndexError):
        interleaved({Name("a", "short"): Scripted("short", [], [])}, 1)


def test_the_default_engine_is_judged_where_it_was_measured_otherwise_the_fastest() -> None:
    found = {Name("a", "sequential"): turns(3.0), Name("a", "workers"): turns(1.0), Name("b", "auto"): turns(4.0)}
    found[Name("b", "sequential")] = turns(2.0)
    engines = ["sequential", "workers", "auto"]
    assert [judged_engine(found, key, engines) for key in "abc"] == ["workers", "auto", None]


def test_requirements_are_judged_by_the_median_ratio() -> None:
    """CNN: 1.2 s against 1.5 s of two threads is 1.25 times, 1 s of two processes is 0.83 of the best."""
    found = {
        Name("c", "auto"): turns(1.2),
        Name("c", TWO_THREADS): turns(1.5),
        Name("c", ONE_THREAD): turns(2.0),
        Name("c", TWO_PROCESSES): turns(1.0),
        Name("c", "flower"): turns(3.0),
    }
    assert best_bare(found, "c") == TWO_PROCESSES
    judged = verdicts(found, ["auto"], ["flower", "pfl"])
    assert [round(verdict.found.median, 2) for verdict in judged] == [1.25, 0.83, 2.5]
    assert [verdict.reached for verdict in judged] == [True, False, True]


def test_pflego_is_judged_against_fedper_and_by_the_price_of_its_steps() -> None:
    """FedPer 10 s, tau = 50 in 0.4 s, tau = 5 in 0.25 s: 25 times as fast, and 1.6 times the time."""
    found = {
        Name("d-fedper", "sequential"): turns(10.0),
        Name("d-pflego-50", "cached"): turns(0.4, steps=50),
        Name("d-pflego-5", "cached"): turns(0.25, steps=5),
    }
    judged = verdicts(found, ["sequential", "cached"], [])
    assert [round(verdict.found.median, 2) for verdict in judged] == [25.0, 1.6]
    assert [verdict.reached for verdict in judged] == [True, False]
