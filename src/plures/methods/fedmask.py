"""FedMask: nobody trains weights; each client learns which weights of the last layers to use, and masks are voted on.

Li et al., "FedMask: Joint Computation and Communication-Efficient Personalized Federated Learning via Heterogeneous
Masking", SenSys 2021, after its description in the pFedGate paper.

    client i sees w_0 * b_i, where b_i = [r_i > 0] on the entries that it owns and 0 elsewhere; it sends b_i
    first visit:  train all r_i, then own the units of highest scores for good
    each visit:   r_i <- (2 b - 1) |r_i| where b was voted;    r_i <- r_i - lr * sigmoid'(r_i) * grad_b F_i(w_0 * b_i)
    server:       b <- [mean of b_i over its owners in the cohort > 1/2] where those are `quorum` or more

Deviations from the paper: of the output layer columns are pruned, not rows, so that no class is lost. The description
leaves much open; the method's page lists what was chosen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plures.core.errors import InvalidModel
from plures.core.method import Capacity, Method, Phase
from plures.core.networks import Network
from plures.core.rates import check_positive
from plures.core.types import FROZEN
from plures.local import as_optimizer, scores
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, Selection
from plures.methods.registry import register
from plures.parts import BufferPolicy, NamedSplit, as_selector, head
from plures.parts.densities import check_density, whole
from plures.server.votes import Majority, counted


@register(
    title="FedMask",
    paper="Li et al. 2021",
    shared="votes on mask bits (weights are fixed)",
    personal="scores of the masked layers",
    sent="mask bits",
)
def fedmask(
    *,
    masked: Selection = head(),  # noqa: B008 - a frozen value
    density: float = 0.5,
    structured: bool = True,
    straight_through: Literal["sigmoid", "identity"] = "sigmoid",
    first_score: float = 0.01,
    first_budget: Duration = ONE_EPOCH,
    quorum: int = 2,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    clip_norm: float | None = None,
    adapt: Duration = FIVE_EPOCHS,
    buffers: BufferPolicy | None = None,
) -> Method:
    """`masked` names the layers whose weights get masks; `density` is the share that a client keeps of each."""
    check_density(density)
    check_positive("first_score of fedmask", first_score)

    def names(network: Network) -> list[str]:
        chosen = as_selector(masked)(network.module)
        found = [name for name, value in network.params.items() if name in chosen and value.dim() > 1]
        if not found:
            raise InvalidModel(f"fedmask has nothing to mask: '{masked}' selects no weights of two dimensions or more.")
        return found

    def units(network: Network, capacity: float) -> dict[str, scores.Units]:
        return {name: kept_units(network, name, capacity, structured) for name in names(network)}

    def sizes(network: Network, capacity: float) -> dict[str, int]:
        kept = units(network, capacity)
        return {name: network.params[name].numel() // of.total * of.kept for name, of in kept.items()}

    work = Phase(
        train=scores.SCORES,
        budget=budget,
        optimizer=as_optimizer(lr),
        view=scores.ThroughScores(straight_through=straight_through),
        clip_norm=clip_norm,
        solver=scores.ScoreTraining(first_budget=first_budget, first_score=first_score, pruning=units),
    )
    return Method(
        split=NamedSplit(rest=FROZEN, buffers=buffers),
        local=(work,),
        upload=scores.bits_and_owners,
        weight=counted,
        server=Majority(bits=scores.VOTE, voters=scores.GIVEN, quorum=quorum),
        download=scores.own_votes,
        extend=lambda network: scores.with_scores(network.params, names(network), first_score),
        predict=scores.voted,
        adapt=(replace(work, budget=adapt),),
        capacity=Capacity(unit="density", usual=density, sizes=sizes, whole_at_first=True),
    )


def kept_units(network: Network, name: str, density: float, structured: bool) -> scores.Units:
    """Rows or filters; of the output layer columns, for no class may be lost. One unit at least."""
    value = network.params[name]
    dim = (1 if name in head()(network.module) else 0) if structured else None
    total = value.numel() if dim is None else value.shape[dim]
    return scores.Units(dim, max(1, whole(check_density(density) * total)), total)
