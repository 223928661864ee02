"""LG-FedAvg: Algorithm 1 of Liang et al. 2020; lower layers are each client's, upper ones averaged by examples."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def lg_fedavg(clients, upper, lower, cohorts, batches, *, lr):
    lower = dict(lower)
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            whole = lower[i] | upper
            for rows in batches(round, i):
                whole = step(whole, gradient(client_loss, whole, clients[i], rows), lr)
            lower[i] = {name: whole[name] for name in lower[i]}
            trained.append((len(clients[i].targets), {name: whole[name] for name in upper}))
        num_examples = sum(size for size, _ in trained)
        upper = total((size / num_examples, own) for size, own in trained) if trained else upper
    return upper, lower
