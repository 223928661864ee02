"""FedProx: Algorithm 2 of Li et al. 2020, each client minimising h_i(w_i) = F_i(w_i) + mu / 2 |w_i - w|^2 by SGD."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def fedprox(clients, weights, cohorts, batches, *, mu, lr, server_lr=1.0):
    for round, cohort in enumerate(cohorts, 1):
        num_examples = sum(len(clients[i].targets) for i in cohort)
        changes = []
        for i in cohort:
            own = weights
            for rows in batches(round, i):
                grads = gradient(client_loss, own, clients[i], rows)
                pulled = {name: grads[name] + mu * (own[name] - weights[name]) for name in own}
                own = step(own, pulled, lr)
            changes.append((len(clients[i].targets) / num_examples, step(weights, own, 1.0)))
        weights = step(weights, total(changes), server_lr) if changes else weights
    return weights
