"""pFedGate: a private gate looks at each batch and cuts a sparse model out of the shared one, block by block.

Chen et al., "Efficient Personalized Federated Learning via Sparse Model-Adaptation", ICML 2023.

    M, G = gate_i(x);    kept blocks: the most important by G that fit the capacity s_i;    theta' = M * kept * theta
    theta_i <- theta_i - lr * grad F_i(theta');    gate_i <- gate_i - gate_lr * grad F_i  (straight through `kept`)
    server:  theta <- theta - server_lr * sum p_i (theta - theta_i) / sum p_i, of each coordinate over who touched it

Deviations from the paper: gates are one set for a batch, as in the authors' code; `level="sample"` is the paper's text.
Momentum and weight decay act on touched blocks only, and momentum begins anew at each visit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.method import Method, Optimizer, Phase
from plures.core.types import SHARED
from plures.local import as_optimizer, sgd
from plures.methods import gating
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy
from plures.parts.blocks import CutRule, Cuts
from plures.parts.gate import GateOptions
from plures.parts.gated import GatedOptions, Level
from plures.parts.selection import SelectionName
from plures.server.weights import samples

AS_THE_AUTHORS: Optimizer = sgd(0.1, momentum=0.9, weight_decay=5e-4)


@register(
    title="pFedGate",
    paper="Chen et al. 2023",
    shared="the network",
    personal="a gate",
    sent="change of touched blocks",
)
def pfedgate(
    *,
    density: float = 0.5,
    splits: int = 5,
    cut: Literal["first", "equal", "rows"] | Cuts | CutRule = "first",
    least: float | None = None,
    block_cost: Literal["parameters", "flops", "bytes"] = "parameters",
    select: SelectionName = "greedy",
    level: Level = "batch",
    straight_through: Literal["paper", "authors"] = "paper",
    heads: Literal[1, 2] = 2,
    pre_norm: bool = True,
    post_norm: bool = True,
    sigmoid: bool = True,
    lr: Rule = AS_THE_AUTHORS,
    gate_lr: Rule = AS_THE_AUTHORS,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = 10.0,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    aggregate: Literal["index", "dense"] = "index",
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """`density` is the capacity s of clients that have none of their own; `least` the share that is always kept."""
    least = gating.check_gate_options(density=density, splits=splits, least=least, cut=cut)
    options = GatedOptions(
        cut=cut,
        splits=splits,
        least=least,
        level=level,
        select=select,
        dropped_learn=straight_through == "paper",
        gate=GateOptions(heads=heads, pre_norm=pre_norm, post_norm=post_norm, sigmoid=sigmoid),
    )
    clip = None if clip_norm is None else {SHARED: clip_norm, gating.GATE: clip_norm}
    rules = {SHARED: as_optimizer(lr), gating.GATE: as_optimizer(gate_lr)}
    solver = gating.gated_training
    train = Phase(train=(SHARED, gating.GATE), budget=budget, optimizer=rules, clip_norm=clip, solver=solver)
    tune = replace(train, train=gating.GATE, budget=adapt, optimizer=rules[gating.GATE], clip_norm=clip_norm)
    return Method(
        split=gating.GatedSplit(buffers=buffers),
        local=(train,),
        upload=gating.touched_delta,
        weight=weight,
        server=as_optimizer(server),
        per_coordinate=aggregate == "index",
        wrap=gating.wrap_in_gates(options, block_cost),
        start=gating.with_capacity,
        adapt=(tune,),
        stateful=stateful,
        capacity=gating.capacity_rule(density, by_entries=block_cost != "flops"),
        notes=gating.gate_histogram,
    )
