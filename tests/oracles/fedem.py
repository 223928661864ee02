"""FedEM: Algorithm 1 of Marfoq et al. 2021 with SGD as the local solver, example by example and network by network."""

from __future__ import annotations

from math import exp, log

from tests.oracles.common import client_loss, gradient, step, total


def fedem(clients, networks, cohorts, batches, *, lr, server_lr=1.0):
    """The networks, and the shares of every client."""
    count = len(networks)
    pi = {i: [1 / count] * count for i in range(len(clients))}
    for round, cohort in enumerate(cohorts, 1):
        trained, size = [], sum(len(clients[i].targets) for i in cohort)
        for i in cohort:
            n = len(clients[i].targets)
            q = [belongs(clients[i], j, networks, pi[i]) for j in range(n)]
            pi[i] = [sum(q[j][m] for j in range(n)) / n for m in range(count)]
            own = list(networks)
            for rows in batches(round, i):
                grads = [gradient(weighted, own[m], clients[i], rows.tolist(), q, m) for m in range(count)]
                own = [step(own[m], grads[m], lr) for m in range(count)]
            trained.append((n / size, own))
        if cohort:
            averages = [total((share, own[m]) for share, own in trained) for m in range(count)]
            networks = [step(w, step(w, averages[m], 1.0), server_lr) for m, w in enumerate(networks)]
    return networks, pi


def belongs(client, j, networks, shares):
    """How much example j belongs to each network."""
    odds = [exp(log(share) - float(client_loss(w, client, [j]))) for share, w in zip(shares, networks, strict=True)]
    return [value / sum(odds) for value in odds]


def weighted(w, client, rows, q, m):
    """(1 / B) sum_j q_jm loss_j."""
    return sum(q[j][m] * client_loss(w, client, [j]) for j in rows) / len(rows)
