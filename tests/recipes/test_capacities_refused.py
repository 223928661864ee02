"""Capacities that cannot work: one clear error before round 1, from Python and from a file, and no run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plures import load_experiment, make_experiment, run, run_experiment
from plures.core.errors import InvalidConfig
from plures.methods import METHODS
from plures.models import mlp
from plures.recipes import planned_cost
from tests.recipes.helpers import NEED_NORMS, built, table

NAN, INF = float("nan"), float("inf")
BAD: dict[str, tuple[Any, str]] = {
    "zero": ({"density": 0}, "capacity.density = 0: a capacity is above 0"),
    "negative": ({"density": -0.5}, "capacity.density = -0.5: a capacity is above 0"),
    "NaN": ({"density": NAN}, "capacity.density = nan: give 0.5; a list"),
    "infinite": ({"flops": INF}, "capacity.flops = inf: give 0.5; a list"),
    "too large for a number": ({"flops": 10**400}, "capacity.flops = 1000"),
    "more than all": ({"density": 1.5}, "capacity.density = 1.5: a density is above 0 and at most 1"),
    "text": ({"density": "half"}, "capacity.density = 'half': give 0.5; a list"),
    "true": ({"density": True}, "capacity.density = True: give"),
    "empty list": ({"density": []}, "capacity.density = []: give finite numbers"),
    "short list": ({"density": [0.5, 0.5]}, "capacity.density has 2 numbers for 4 clients"),
    "long list": ({"density": [0.5] * 5}, "has 5 numbers for 4 clients: give one for each"),
    "zero in a list": ({"density": [0.5, 0.5, 0.5, 0]}, "a capacity is above 0"),
    "NaN in a list": ({"density": [0.5, 0.5, 0.5, NAN]}, "give finite numbers in a list"),
    "too much in a list": ({"density": [0.5, 0.5, 0.5, 2]}, "capacity.density = 2.0: a density is"),
    "true in a list": ({"density": [0.5, 0.5, 0.5, True]}, "give finite numbers in a list"),
    "text in a list": ({"density": [0.5, 0.5, 0.5, "1"]}, "give finite numbers in a list"),
    "shares below 1": ({"tiers": [[0.1, 1.0], [0.8, 0.5]]}, "[0.1, 0.8]: give shares from 0 on that add up to 1"),
    "shares above 1": ({"tiers": [[0.5, 1.0], [0.6, 0.5]]}, "add up to 1"),
    "negative share": ({"tiers": [[1.5, 1.0], [-0.5, 0.5]]}, "give shares from 0 on"),
    "NaN share": ({"tiers": [[NAN, 1.0], [0.5, 0.5]]}, "capacity.density.tiers = [nan, 1.0]: give 2 finite numbers"),
    "tiers without pairs": ({"tiers": [0.5, 0.5]}, "capacity.density.tiers = 0.5: give 2 finite numbers"),
    "no tiers": ({"tiers": []}, "capacity.density.tiers = []: give pairs"),
    "tiers as text": ({"tiers": "half"}, "capacity.density.tiers = 'half': give pairs"),
    "too much in a tier": ({"tiers": [[0.5, 0.5], [0.5, 2.0]]}, "capacity.density = 2.0: a density is"),
    "no choice": ({"density": {"choice": []}}, "capacity.density.choice = []: give finite numbers"),
    "zero to choose": ({"density": {"choice": [0, 0.5]}}, "a capacity is above 0"),
    "one bound": ({"density": {"uniform": [0.1]}}, "capacity.density.uniform = [0.1]: give 2 finite numbers"),
    "bounds swapped": ({"density": {"uniform": [0.9, 0.1]}}, "the first bound is the smaller one"),
    "bound of zero": ({"density": {"uniform": [0, 1]}}, "a capacity is above 0"),
    "bound above 1": ({"density": {"uniform": [0.5, 2]}}, "goes from 0.5 to 2, but numbers up to 1 are shares"),
    "shares and numbers": ({"flops": {"uniform": [0.5, 900]}}, "Give one kind"),
    "median of zero": ({"density": {"lognormal": [0, 0.3]}}, "a capacity is above 0"),
    "negative spread": ({"density": {"lognormal": [0.5, -1]}}, "a spread is from 0 to 10"),
    "spread too wide for any model": ({"density": {"lognormal": [0.5, 5]}}, "is too little for this model"),
    "unknown rule": ({"density": {"normal": [0.5, 0.1]}}, "no rule 'normal'. Did you mean 'lognormal'"),
    "unknown unit": ({"densty": 0.5}, "[capacity] has no key 'densty'. Did you mean 'density'"),
    "two units": ({"density": 0.5, "flops": 0.5}, "[capacity] has density, flops: give one of density, width"),
    "two rules": ({"density": {"choice": [0.5], "uniform": [0.1, 0.5]}}, "give 0.5; a list"),
    "unit of another method": ({"width": 0.5}, "capacity.width: this method counts in density"),
    "nothing": ({}, "capacity.density = {}: give"),
    "density too small for any model": ({"density": 1e-6}, "capacity.density = 1e-06 is too little for this model"),
    "flops too few for any model": ({"flops": 2}, "capacity.flops = 2: even the smallest model needs more"),
    "bytes too few for one client": ({"bytes": [0.5, 0.5, 0.5, 3]}, "capacity.bytes = 3: even the smallest"),
}  # fmt: skip


def refused(form: Any, folder: Path, *, in_python: bool, method: str = "fedspa") -> InvalidConfig:
    """The error of a run that must not begin; it leaves no folder."""
    start = begin_in_python if in_python else begin_from_a_file
    with pytest.raises(InvalidConfig) as found:
        start(method, form, folder / "run")
    assert list(folder.iterdir()) == []
    return found.value


def begin_in_python(method: str, form: Any, out: Path) -> None:
    network = mlp(shape=(4,), hidden=(5,), classes=4, batch_norm=method in NEED_NORMS)
    run(method, built().federation, network, rounds=1, capacity=form, out=out)


def begin_from_a_file(method: str, form: Any, out: Path) -> None:
    run_experiment(make_experiment(table(method) | {"capacity": form}), out=out)


@pytest.mark.parametrize("in_python", [True, False], ids=["python", "file"])
@pytest.mark.parametrize(("form", "says"), BAD.values(), ids=BAD)
def test_a_capacity_that_cannot_work_is_one_clear_error_before_round_1(form, says, in_python, tmp_path):
    error = refused(form, tmp_path, in_python=in_python)

    assert len(error.problems) == 1
    assert says in str(error)


@pytest.mark.parametrize("form", ["half", True, [0.5], print, {1: 2}, [[0.5] * 4], {"tiers": {"a": 1}}])
def test_what_only_python_can_give_is_one_clear_error_too(form, tmp_path):
    assert len(refused(form, tmp_path, in_python=True).problems) == 1


DENSE = [name for name, info in METHODS.items() if info.make().capacity is None]


@pytest.mark.parametrize("in_python", [True, False], ids=["python", "file"])
@pytest.mark.parametrize("method", ["fedavg", "pflego", "ditto"])
def test_a_method_that_gives_everybody_the_whole_model_refuses_capacities(method, in_python, tmp_path):
    error = refused({"density": 0.5}, tmp_path, in_python=in_python, method=method)

    assert len(error.problems) == 1
    assert f"{method} gives every client the whole model" in str(error)
    assert "docs/capacity.md" in str(error)


def test_most_methods_have_no_use_for_capacities():
    assert {"fedavg", "pflego", "ditto", "local", "scaffold"} <= set(DENSE)
    assert not {"fedspa", "heterofl"} & set(DENSE)


@pytest.mark.parametrize("value", [0.5, "0.5", [0.5, 0.5], True])
def test_in_a_file_a_capacity_is_a_table(value):
    with pytest.raises(InvalidConfig) as found:
        make_experiment({"method": "fedspa", "capacity": value})

    assert found.value.problems == [f"capacity = {value!r}: input should be a valid dictionary."]


def test_a_capacity_may_be_changed_from_the_command_line(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text('method = "fedspa"\n[capacity]\ndensity = 0.5\n', encoding="utf-8")

    assert load_experiment(path, ["capacity.density=[0.1, 0.2]"]).capacity == {"density": [0.1, 0.2]}


@pytest.mark.parametrize("name", ["zero", "short list", "unknown unit", "density too small for any model"])
def test_costs_are_not_planned_for_a_capacity_that_cannot_work(name):
    form, says = BAD[name]

    with pytest.raises(InvalidConfig) as found:
        planned_cost(make_experiment(table("fedspa") | {"capacity": form}))

    assert len(found.value.problems) == 1
    assert says in str(found.value)
