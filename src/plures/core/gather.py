"""What reaches the server in a round: the cohort's results, carried, checked and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import torch

from plures.core.client import REFRESH, Result
from plures.core.context import RoundContext, RoundOutcome, RoundReport, Server
from plures.core.errors import ClientFailed, Diverged, InvalidMessage
from plures.core.losses import LossKind, Lost, Missing, check_enough
from plures.core.program import Program
from plures.core.refusing import check_norm, check_upload, refused
from plures.core.seeds import generator
from plures.core.sums import in_blocks
from plures.core.types import Params
from plures.core.visit import Visit
from plures.core.wire import NOTHING_SENT, Message, count_values, send


class Arrival(NamedTuple):
    """A client's visit and what came of it."""

    visit: Visit
    result: Result


class Gathering:
    """The work of a cohort as it reaches the server; every round, of whatever shape, begins with one."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.tally = Tally(round=context.round, clients=context.called, lost=list(context.missing))
        self.states: dict[int, Params] = {}
        self._under_way: dict[int, Visit] = {}

    def blocks(self, results: Iterable[Result | Lost] | None = None) -> Iterator[list[Arrival]]:
        """What arrives of the cohort, in order, block by block; by default of the method's own local work."""
        if results is None:
            results = self.context.engine.run(self.context.program, self.visits())
        for block in in_blocks(results):
            arrivals = [self._arrived(result) for result in block]
            yield [arrival for arrival in arrivals if arrival is not None]

    def visits(self) -> Iterator[Visit]:
        """The cohort's visits, for work that is not the method's own."""
        for visit in self.context.visits():
            self._under_way[visit.client] = visit
            yield visit

    def stage(self) -> None:
        """Hand what has arrived of clients' states to the store, so that memory holds a block of them at most."""
        self.context.store.stage(self.context.round, self.states)
        self.states = {}

    def outcome(self, server: Server) -> RoundOutcome:
        """The round, if enough have arrived."""
        check_enough(
            self.tally.arrived,
            self.context.num_wanted,
            self.context.conduct.tolerance,
            self.tally.lost,
            self.context.round,
        )
        self._count_downloads_in_vain()
        return RoundOutcome(server=server, states=self.states, report=self.tally.report())

    def _arrived(self, result: Result | Lost) -> Arrival | None:
        visit = self._under_way.pop(result.client)
        try:
            result = self._accepted(visit, result)
        except ClientFailed as error:
            if not self.context.conduct.tolerance.bears_losses:
                raise
            self.tally.lose(visit, error)
            return None
        if self.context.on_result is not None:
            self.context.on_result(visit, result)
        if self.context.program.method.stateful and result.state:
            self.states[result.client] = result.state
        return Arrival(visit, result)

    def _accepted(self, visit: Visit, result: Result | Lost) -> Result:
        """A result as the server takes it in; an error where it does not."""
        program, conduct = self.context.program, self.context.conduct
        if conduct.faults is not None and isinstance(result, Result):
            result = conduct.faults.after(visit, result)
        if isinstance(result, Lost):
            raise result.error
        check_upload(result, visit, self.context.server.shared, program.binding(visit.client).parts)
        check_finite(result, visit)
        check_norm(result, visit, conduct.tolerance.largest_norm)
        result = carried(program, visit, result)
        self.tally.add(visit, result, check_capacity(program, visit, result))
        return result

    def _count_downloads_in_vain(self) -> None:
        """Who came too late was sent a model all the same."""
        slow = [one.client for one in self.context.missing if one.kind in ("late", "surplus")]
        for client in slow:
            self.tally.count_download(self.context.visit(client, 0))


def carried(program: Program, visit: Visit, result: Result) -> Result:
    """A result as the server gets it: a lossy wire has rounded what was uploaded, unless it came by one already."""
    if result.up != NOTHING_SENT:
        return result
    draws = partial(generator, visit.seed, "wire up", visit.round, visit.client)
    try:
        message, up = send(program.wire, result.message(), upward=True, draws=draws)
    except InvalidMessage as error:
        remedy = "Lower the learning rate, or choose another code in [wire]."
        raise refused(str(error).rstrip("."), visit, kind="too_large", remedy=remedy) from error
    return result._replace(upload=message.parcel, up=up)


