"""Who takes part in a round; draws are keyed by seed and round alone, so all methods see the same cohorts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, NamedTuple, Protocol, TypeGuard

import torch

from plures.core.errors import InvalidConfig
from plures.core.rates import check_count
from plures.core.seeds import generator

__all__ = [
    "SAMPLERS",
    "Cohort",
    "Sampler",
    "all_clients",
    "as_sampler",
    "binomial",
    "random_size",
    "round_robin",
    "uniform",
]


class Cohort(NamedTuple):
    """The clients of one round, ascending, and the probability that a client is among them."""

    clients: tuple[int, ...]
    inclusion: float
    """Known before the draw; the same for every client."""
    wanted: int | None = None
    """How many are to arrive, where more than that are called."""


class Sampler(Protocol):
    """Draws the cohort of a round."""

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort: ...

    def check(self, num_clients: int) -> None:
        """Raise InvalidConfig if no cohort can be drawn from so many clients."""


@dataclass(frozen=True, kw_only=True)
class AllClients:
    """Everybody in every round."""

    def check(self, num_clients: int) -> None:
        _check_population(num_clients)

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        return Cohort(tuple(range(num_clients)), 1.0)


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """A fixed number (int) or share (float) of the clients, without replacement, all subsets equally likely."""

    size: int | float

    def __post_init__(self) -> None:
        if _is_number_of_clients(self.size):
            check_count("the size of a cohort", self.size, least=1)
        else:
            _check_share("the share of clients in a cohort", self.size)

    def num_drawn(self, num_clients: int) -> int:
        return self.size if _is_number_of_clients(self.size) else max(1, int(self.size * num_clients))

    def check(self, num_clients: int) -> None:
        _check_population(num_clients, self.num_drawn(num_clients))

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        num_drawn = self.num_drawn(num_clients)
        clients = subset(num_clients, num_drawn, generator(seed, "cohort", round))
        return Cohort(clients, num_drawn / num_clients)


@dataclass(frozen=True, kw_only=True)
class Binomial:
    """Each client by itself with the same probability; the cohort may be empty."""

    rate: float

    def __post_init__(self) -> None:
        _check_share("rate of binomial participation", self.rate)

    def check(self, num_clients: int) -> None:
        _check_population(num_clients)

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        draws = torch.rand(num_clients, generator=generator(seed, "cohort", round), dtype=torch.float64)
        return Cohort(tuple((draws < self.rate).nonzero().flatten().tolist()), float(self.rate))


@dataclass(frozen=True, kw_only=True)
class RandomSize:
    """A number of clients between low and high, each equally likely; then that many, without replacement."""

    low: int
    high: int

    def __post_init__(self) -> None:
        check_count("low of random_size", self.low)
        check_count("high of random_size", self.high, least=max(1, self.low))

    def check(self, num_clients: int) -> None:
        _check_population(num_clients, self.high)

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        draws = generator(seed, "cohort", round)
        num_drawn = int(torch.randint(self.low, self.high + 1, (), generator=draws))
        # By the mean size: weights by the size that was drawn would be biased.
        return Cohort(subset(num_clients, num_drawn, draws), (self.low + self.high) / 2 / num_clients)


@dataclass(frozen=True, kw_only=True)
class RoundRobin:
    """Consecutive clients in turn, from the first again after the last."""

    size: int

    def __post_init__(self) -> None:
        check_count("size of round_robin", self.size, least=1)

    def check(self, num_clients: int) -> None:
        _check_population(num_clients, self.size)

    def draw(self, num_clients: int, round: int, seed: int) -> Cohort:
        first = (round - 1) * self.size
        clients = sorted((first + place) % num_clients for place in range(self.size))
        return Cohort(tuple(clients), self.size / num_clients)


def all_clients() -> Sampler:
    """Everybody in every round."""
    return AllClients()


def uniform(size: int | float) -> Sampler:
    """`size` clients if it is an int, that share of the clients (at least one) if it is a float."""
    return Uniform(size=size)


def binomial(rate: float) -> Sampler:
    """Each client by itself with probability `rate`."""
    return Binomial(rate=rate)


def random_size(low: int, high: int) -> Sampler:
    """Uniformly drawn clients, whose number is itself drawn, from low to high."""
    return RandomSize(low=low, high=high)


def round_robin(size: int) -> Sampler:
    """The next `size` clients by number in every round, from the first again after the last."""
    return RoundRobin(size=size)


def as_sampler(value: Literal["all"] | int | float | Sampler) -> Sampler:
    """A sampler as it is; "all" as everybody; a number as a uniform cohort of that size or share."""
    if value == "all":
        return all_clients()
    if isinstance(value, int | float):
        return uniform(value)
    if isinstance(value, str) or not hasattr(value, "draw"):
        raise InvalidConfig(f"a cohort must be 'all', a number, a share such as 0.1 or a sampler, not {value!r}.")
    return value


def subset(num_clients: int, num_drawn: int, draws: torch.Generator) -> tuple[int, ...]:
    """A uniform subset in time and memory of its own size (Floyd's algorithm)."""
    tops = range(num_clients - num_drawn, num_clients)
    # The remainder of 63 bits favours no client by more than num_clients / 2^63.
    bits = torch.randint(2**63 - 1, (num_drawn,), generator=draws)
    chosen: set[int] = set()
    for top, draw in zip(tops, bits.tolist(), strict=True):
        place = draw % (top + 1)
        chosen.add(top if place in chosen else place)
    return tuple(sorted(chosen))


def _is_number_of_clients(size: int | float) -> TypeGuard[int]:
    return isinstance(size, Integral)


def _check_population(num_clients: int, num_drawn: int = 1) -> None:
    check_count("the number of clients", num_clients, least=1)
    if num_drawn > num_clients:
        raise InvalidConfig(f"a cohort of {num_drawn} clients cannot be drawn from {num_clients}. Make it smaller.")


def _check_share(what: str, value: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value <= 1:
        raise InvalidConfig(f"{what} must be above 0 and at most 1, not {value!r}.")


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "all": all_clients,
    "uniform": uniform,
    "binomial": binomial,
    "random_size": random_size,
    "round_robin": round_robin,
}
