"""What goes wrong with clients on purpose: some are absent or slow, some send what nobody can use, some are hostile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from plures.core.client import Result
from plures.core.errors import ClientFailed, Gone, InvalidConfig, did_you_mean
from plures.core.losses import Lost
from plures.core.rates import check_count, check_decay, check_positive
from plures.core.seeds import Key, derive_seed, generator
from plures.core.visit import Visit
from plures.participation.tampering import ATTACKS, TAMPERINGS, Attack, Hostility, sent_names

__all__ = ["FAULTS", "Fault", "Faults"]

Fault = Literal[
    "absent",
    "gone",
    "slow",
    "nan",
    "wrong_shape",
    "wrong_name",
    "wrong_dtype",
    "huge",
    "nothing",
    "failing",
    "kill_worker",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
"""In the order in which they share the numbers between 0 and 1: a later one has no say in whom an earlier one hits."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of visits that go wrong, each in one way; which ones depends on seed, round and client alone."""

    absent: float = 0.0
    """Does not answer."""
    gone: float = 0.0
    """Trains, and is not heard of again."""
    slow: float = 0.0
    """Takes `delay` seconds on average."""
    nan: float = 0.0
    """Uploads one value that is no number."""
    wrong_shape: float = 0.0
    wrong_name: float = 0.0
    wrong_dtype: float = 0.0
    huge: float = 0.0
    """Uploads numbers a million million times too large."""
    nothing: float = 0.0
    """Uploads nothing."""
    failing: float = 0.0
    """Ends with an error."""
    kill_worker: float = 0.0
    """Ends the process that does its work, once; without effect where there is but one process."""
    rate: float = 0.0
    """Share of visits that have one of all these, each as likely."""
    delay: float = 10.0
    """Mean of an exponential draw, in seconds of simulated time."""
    attackers: float = 0.0
    """Each client is hostile, for the whole run, with that probability."""
    attack: Attack = "sign_flip"
    attack_scale: float = 10.0
    seed: int = 0
    """Another one tries the same run with other faults."""

    def __post_init__(self) -> None:
        problems = self._wrong_values()
        total = sum(getattr(self, name) for name in (*FAULTS, "rate")) if not problems else 0.0
        if total > 1 + 1e-12:
            problems.append(f"The shares of [faults] add up to {total:g}: a visit has one fault at most. Lower them.")
        if self.attack not in ATTACKS:
            problems.append(f"faults.attack = {self.attack!r} is no attack. {did_you_mean(str(self.attack), ATTACKS)}")
        if problems:
            raise InvalidConfig(problems)

    def _wrong_values(self) -> list[str]:
        checks: dict[str, Callable[[str, float], float]] = dict.fromkeys([*FAULTS, "rate", "attackers"], check_decay)
        checks |= {"delay": check_positive, "attack_scale": check_positive}
        found = [problems_of(check, f"faults.{name}", getattr(self, name)) for name, check in checks.items()]
        return sum(found, problems_of(check_count, "faults.seed", self.seed))

    @property
    def has_any(self) -> bool:
        """Whether anything ever goes wrong."""
        return any(getattr(self, name) for name in (*FAULTS, "rate", "attackers"))

    def chance(self, fault: Fault) -> float:
        """The share of visits that have this fault."""
        share: float = getattr(self, fault)
        return share + self.rate / len(FAULTS)

    def fault_of(self, seed: int, round: int, client: int) -> Fault | None:
        """What goes wrong with a visit; one draw decides, so that it is one thing at most."""
        drawn = self._draw(seed, "faults", round, client)
        for fault in FAULTS:
            drawn -= self.chance(fault)
            if drawn < 0:
                return fault
        return None

    def is_absent(self, seed: int, round: int, client: int) -> bool:
        return self.fault_of(seed, round, client) == "absent"

    def seconds(self, seed: int, round: int, client: int) -> float:
        if self.fault_of(seed, round, client) != "slow":
            return 0.0
        return -self.delay * math.log1p(-self._draw(seed, "delays", round, client))

    def kills_worker(self, seed: int, round: int, client: int) -> bool:
        return self.fault_of(seed, round, client) == "kill_worker"

    def is_hostile(self, seed: int, client: int) -> bool:
        """Whether a client is hostile, in every round of the run."""
        return self._draw(seed, "attackers", client) < self.attackers

    def after(self, visit: Visit, result: Result) -> Result | Lost:
        """What reaches the server; where there is no upload to spoil, the client is gone."""
        fault = self.fault_of(visit.seed, visit.round, visit.client)
        if fault == "failing":
            return Lost(visit.client, told(ClientFailed, "It failed while it worked", visit))
        if fault == "gone" or (fault in TAMPERINGS and not sent_names(result.upload)):
            return Lost(visit.client, told(Gone, "It was not heard of again", visit))
        if fault in TAMPERINGS:
            return result._replace(upload=TAMPERINGS[fault](result.upload))
        if self.attackers and self.is_hostile(visit.seed, visit.client):
            draws = generator(visit.seed, "attacks", self.seed, visit.round, visit.client)
            spoil = Hostility(attack=self.attack, scale=self.attack_scale)
            return result._replace(upload=spoil(result.upload, draws))
        return result

    def _draw(self, seed: int, purpose: str, *keys: Key) -> float:
        """At least 0 and below 1."""
        return (derive_seed(seed, purpose, self.seed, *keys) >> 10) / 2**53


def told(kind: type[ClientFailed], what: str, visit: Visit) -> ClientFailed:
    name = visit.name or str(visit.client)
    return kind(what, client=name, round=visit.round, phase="faults", remedy="It is one of the run's [faults].")


def problems_of(check: Callable[..., object], *given: object) -> list[str]:
    try:
        check(*given)
    except InvalidConfig as error:
        return error.problems
    return []
