"""FedPer: Algorithm 2 of the PFLEGO paper, both gradients taken at the old point as its authors' code does."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def fedper(clients, theta, heads, cohorts, batches, *, lr):
    heads = dict(heads)
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            both = theta | heads[i]
            for rows in batches(round, i):
                both = step(both, gradient(client_loss, both, clients[i], rows), lr)
            heads[i] = {name: both[name] for name in heads[i]}
            trained.append((len(clients[i].targets), {name: both[name] for name in theta}))
        num_examples = sum(size for size, _ in trained)
        theta = total((size / num_examples, own) for size, own in trained) if trained else theta
    return theta, heads
