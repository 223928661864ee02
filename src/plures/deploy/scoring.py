"""A node's models on its own examples: metrics are told, and nothing else."""

from __future__ import annotations

from typing import cast

from plures.core.adapting import Holding
from plures.core.context import Server
from plures.core.errors import InvalidMessage
from plures.core.roles import Store
from plures.core.types import Params
from plures.deploy.messages import Order, Score
from plures.deploy.sides import Side
from plures.evaluate import Evaluator, ModelKind, SplitName
from plures.evaluate.forgetting import FORGETTING
from plures.evaluate.metrics import with_metrics
from plures.recipes.checks import MODELS, SPLITS
from plures.stores.memory import MemoryStore


def scores_of(side: Side, server: Server, order: Order, state: Params | None) -> list[Score]:
    """Every model that is asked for on every split, by the metrics of the node's own file."""
    for word, known in (*((model, MODELS) for model in order.models), *((split, SPLITS) for split in order.splits)):
        if word not in known:
            raise InvalidMessage(f"The server asks for '{word}', which is no model and no split.")
    metrics = side.built.plan.metrics
    store = cast(Store, MemoryStore() if state is None else Holding(state))
    goal = with_metrics(side.federation.goal, metrics)
    evaluator = Evaluator(side.program, side.federation, store, goal, forgetting=FORGETTING in metrics)
    evaluator.numbers = (order.client,)
    found = evaluator.evaluate(server, cast(list[ModelKind], order.models), cast(list[SplitName], order.splits))
    return [
        Score(model=one.model, split=one.split, examples=score.examples, values=dict(score.values))
        for one in found
        for score in one.scores
    ]
