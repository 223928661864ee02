"""FedAlt: Algorithms 1 and 3 of Pillutla et al. 2022, weighed by examples.

`personal_loss(u | v, i, rows)` is what the first phase minimises, `shared_loss` what the second does: they differ
where the personal part has a regulariser.
"""

from __future__ import annotations

from tests.oracles.common import gradient, step, total


def fedalt(
    clients, u, v, cohorts, personal_batches, batches, personal_loss, shared_loss, *, lr, personal_lr, server_lr=1.0
):
    v = dict(v)
    for round, cohort in enumerate(cohorts, 1):
        changes = []
        num_examples = sum(len(clients[i].targets) for i in cohort)
        for i in cohort:
            for rows in personal_batches(round, i):
                v[i] = step(v[i], gradient(personal_loss, u | v[i], i, rows), personal_lr)
            u_i = u
            for rows in batches(round, i):
                u_i = step(u_i, gradient(shared_loss, u_i | v[i], i, rows), lr)
            changes.append((len(clients[i].targets) / num_examples, step(u, u_i, 1.0)))
        u = step(u, total(changes), server_lr) if changes else u
    return u, v
