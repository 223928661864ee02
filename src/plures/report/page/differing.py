"""Labels of one method that differ in one number alone, such as a strength of regularisation or a rate of dropout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plures.report.page.gathered import Gathered, Labelled
from plures.report.studies import configuration_of

Flat = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Several values of one option, from the smallest to the largest."""

    method: str
    option: str
    """As in an experiment file: method_options.lam."""
    members: Sequence[tuple[float, Labelled]]


def sweeps_of(found: Gathered) -> list[Sweep]:
    """Every option in which at least two labels with differences differ, and in nothing else."""
    flats = [(one, flat_configuration(one)) for one in found.compared]
    known = [(one, flat) for one, flat in flats if flat]
    sweeps: list[Sweep] = []
    taken: set[frozenset[str]] = set()
    for place, (first, configuration) in enumerate(known):
        for _, another in known[place + 1 :]:
            option = the_difference(configuration, another)
            if option is None:
                continue
            members = [(flat[option], one) for one, flat in known if alike_but(option, configuration, flat)]
            group = frozenset([option, *(one.label for _, one in members)])
            if group not in taken:
                taken.add(group)
                sweeps.append(sweep(str(first.row.method), option, members))
    return sweeps


def sweep(method: str, option: str, members: Sequence[tuple[float, Labelled]]) -> Sweep:
    return Sweep(method=method, option=option, members=sorted(members, key=lambda member: member[0]))


def flat_configuration(one: Labelled) -> Flat:
    """Keys as TOML writes them with dots; empty where nothing was recorded."""
    return flattened(configuration_of(one.runs[0].folder) or {})


def flattened(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{above}{key}"
        found |= flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def the_difference(one: Flat, other: Flat) -> str | None:
    """The only key in which two differ, if it has numbers in both and the method is the same."""
    keys = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    if len(keys) != 1 or not is_number(one.get(keys[0])) or not is_number(other.get(keys[0])):
        return None
    return keys[0]


def alike_but(option: str, one: Flat, other: Flat) -> bool:
    return one == other or the_difference(one, other) == option


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
