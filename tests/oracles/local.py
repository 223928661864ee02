"""Every client for itself: local SGD whenever it is in the cohort."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step


def local(clients, weights, cohorts, batches, *, lr):
    own = dict.fromkeys(range(len(clients)), weights)
    for round, cohort in enumerate(cohorts, 1):
        for i in cohort:
            for rows in batches(round, i):
                own[i] = step(own[i], gradient(client_loss, own[i], clients[i], rows), lr)
    return own
