"""A client that works by itself: fine-tuning of its model, and how one that was never trained on gets its own."""

from __future__ import annotations

from dataclasses import dataclass

from plures.core.client import arrival, run_client, run_phases
from plures.core.context import Server, lone_facts, make_visit
from plures.core.gather import Arrival, carried, check_finite
from plures.core.program import Program
from plures.core.roles import Population
from plures.core.seeds import global_draws
from plures.core.types import Params
from plures.core.visit import Visit


def adapted(program: Program, visit: Visit) -> Params:
    """All parameters of a client after the method's `adapt` phases; nothing else is changed."""
    binding = program.binding(visit.client)
    with global_draws(program.seed, "adapt", visit.round, visit.client):
        return run_phases(
            program.method.adapt, binding, visit, arrival(binding, visit), stepping=program.stepping
        ).params


def last_round(server: Server) -> int:
    """The round that rates of work after training are of; before any, the first."""
    return max(1, server.round)


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """A client that was never trained on: it has the shared model, its own data, and nothing kept."""

    program: Program
    population: Population
    server: Server
    client: int

    def state(self) -> Params:
        """What it holds before it has done anything."""
        return self.program.initial_state(self.client, self.server.shared)

    def visit(self, state: Params, round: int | None = None) -> Visit:
        """What it finds with such a state; by default in the run's last round."""
        return make_visit(
            self.program,
            self.population,
            Holding(state),
            self.server,
            self.client,
            last_round(self.server) if round is None else round,
            lone_facts(self.population, self.client),
        )

    def work(self, state: Params, round: int) -> Arrival:
        """A visit in a round of its own, and what reaches the server of it; nobody adds that up."""
        visit = self.visit(state, round)
        program = self.program
        result = run_client(program.method, program.binding(self.client), visit, stepping=program.stepping)
        check_finite(result, visit)
        return Arrival(visit, carried(program, visit, result))

    def adapted(self, state: Params) -> Params:
        """Its model, after `adapt` from that state."""
        return adapted(self.program, self.visit(state))

    def welcomed(self) -> Params:
        """Its model, as the method makes one for newcomers."""
        welcome = self.program.method.welcome
        return self.adapted(self.state()) if welcome is None else welcome(self)


@dataclass(frozen=True)
class Holding:
    """A store that gives one state to whoever asks."""

    kept: Params

    def get(self, client: int) -> Params:
        return self.kept

    def commit(self, round: int, states: object) -> None: ...
