"""Evaluation by the nodes: each scores its models on its own examples, and the server sums up what it is told."""

from __future__ import annotations

from collections.abc import Sequence

from plures.core.context import Server
from plures.core.program import Program
from plures.core.roles import HasStates
from plures.core.wire import Message, Parcel
from plures.deploy.asking import Asking, counted_of
from plures.deploy.messages import sealed
from plures.evaluate import ClientScore, Evaluation, Evaluator, ModelKind, SplitName
from plures.evaluate.protocols import SeeModel
from plures.wire import encode


class RemoteEvaluator(Evaluator):
    """Asks every node that is there; scores of the others are missing."""

    def __init__(self, of: Evaluator, asking: Asking) -> None:
        super().__init__(of.program, of.clients, of.store, of.scorer.goal)
        self.asking = asking

    def evaluate(
        self,
        server: Server,
        models: Sequence[ModelKind],
        splits: Sequence[SplitName],
        see: SeeModel | None = None,
    ) -> list[Evaluation]:
        """Every model asked for on every split, over all clients that answer."""
        body = encode(Message(Parcel({}), server.shared))

        def letter(client: int) -> bytes:
            counted = counted_of(self.store.get(client)) if self.program.method.stateful else None
            order = self.asking.order(
                "evaluate", client, server.round, counted=counted, models=list(models), splits=list(splits)
            )
            return sealed(order, body)

        replies = self.asking.ask("evaluate", range(self.clients.num_clients), letter)
        scores: dict[tuple[str, str], list[ClientScore]] = {}
        for client, opened in sorted(replies.items()):
            for score in opened.reply.scores:
                found = ClientScore(client=client, examples=score.examples, values=score.values)
                scores.setdefault((score.model, score.split), []).append(found)
        return [
            Evaluation(model=model, split=split, scores=tuple(scores.get((model, split), ())))
            for model in models
            for split in splits
        ]


def finish(asking: Asking, program: Program, store: HasStates, server: Server) -> list[int]:
    """Give every node that is there the shared part that the run has ended with; those that have it."""
    body = encode(Message(Parcel({}), server.shared))

    def letter(client: int) -> bytes:
        counted = counted_of(store.get(client)) if program.method.stateful else None
        return sealed(asking.order("finish", client, server.round, counted=counted), body)

    return sorted(asking.ask("finish", range(len(asking.roster.seats)), letter))