def check_finite(result: Result, visit: Visit) -> None:
    """Stop before a number that is none can reach the sum."""
    for phase, loss in result.losses.items():
        if not torch.isfinite(loss):
            raise diverged("The training loss is not a finite number", phase, visit)
    all_of_it = (result.upload.values, result.state, result.buffers, result.known)
    sent = [value for params in all_of_it for value in params.values() if value.is_floating_point()]
    if sent and not torch.isfinite(torch.stack(torch._foreach_norm(sent))).all():
        phase = next(reversed(result.losses), "none")
        raise diverged("The trained parameters are not finite numbers", phase, visit)


def diverged(what: str, phase: str, visit: Visit) -> Diverged:
    remedy = "Lower the learning rate, clip the gradients, or look at this client's data."
    return Diverged(what, client=visit.name or str(visit.client), round=visit.round, phase=phase, remedy=remedy)


def check_capacity(program: Program, visit: Visit, result: Result) -> float | None:
    """The share of its capacity that a client used; more than all of it is a defect of the method."""
    rule = program.method.capacity
    if rule is None:
        return None
    allowed = program.sizes(visit.client)
    used = sum(result.used.get(name, size) for name, size in allowed.items())
    if result.whole_passes:
        values = program.binding(visit.client).values
        used = sum(values[name].numel() for name in allowed)
    sent = count_values(Message(result.upload)) if rule.limits_uploads else 0
    whole = sum(allowed.values())
    first = rule.whole_at_first and bool(result.whole_passes)
    if (used > whole and not first) or sent > whole:
        raise ClientFailed(
            f"The client uses {used:,} and uploads {sent:,} values, but its capacity is {whole:,}",
            client=visit.name or str(visit.client),
            round=visit.round,
            phase=REFRESH,
            remedy="Correct the method: a client's capacity is a promise.",
        )
    return used / whole if whole else 0.0


@dataclass(kw_only=True)
class Tally:
    """Adds up what a round cost."""

    round: int
    clients: tuple[int, ...]
    lost: list[Missing] = field(default_factory=list)
    arrived: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    values_down: int = 0
    values_up: int = 0
    passes: float = 0.0
    used: float | None = None
    losses: dict[str, float] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def count_download(self, visit: Visit) -> None:
        self.bytes_down += visit.down.num_bytes
        self.values_down += visit.down.num_values

    def lose(self, visit: Visit, error: ClientFailed) -> None:
        """Note a client whose work is not in the sum; all but those that are not there were sent a model."""
        kind = cast(LossKind, error.kind)
        if kind != "absent":
            self.count_download(visit)
        self.lost.append(Missing(client=visit.client, name=visit.name, kind=kind, reason=str(error)))

    def add(self, visit: Visit, result: Result, used: float | None = None) -> None:
        self.arrived += 1
        self.count_download(visit)
        self.bytes_up += result.up.num_bytes
        self.values_up += result.up.num_values
        self.passes += result.passes
        self.used = used if used is None or self.used is None else max(self.used, used)
        for phase, loss in result.losses.items():
            self.losses[phase] = self.losses.get(phase, 0.0) + visit.facts.examples * float(loss)
            self.examples[phase] = self.examples.get(phase, 0) + visit.facts.examples
        for phase, seconds in result.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def report(self) -> RoundReport:
        return RoundReport(
            round=self.round,
            cohort=self.clients,
            lost=tuple(sorted(self.lost, key=lambda one: one.client)),
            losses={phase: total / self.examples[phase] for phase, total in self.losses.items()},
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            values_down=self.values_down,
            values_up=self.values_up,
            network_passes=self.passes,
            used=self.used,
            phase_seconds={phase: round(seconds, 6) for phase, seconds in self.seconds.items()},
        )
