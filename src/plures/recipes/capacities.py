"""What each client can afford: from a number, a list, tiers or a distribution to the capacity of each client."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

import torch

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.method import Capacity, CapacityUnit
from plures.core.networks import Network
from plures.core.program import Binding, Program
from plures.core.seeds import generator
from plures.parts.profile import profile
from plures.recipes.message_bounds import most_bytes

Of = Callable[[int], float]
"""From a client's number to what it can afford."""

Ends = tuple[float, ...]
"""Some values between which, or equal to which, all others are."""

UNITS = (*get_args(CapacityUnit), "flops", "bytes")
FORMS = (
    "0.5; a list with one number for each client; {tiers = [[0.1, 1.0], [0.9, 0.5]]}, shares of the clients and their "
    "values; {choice = [0.5, 0.1]}; {uniform = [0.1, 0.9]}; or {lognormal = [0.5, 0.3]}, median and spread"
)
HALVINGS = 26
"""Steps of the search for the largest model that a client can afford: to one weight in 67 million."""
LARGEST = 1e300
"""No capacity is larger."""
WIDEST = 10
"""Of log-normal spreads: a factor of 22,000 for every standard deviation."""


@dataclass(frozen=True, kw_only=True)
class Capacities:
    """What clients can afford, in one unit."""

    unit: str
    of: Of
    ends: Ends
    """The least and the most of them: if these can be had, so can all."""


def read_capacities(given: Any, num_clients: int, seed: int, own_unit: str) -> Capacities:
    """From a table such as {density = 0.5}, or a value alone, which is in the method's own unit."""
    unknown = [key for key in given if key not in (*UNITS, *RULES)] if isinstance(given, Mapping) else []
    if unknown:
        raise InvalidConfig(f"[capacity] has no key '{unknown[0]}'. {did_you_mean(str(unknown[0]), [*UNITS, *RULES])}")
    table = dict(given) if isinstance(given, Mapping) and set(given) & set(UNITS) else {own_unit: given}
    if len(table) != 1:
        raise InvalidConfig(f"[capacity] has {', '.join(sorted(map(str, table)))}: give one of {', '.join(UNITS)}.")
    ((unit, value),) = table.items()
    of, ends = read_values(f"capacity.{unit}", value, num_clients, seed)
    if min(ends) <= 0:
        raise InvalidConfig(f"capacity.{unit} = {value!r:.200}: a capacity is above 0.")
    return Capacities(unit=unit, of=of, ends=ends)


def read_values(where: str, value: Any, num_clients: int, seed: int) -> tuple[Of, Ends]:
    """Each client's value, and the ends between which they are."""
    if is_number(value):
        return lambda client: float(value), (float(value),)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return one_each(where, value, num_clients)
    if isinstance(value, Mapping) and len(value) == 1:
        ((rule, numbers),) = value.items()
        if rule not in RULES:
            raise InvalidConfig(f"{where} has no rule '{rule}'. {did_you_mean(str(rule), RULES)}")
        return RULES[rule](where, numbers, num_clients, seed)
    raise InvalidConfig(f"{where} = {value!r:.200}: give {FORMS}.")


