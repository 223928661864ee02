"""FedAvg as McMahan et al. 2017 print it (Algorithm 1), the average written as a step of the server."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def fedavg(clients, weights, cohorts, batches, *, lr, server_lr=1.0):
    for round, cohort in enumerate(cohorts, 1):
        num_examples = sum(len(clients[i].targets) for i in cohort)
        changes = []
        for i in cohort:
            own = weights
            for rows in batches(round, i):
                own = step(own, gradient(client_loss, own, clients[i], rows), lr)
            changes.append((len(clients[i].targets) / num_examples, step(weights, own, 1.0)))
        weights = step(weights, total(changes), server_lr) if cohort else weights
    return weights
