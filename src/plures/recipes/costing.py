"""What a run will cost, computed without training: one dry visit for each kind of client, and the cohorts to come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from plures.core.client import run_client
from plures.core.context import Server, lone_facts, make_visit
from plures.core.loop import start
from plures.core.program import Program
from plures.core.seeds import global_draws
from plures.core.types import Params, is_known
from plures.core.wire import send
from plures.data import Federation
from plures.data.populations import evenly_spaced
from plures.evaluate.costs import BACKWARD, CostMeter, largest_batch
from plures.local.mask_search import MaskRefresh
from plures.recipes.build import Built, build, build_wire
from plures.recipes.capacities import affordable
from plures.recipes.experiment import Experiment
from plures.recipes.network_checks import check_networks
from plures.recipes.running import make_program
from plures.stores.memory import MemoryStore

KINDS = 64
"""Most kinds of clients (examples, capacity, network) that are looked at one by one."""
BYTES_PER_VALUE = 4
"""As the papers count what is sent."""
SMALL = 1e-4
"""In place of numbers that only training would give."""
COUNTED = (
    "values_down",
    "values_up",
    "bytes_down",
    "bytes_up",
    "flops",
    "dense_flops",
    "search_flops",
    "flops_with_search",
)

Cost = dict[str, float]
CostOf = Callable[[int], tuple[Cost, Cost]]
"""From a client to what its first visit and its later ones cost."""


@dataclass(frozen=True, kw_only=True)
class PlannedCost:
    """What an experiment will cost: a visit on average, the whole run, the highest peak of memory."""

    method: str
    rounds: int
    clients: int
    cohort: float
    """Clients in a round, on average over the cohorts that will be drawn."""
    parameters: int
    """Of one network."""
    visit: dict[str, float]
    """Mean of one client's visit."""
    total: dict[str, float]
    """Of all visits of the run."""
    peak_bytes: int
    """Most that any client holds at once."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def planned_cost(experiment: Experiment, whole: Federation | None = None) -> PlannedCost:
    """The costs of an experiment file, without training; `whole` is its federation, where that was built before."""
    built = build(experiment, whole=whole)
    program = checked_program(experiment, built)
    cost_of, notes = visit_costs(program, built.federation)
    if experiment.pipeline is not None:
        notes.append("Other stages of the [pipeline] are not in it.")
    if built.method.capacity is not None and not built.method.capacity.limits_uploads:
        notes.append("Uploads are planned whole: which blocks training touches depends on the data.")
    if built.method.capacity is None and any(is_known(part) for part in program.binding(0).parts.values()):
        notes.append("Masks are planned as at the start: how they shrink depends on training.")
    total, visits, peak = add_cohorts(experiment, built, cost_of)
    total |= {
        "paper_bytes": BYTES_PER_VALUE * (total["values_down"] + total["values_up"]),
        "encoded_bytes": total["bytes_down"] + total["bytes_up"],
    }
    return PlannedCost(
        method=built.info.name,
        rounds=experiment.rounds,
        clients=built.federation.num_clients,
        cohort=visits / max(1, experiment.rounds),
        parameters=count_parameters(program),
        visit={name: value / max(1, visits) for name, value in total.items()},
        total=total,
        peak_bytes=int(peak),
        notes=notes,
    )


def count_parameters(program: Program) -> int:
    """Of the network that was given, without what a method builds around it."""
    with global_draws(program.seed, "model"):
        module = program.networks.build(program.networks.key(0))
    return sum(value.numel() for value in module.parameters())


def checked_program(experiment: Experiment, built: Built) -> Program:
    """What would run, with everything wrong told that does not depend on the examples."""
    program = make_program(
        built.method,
        built.networks,
        built.federation,
        seed=experiment.seed,
        wire=build_wire(experiment),
    )
    built.sampler.check(built.federation.num_clients)
    check_networks(program, built.federation)
    if experiment.capacity is not None:
        program.capacity_of = affordable(program, experiment.capacity, built.federation.num_clients)
    return program


def add_cohorts(experiment: Experiment, built: Built, cost_of: CostOf) -> tuple[dict[str, float], int, float]:
    """Over the cohorts that the run will draw: all costs, how many visits there are, and the highest peak."""
    total, visits, peak, known = dict.fromkeys(COUNTED, 0.0), 0, 0.0, set[int]()
    for round in range(1, experiment.rounds + 1):
        cohort = built.sampler.draw(built.federation.num_clients, round, experiment.seed).clients
        for client in cohort:
            cost = cost_of(client)[client in known]
            for name in COUNTED:
                total[name] += cost[name]
            peak = max(peak, cost["peak_bytes"])
        visits += len(cohort)
        known.update(cohort)
    return total, visits, peak


def visit_costs(program: Program, federation: Federation) -> tuple[CostOf, list[str]]:
    """From a client to the costs of its visits; clients of one kind are looked at once."""
    kinds: dict[Any, int] = {}
    meter = CostMeter(program)
    for client in range(federation.num_clients):
        kinds.setdefault(kind_of(program, federation, client), client)
        if len(kinds) > KINDS:
            break
    if len(kinds) <= KINDS:
        known = {kind: dry_costs(meter, federation, client) for kind, client in kinds.items()}
        return lambda client: known[kind_of(program, federation, client)], []
    some = [dry_costs(meter, federation, client) for client in evenly_spaced(federation.num_clients, KINDS)]
    first, later = (mean_cost([costs[number] for costs in some]) for number in (0, 1))
    note = f"Estimated from {KINDS} of {federation.num_clients} clients, for they all differ."
    return lambda client: (first, later), [note]


def mean_cost(costs: Sequence[Cost]) -> Cost:
    mean = {name: sum(cost[name] for cost in costs) / len(costs) for name in costs[0]}
    return mean | {"peak_bytes": max(cost["peak_bytes"] for cost in costs)}


def kind_of(program: Program, federation: Federation, client: int) -> Any:
    return program.networks.key(client), federation.num_examples(client), program.capacity(client)


def dry_costs(meter: CostMeter, federation: Federation, client: int) -> tuple[Cost, Cost]:
    """Of a first visit and of a later one; they differ at most where a method has its own way to train."""
    store, method = MemoryStore(), meter.program.method
    first = dry_cost(meter, federation, client, store)
    own_way = method.stateful and any(phase.solver is not None for phase in method.local)
    return first, dry_cost(meter, federation, client, store) if own_way else first


def dry_cost(meter: CostMeter, federation: Federation, client: int, store: MemoryStore) -> Cost:
    """One visit in which no gradient is computed: its steps, what it sends, and what those cost."""
    program, method, facts = meter.program, meter.program.method, lone_facts(federation, client)
    visit = make_visit(program, federation, store, under_way(start(program)), client, 1, facts, rounds=2)
    result = run_client(method, program.binding(client), visit, gradient=SmallSteps())
    store.commit(1, {client: result.state})
    _, up = send(program.wire, result.message(), upward=True, draws=torch.Generator)
    used = {} if method.capacity is None else program.sizes(client)
    cost = meter.cost(visit, result, used)
    searched = min(facts.examples, largest_batch(method.local[-1], visit)) if method.local else 0
    with_search = cost.flops - cost.search_flops + BACKWARD * meter.profile(client).flops() * searched
    return {
        "values_down": visit.down.num_values,
        "values_up": up.num_values,
        "bytes_down": visit.down.num_bytes,
        "bytes_up": up.num_bytes,
        "flops_with_search": with_search if isinstance(method.refresh, MaskRefresh) else cost.flops,
        **cost.as_row(),
    }


def under_way(server: Server) -> Server:
    """As in later rounds: of what starts at zero, and would be sent for nothing, little is still there."""
    shared = {
        name: value.masked_fill(value == 0, SMALL) if value.is_floating_point() else value
        for name, value in server.shared.items()
    }
    return replace(server, shared=shared)


class SmallSteps:
    """In place of gradients: small random numbers, the same at every step, so that everything that trains moves."""

    def __init__(self) -> None:
        self._kept: Params = {}
        self._draws = torch.Generator()

    def __call__(self, loss: Callable[[Params], Tensor], point: Params) -> tuple[Params, Tensor]:
        for name, value in point.items():
            if name not in self._kept:
                drawn = torch.randn(value.shape, generator=self._draws, dtype=value.dtype)
                self._kept[name] = SMALL * drawn.to(value.device)
        return {name: self._kept[name] for name in point}, torch.zeros(())
