"""One round: the cohort's work, one weighted sum, one server step.

A method whose round has another shape brings its own function from `RoundContext` to `RoundOutcome`;
it gets the same visits, engine and state, and returns the same things.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from plures.core.client import Result
from plures.core.context import RoundContext, RoundOutcome, RoundReport, Server
from plures.core.errors import ClientFailed, Diverged
from plures.core.method import Method, Optimizer, Upload, Visit
from plures.core.program import Program
from plures.core.sums import Sum, empty_sum, in_blocks
from plures.core.types import SHARED, SHARED_BUFFERS, Params, Part, sum_bytes, travels


def weighted_round(context: RoundContext) -> RoundOutcome:
    """The round of nearly every method."""
    method = context.program.method
    uploads, buffers = empty_sum(), empty_sum()
    tally = Tally(round=context.round, clients=context.clients)
    states: dict[int, Params] = {}
    under_way: dict[int, Visit] = {}
    results = context.engine.run(context.program, noted(context.visits(), under_way))
    for block in in_blocks(results):
        block_uploads, block_buffers = empty_sum(), empty_sum()
        for result in block:
            visit = under_way.pop(result.client)
            check_upload(result.upload, visit, context.server.shared)
            check_finite(result, visit)
            add_result(method, visit, result, block_uploads, block_buffers)
            tally.add(visit, result)
            if context.on_result is not None:
                context.on_result(visit, result)
            if method.stateful and result.state:
                states[result.client] = result.state
        uploads.merge(block_uploads)
        buffers.merge(block_buffers)
    server = server_step(context.program, context.server, uploads, buffers)
    return RoundOutcome(server=server, states=states, report=tally.report())


def noted(visits: Iterable[Visit], under_way: dict[int, Visit]) -> Iterator[Visit]:
    for visit in visits:
        under_way[visit.client] = visit
        yield visit


def add_result(method: Method, visit: Visit, result: Result, uploads: Sum, buffers: Sum) -> None:
    """Add one client's upload by the method's weight, and its running statistics by examples."""
    facts, weight = visit.facts, method.weight
    divisor = 0.0 if weight.per is None else weight.per(facts)
    uploads.add(result.upload, share=weight.share(facts), divisor=divisor, per_coordinate=method.per_coordinate)
    buffers.add(Upload(result.buffers), share=facts.examples, divisor=facts.examples, per_coordinate=False)


def server_step(program: Program, server: Server, uploads: Sum, buffers: Sum) -> Server:
    """Move the shared part against the summed uploads; nothing arrived: nothing moves."""
    method = program.method
    if uploads.num_added == 0 or not server.shared:
        return Server(round=server.round + 1, shared=server.shared, optimizer=server.optimizer)
    direction = uploads.direction(divided=method.weight.per is not None)
    shared, states = dict(server.shared), dict(server.optimizer)
    for part, rule, names in server_rules(program):
        mine = {name: shared[name] for name in names}
        state = states[part] if part in states else rule.init(mine)
        grads = {name: direction.get(name, torch.zeros_like(value)) for name, value in mine.items()}
        moved, states[part] = rule.update(grads, state, mine, rule.lr(server.round + 1))
        moved = {name: value for name, value in moved.items() if name in direction}
        shared |= {name: untouched_kept(value, mine[name], uploads.held.get(name)) for name, value in moved.items()}
    for name, change in buffers.direction(divided=True).items():
        averaged = shared[name] - change
        shared[name] = averaged.to(shared[name].dtype) if shared[name].is_floating_point() else averaged.round().long()
    return Server(round=server.round + 1, shared=shared, optimizer=states)


def untouched_kept(new: torch.Tensor, old: torch.Tensor, held: torch.Tensor | None) -> torch.Tensor:
    """What nobody held stays bitwise as it was, whatever the optimiser remembers."""
    return new if held is None else torch.where(held > 0, new, old)


def server_rules(program: Program) -> list[tuple[Part, Optimizer, list[str]]]:
    """Each server optimiser with the names it moves; running statistics are averaged apart."""
    binding, chosen = program.binding(0), program.method.server
    if not isinstance(chosen, Mapping):
        names = [n for n, part in binding.parts.items() if travels(part) and part != SHARED_BUFFERS]
        return [(SHARED, chosen, names)]
    return [(part, rule, binding.names(part)) for part, rule in chosen.items()]


def check_upload(upload: Upload, visit: Visit, shared: Params) -> None:
    """Refuse what does not fit the shared part: sums and optimisers would broadcast it."""
    for name, value in upload.values.items():
        held = value if upload.held is None else upload.held.get(name)
        if name not in shared:
            raise misfit(f"The upload has '{name}', which is not shared", visit)
        if value.shape != shared[name].shape:
            shapes = f"{tuple(value.shape)}, but the shared part has {tuple(shared[name].shape)}"
            raise misfit(f"The upload has '{name}' of shape {shapes}", visit)
        if held is None:
            raise misfit(f"The upload says not how much of '{name}' it held", visit)
        if held.shape != value.shape:
            raise misfit(f"The upload says what it held of '{name}' in shape {tuple(held.shape)}", visit)


def misfit(what: str, visit: Visit) -> ClientFailed:
    remedy = "Correct the method's upload: it has the shared names, each in the shape of the shared part."
    return ClientFailed(what, client=visit.name or str(visit.client), round=visit.round, phase="upload", remedy=remedy)


def check_finite(result: Result, visit: Visit) -> None:
    """Stop before a number that is none can reach the sum."""
    for phase, loss in result.losses.items():
        if not torch.isfinite(loss):
            raise diverged("The training loss is not a finite number", phase, visit)
    sent = [
        value for value in (result.upload.values | result.state | result.buffers).values() if value.is_floating_point()
    ]
    if sent and not torch.isfinite(torch.stack(torch._foreach_norm(sent))).all():
        phase = next(reversed(result.losses), "none")
        raise diverged("The trained parameters are not finite numbers", phase, visit)


def diverged(what: str, phase: str, visit: Visit) -> Diverged:
    remedy = "Lower the learning rate, clip the gradients, or look at this client's data."
    return Diverged(what, client=visit.name or str(visit.client), round=visit.round, phase=phase, remedy=remedy)


@dataclass(kw_only=True)
class Tally:
    """Adds up what a round cost."""

    round: int
    clients: tuple[int, ...]
    bytes_down: int = 0
    bytes_up: int = 0
    passes: float = 0.0
    losses: dict[str, float] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)

    def add(self, visit: Visit, result: Result) -> None:
        self.bytes_down += sum_bytes(visit.received.values())
        self.bytes_up += sum_bytes(result.upload.values.values()) + sum_bytes(result.buffers.values())
        self.passes += result.passes
        for phase, loss in result.losses.items():
            self.losses[phase] = self.losses.get(phase, 0.0) + visit.facts.examples * float(loss)
            self.examples[phase] = self.examples.get(phase, 0) + visit.facts.examples

    def report(self) -> RoundReport:
        return RoundReport(
            round=self.round,
            cohort=self.clients,
            losses={phase: total / self.examples[phase] for phase, total in self.losses.items()},
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            network_passes=self.passes,
        )
