"""FedBABU: Algorithm 1 of Oh et al. 2022; the body is averaged by examples under a head that stays, then fine-tuned."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def fedbabu(clients, body, head, cohorts, batches, tune_batches, *, lr, tune_lr, tuned):
    """The body, and each client's whole model after tuning; `tune_batches` are those of the last round."""
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            own = body
            for rows in batches(round, i):
                own = step(own, gradient(client_loss, own | head, clients[i], rows), lr)
            trained.append((len(clients[i].targets), own))
        num_examples = sum(size for size, _ in trained)
        body = total((size / num_examples, own) for size, own in trained) if trained else body
    models = dict.fromkeys(range(len(clients)), body | head)
    for i, client in enumerate(clients):
        for rows in tune_batches(len(cohorts), i):
            moved = step(models[i], gradient(client_loss, models[i], client, rows), tune_lr)
            models[i] = models[i] | {name: moved[name] for name in tuned}
    return body, models
