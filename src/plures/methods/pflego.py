"""PFLEGO: exact stochastic gradient descent on the shared weights and all personal heads together.

Nikoloutsopoulos, Koutsopoulos, Titsias, "Personalized Federated Learning with Exact Distributed Stochastic Gradient
Descent Updates", 2022 and 2023.

    tau - 1 times:  W_i <- W_i - client_lr * grad_W l_i(W_i, theta)
    then once:      (g_W, g_i) = joint gradient at (W_i, theta);   W_i <- W_i - rho_t * scale * g_W
    server:         theta <- theta - rho_t * sum_i weight_i g_i  (or Adam on that sum)

Deviations from the paper. Preset `exact`: weight_i = scale = alpha_i / Pr(i drawn), alpha_i over all clients, SGD at
the server; equation (3) lacks the alpha_i that equation (5) and exactness need. Preset `paper` (default) is what the
authors ran: server Adam, alpha_i over the cohort and still divided by Pr(i drawn), no alpha_i in the head's step; under
SGD its sums are too large by about 1 / Pr(i drawn). Mini-batches, and Newton's method in place of the first tau - 1
steps, are options.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.method import Method, Optimizer, Phase, Solver
from plures.core.rates import check_count
from plures.core.types import PERSONAL, SHARED
from plures.local import FULL, adam, as_optimizer, cached_descent, gradient, newton_head, sgd, steps
from plures.local.budgets import BatchSize
from plures.methods.options import STARTS, Rule, Selection, StartName
from plures.methods.registry import register
from plures.parts import BufferPolicy, head, split
from plures.server.weights import global_ht, ht_share, inverse_inclusion, round_ht, round_share


@register(
    title="PFLEGO",
    paper="Nikoloutsopoulos et al. 2022",
    shared="body",
    personal="head",
    sent="gradient of the body",
)
def pflego(
    *,
    personal: Selection = head(),  # noqa: B008 - a frozen value
    tau: int = 50,
    client_lr: Rule = 0.006,
    server: Rule = 0.002,
    preset: Literal["paper", "exact"] = "paper",
    alpha_norm: Literal["global", "round"] | None = None,
    alpha_in_head: bool | None = None,
    solver: Literal["gradient", "newton"] = "gradient",
    cache_features: bool = True,
    batch: BatchSize = FULL,
    start: StartName = "uniform",
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """The two alpha flags override the preset; a rate as `server` is Adam's in `paper` and SGD's in `exact`."""
    check_count("tau of pflego", tau, least=1)
    exact = preset == "exact"
    over_all = exact if alpha_norm is None else alpha_norm == "global"
    share = ht_share if over_all else round_share
    server_rule = server_optimizer(server, exact=exact)
    inner = Phase(
        train=PERSONAL,
        budget=steps(tau - 1, batch, stream="inner"),
        optimizer=as_optimizer(client_lr),
        solver=inner_solver(solver, cache_features),
    )
    joint = Phase(
        train=PERSONAL,
        observe=SHARED,
        budget=steps(1, batch),
        optimizer=sgd(server_rule.lr),
        scale=share if (exact if alpha_in_head is None else alpha_in_head) else inverse_inclusion,
    )
    return Method(
        split=split(personal, buffers=buffers),
        local=(inner, joint) if tau > 1 else (joint,),
        upload=gradient,
        weight=global_ht if over_all else round_ht,
        server=server_rule,
        start=STARTS[start],
        adapt=(replace(inner, budget=steps(tau, batch)),),
        stateful=stateful,
    )


def server_optimizer(server: Rule, *, exact: bool) -> Optimizer:
    if isinstance(server, int | float) or callable(server):
        return sgd(server) if exact else adam(server)
    return as_optimizer(server)


def inner_solver(name: str, cache_features: bool) -> Solver | None:
    """Any solver will do that never leaves the client with a larger loss than before."""
    if name == "newton":
        return newton_head()
    return cached_descent if cache_features else None
