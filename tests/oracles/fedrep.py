"""FedRep: Algorithm 1 of Collins et al. 2021: head updates, then representation updates, averaged by examples."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def fedrep(clients, theta, heads, cohorts, head_batches, batches, *, lr, head_lr):
    heads = dict(heads)
    for round, cohort in enumerate(cohorts, 1):
        num_examples = sum(len(clients[i].targets) for i in cohort)
        sent = []
        for i in cohort:
            for rows in head_batches(round, i):
                heads[i] = step(heads[i], gradient(client_loss, theta | heads[i], clients[i], rows), head_lr)
            theta_i = theta
            for rows in batches(round, i):
                theta_i = step(theta_i, gradient(client_loss, theta_i | heads[i], clients[i], rows), lr)
            sent.append((len(clients[i].targets) / num_examples, theta_i))
        theta = total(sent) if sent else theta
    return theta, heads
