"""APFL: each client mixes the shared model with one of its own, and learns how much of each.

Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", 2020.

    mixture m_i = a_i v_i + (1 - a_i) w_i;    server:  w <- sum_i q_i w_i
    once per visit:  a_i <- clip(a_i - alpha_lr * grad_a F_i(m_i), 0, 1)
    on each batch:   w_i <- w_i - lr * grad F_i(w_i),  v_i <- v_i - lr * grad_v F_i(m_i)  at the same point

Deviations from the paper: a_i moves by the gradient on all the client's examples, where the paper takes a batch;
weights are by examples, where the paper has 1/m. As in the paper, v_i starts as the run's first model.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.method import Method, Phase
from plures.core.networks import Network
from plures.core.problem import Outcome, Problem, descend
from plures.core.rates import check_rate
from plures.core.types import PERSONAL, SHARED, Batch, Params, Part
from plures.local import as_optimizer, delta, original, steps, twin_of, with_twin
from plures.methods.options import FIVE_EPOCHS, ONE_EPOCH, Duration, Rule, WeightOption
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.server.weights import samples

ALPHA = "alpha"  # part and name of the mixing weight


class TwoLosses(Problem):
    """The shared model has its own loss; the twin has the mixture's, in which the shared model is a constant."""

    def gradients(self, params: Params, batch: Batch, names: list[str]) -> tuple[Params, torch.Tensor]:
        alone = Problem(**vars(self) | {"phase": replace(self.phase, view=original)})
        of_shared, _ = alone.gradients(params, batch, self.binding.names(SHARED))
        of_twin, loss = super().gradients(params, batch, self.binding.names(PERSONAL))
        return of_shared | of_twin, loss


def both_at_once(problem: Problem) -> Outcome:
    done = descend(TwoLosses(**vars(problem)))
    return done._replace(passes=2 * done.passes)


def within_bounds(problem: Problem) -> Outcome:
    outcome = descend(problem)
    return outcome._replace(params=outcome.params | {ALPHA: outcome.params[ALPHA].clamp(0.0, 1.0)})


def mixture(params: Params, inputs: torch.Tensor) -> Params:
    """The network sees a v + (1 - a) w."""
    mixed = {n: torch.lerp(w, params[twin_of(n)], params[ALPHA]) for n, w in params.items() if twin_of(n) in params}
    return original(params, inputs) | mixed


@register(
    title="APFL",
    paper="Deng et al. 2020",
    shared="everything",
    personal="a whole twin, a mixing weight",
    sent="change of all weights",
)
def apfl(
    *,
    alpha: float = 0.5,
    alpha_lr: Rule = 0.1,
    lr: Rule = 0.1,
    budget: Duration = ONE_EPOCH,
    adapt: Duration = FIVE_EPOCHS,
    server: Rule = 1.0,
    weight: WeightOption = samples,
    buffers: BufferPolicy | None = None,
    stateful: bool = True,
) -> Method:
    """`alpha` is the share of a client's own model at the start."""
    if check_rate("alpha of apfl", alpha) > 1:
        raise InvalidConfig(f"alpha of apfl is a share, from 0 to 1, not {alpha!r}.")

    def with_twin_and_alpha(network: Network) -> dict[Part, Params]:
        if ALPHA in network.params:
            raise InvalidModel(f"the model has a parameter '{ALPHA}', the name of the mixing weight. Rename it.")
        return {**with_twin(network), ALPHA: {ALPHA: next(iter(network.params.values())).new_full((), alpha)}}

    own = Phase(train=PERSONAL, budget=adapt, optimizer=as_optimizer(lr), view=mixture)
    models = replace(own, train=(SHARED, PERSONAL), budget=budget, solver=both_at_once)
    share = replace(own, train=ALPHA, budget=steps(1), optimizer=as_optimizer(alpha_lr), solver=within_bounds)
    return Method(
        split=split(all_shared(), buffers=buffers),
        local=(share, models),
        upload=delta,
        weight=weight,
        server=as_optimizer(server),
        extend=with_twin_and_alpha,
        predict=mixture,
        adapt=(own,),
        stateful=stateful,
    )
