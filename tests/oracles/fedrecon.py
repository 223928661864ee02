"""FedRecon: Algorithm 1 of Singhal et al. 2021, and Algorithm 4 of the PFLEGO papers."""

from __future__ import annotations

import torch

from tests.oracles.common import client_loss, gradient, step, total


def fedrecon(clients, u, start, cohorts, support_batches, query_batches, *, lr, recon_lr, server_lr=1.0):
    """Every visit begins at `start[i]`; what it makes of that is used once, and not returned."""
    for round, cohort in enumerate(cohorts, 1):
        num_examples = sum(len(clients[i].targets) for i in cohort)
        changes = []
        for i in cohort:
            v = start[i]
            for rows in support_batches(round, i):
                v = step(v, gradient(client_loss, u | v, clients[i], rows), recon_lr)
            u_i = u
            for rows in query_batches(round, i):
                u_i = step(u_i, gradient(client_loss, u_i | v, clients[i], rows), lr)
            changes.append((len(clients[i].targets) / num_examples, step(u, u_i, 1.0)))
        u = step(u, total(changes), server_lr) if changes else u
    return u


def fedrecon_pflego(clients, theta, heads, cohorts, batches, *, inclusion, beta, rho):
    """Algorithm 4 with Adam in the place of its plain step, as the authors ran it; heads are kept."""
    heads = dict(heads)
    first = {name: torch.zeros_like(value) for name, value in theta.items()}
    second, count = dict(first), 0
    for round, cohort in enumerate(cohorts, 1):
        num_examples = sum(len(clients[i].targets) for i in cohort)
        sent = []
        for i in cohort:
            for rows in batches(round, i):
                heads[i] = step(heads[i], gradient(client_loss, theta | heads[i], clients[i], rows), beta)
            grads = gradient(client_loss, theta | heads[i], clients[i])
            alpha = len(clients[i].targets) / num_examples
            sent.append((alpha / inclusion, {name: grads[name] for name in theta}))
        if sent:
            direction, count = total(sent), count + 1
            first = {n: 0.9 * first[n] + 0.1 * direction[n] for n in theta}
            second = {n: 0.999 * second[n] + 0.001 * direction[n] ** 2 for n in theta}
            size = {n: torch.sqrt(second[n] / (1 - 0.999**count)) + 1e-8 for n in theta}
            theta = step(theta, {n: first[n] / (1 - 0.9**count) / size[n] for n in theta}, rho)
    return theta, heads