def is_number(value: Any) -> bool:
    """A finite one; True is none, and an integer may be too large for any use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST < value < LARGEST


def check_numbers(where: str, numbers: Any, count: int | None = None) -> list[float]:
    right = isinstance(numbers, Sequence) and len(numbers) > 0 and all(is_number(number) for number in numbers)
    if not right or (count is not None and len(numbers) != count):
        wanted = f"{count} finite numbers" if count is not None else "finite numbers"
        raise InvalidConfig(f"{where} = {numbers!r:.200}: give {wanted} in a list.")
    return [float(number) for number in numbers]


def ends_of(numbers: Sequence[float]) -> Ends:
    """The least and the most of the shares, and of the numbers above 1, which may be no shares."""
    kinds = [[number for number in numbers if number <= 1], [number for number in numbers if number > 1]]
    return tuple(end for kind in kinds if kind for end in (min(kind), max(kind)))


def check_one_kind(where: str, given: Any, low: float, high: float) -> None:
    if low <= 1 < high:
        raise InvalidConfig(
            f"{where} = {given!r} goes from {low:.3g} to {high:.3g}, but numbers up to 1 are shares and larger ones "
            "are FLOPs or bytes. Give one kind."
        )


def one_each(where: str, value: Sequence[Any], num_clients: int) -> tuple[Of, Ends]:
    numbers = check_numbers(where, value)
    if len(numbers) != num_clients:
        raise InvalidConfig(f"{where} has {len(numbers)} numbers for {num_clients} clients: give one for each.")
    return lambda client: numbers[client], ends_of(numbers)


def tiers(where: str, pairs: Any, num_clients: int, seed: int) -> tuple[Of, Ends]:
    """Shares of the clients, drawn once for all; the last tier takes what rounding leaves over."""
    if not isinstance(pairs, Sequence) or isinstance(pairs, str) or not pairs:
        raise InvalidConfig(f"{where}.tiers = {pairs!r}: give pairs of a share and a value, [[0.1, 1.0], [0.9, 0.5]].")
    read = [check_numbers(f"{where}.tiers", pair, 2) for pair in pairs]
    if abs(sum(share for share, _ in read) - 1) > 1e-6 or any(share < 0 for share, _ in read):
        raise InvalidConfig(
            f"{where}.tiers has shares {[share for share, _ in read]}: give shares from 0 on that add up to 1."
        )
    shares = [share for share, _ in read[:-1]]
    ends = [round(sum(shares[:number]) * num_clients) for number in range(1, len(read))] + [num_clients]
    place = torch.empty(num_clients, dtype=torch.int64)
    place[torch.randperm(num_clients, generator=generator(seed, "capacity"))] = torch.arange(num_clients)

    def of(client: int) -> float:
        return next(value for (_, value), end in zip(read, ends, strict=True) if int(place[client]) < end)

    return of, ends_of([value for _, value in read])


def choice(where: str, values: Any, num_clients: int, seed: int) -> tuple[Of, Ends]:
    """One of some values for each client, all equally likely."""
    numbers = check_numbers(f"{where}.choice", values)
    return lambda client: numbers[int(drawn(seed, client) * len(numbers))], ends_of(numbers)


def uniform(where: str, bounds: Any, num_clients: int, seed: int) -> tuple[Of, Ends]:
    """Evenly between two bounds."""
    low, high = check_numbers(f"{where}.uniform", bounds, 2)
    if high < low:
        raise InvalidConfig(f"{where}.uniform = {bounds!r}: the first bound is the smaller one.")
    check_one_kind(f"{where}.uniform", bounds, low, high)
    return lambda client: low + (high - low) * drawn(seed, client), (low, high)


def lognormal(where: str, numbers: Any, num_clients: int, seed: int) -> tuple[Of, Ends]:
    """A median and a spread, as speeds of devices are found to be; shares end at 1, and spreads at three of them."""
    median, spread = check_numbers(f"{where}.lognormal", numbers, 2)
    if not 0 <= spread <= WIDEST:
        raise InvalidConfig(f"{where}.lognormal = {numbers!r}: a spread is from 0 to {WIDEST}.")
    most = 1.0 if median <= 1 else LARGEST
    ends = tuple(min(most, median * math.exp(side * spread)) for side in (-3, 3))
    check_one_kind(f"{where}.lognormal", numbers, *ends)

    def of(client: int) -> float:
        normal = torch.randn((), generator=generator(seed, "capacity", client), dtype=torch.float64)
        return min(most, median * math.exp(spread * float(normal.clamp(-3, 3))))

    return of, ends


RULES: dict[str, Callable[[str, Any, int, int], tuple[Of, Ends]]] = {
    "tiers": tiers,
    "choice": choice,
    "uniform": uniform,
    "lognormal": lognormal,
}


def drawn(seed: int, client: int) -> float:
    """From [0, 1), by the client's number."""
    return float(torch.rand((), generator=generator(seed, "capacity", client), dtype=torch.float64))


def affordable(program: Program, given: Any, num_clients: int) -> Of:
    """Each client's capacity in the unit of the program's method; refused where no model is small enough."""
    rule = program.method.capacity
    if rule is None:
        raise InvalidConfig(
            f"{program.method.name} gives every client the whole model, so it has no use for a capacity. "
            "Choose a method with sparse or narrow models (see docs/capacity.md), or leave the capacity out."
        )
    wanted = read_capacities(given, num_clients, program.seed, rule.unit)
    convert = lru_cache(maxsize=1024)(converter(rule, program.binding(0), wanted.unit))
    for end in sorted(wanted.ends, key=lambda end: (end <= 1, end)):  # the least first; shares after numbers
        convert(end)
    return lambda client: convert(wanted.of(client))


def converter(rule: Capacity, binding: Binding, unit: str) -> Callable[[float], float]:
    """From a value in one unit to the largest capacity of the method whose model does not exceed it."""
    if unit == rule.unit:
        return lambda value: check_share(rule, binding.network, value)
    if unit not in ("flops", "bytes"):
        raise InvalidConfig(f"capacity.{unit}: this method counts in {rule.unit}; give that, flops or bytes.")
    cost = cost_in(unit, rule, binding)
    whole = cost(1.0)

    def largest(value: float) -> float:
        limit = value * whole if value <= 1 else value
        low, high, found = 0.0, 1.0, 0.0
        if limit >= whole:
            return 1.0
        if cost(0.5) == whole:
            raise InvalidConfig(f"capacity.{unit}: give capacity.{rule.unit}, which alone says what is used here.")
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            needed = cost(middle)
            if needed <= limit:
                found = middle
            low, high = (low, middle) if limit < needed < math.inf else (middle, high)  # inf: too little for any model
        if found == 0.0:
            raise InvalidConfig(f"capacity.{unit} = {value:g}: even the smallest model needs more.")
        return found

    return largest


def check_share(rule: Capacity, network: Network, value: float) -> float:
    """A value in the method's own unit, of which there must be a model."""
    if not 0 < value <= 1:
        raise InvalidConfig(f"capacity.{rule.unit} = {value!r}: a {rule.unit} is above 0 and at most 1.")
    try:
        rule.sizes(network, value)
    except InvalidConfig as error:
        raise InvalidConfig(f"capacity.{rule.unit} = {value:g} is too little for this model: {error}") from error
    return value


def cost_in(unit: str, rule: Capacity, binding: Binding) -> Callable[[float], float]:
    """What a model of some capacity costs: FLOPs of one example forward, or bytes."""
    network = binding.network
    whole = {name: value.numel() for name, value in network.params.items()}
    cost_of = profile(network.module, network.example).flops if unit == "flops" else most_bytes(rule, binding)

    def cost(capacity: float) -> float:
        try:
            return float(cost_of(whole | dict(rule.sizes(network, capacity))))
        except InvalidConfig:  # too little for any model
            return math.inf

    return cost
