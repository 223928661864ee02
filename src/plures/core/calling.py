"""Who of a cohort comes when it is called: some are absent, some slow, and some are not needed any more."""

from __future__ import annotations

from collections.abc import Sequence

from plures.core.context import Conduct
from plures.core.losses import LossKind, Missing
from plures.core.roles import Population
from plures.core.seeds import derive_seed


def comers(
    conduct: Conduct, population: Population, called: Sequence[int], wanted: int | None, seed: int, round: int
) -> tuple[tuple[int, ...], tuple[Missing, ...]]:
    """Those that work in time, in the order of the cohort, and the others with the reason.

    What is slow is known before it works, for in a simulation seconds are drawn: nobody works in vain.
    """
    faults = conduct.faults
    if conduct.is_real or (faults is None and (wanted is None or wanted >= len(called))):
        return tuple(called), ()
    reasons: dict[int, tuple[LossKind, str]] = {}
    seconds: dict[int, float] = {}
    for client in called:
        if faults is not None and faults.is_absent(seed, round, client):
            reasons[client] = ("absent", "did not answer")
            continue
        seconds[client] = 0.0 if faults is None else faults.seconds(seed, round, client)
        if conduct.tolerance.deadline is not None and seconds[client] > conduct.tolerance.deadline:
            took = f"{seconds.pop(client):.3g} s, more than the deadline of {conduct.tolerance.deadline:g} s"
            reasons[client] = ("late", took)
    # Of those that are equally quick, the numbers of clients must not decide who is left out.
    order = sorted(seconds, key=lambda client: (seconds[client], derive_seed(seed, "arrival", round, client)))
    reasons |= dict.fromkeys(order[wanted:] if wanted is not None else (), ("surplus", f"{wanted} others were quicker"))
    missing = [
        Missing(client=client, name=population.name(client), kind=reasons[client][0], reason=reasons[client][1])
        for client in called
        if client in reasons
    ]
    return tuple(client for client in called if client not in reasons), tuple(missing)
