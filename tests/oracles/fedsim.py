"""FedSim: Algorithms 1 and 2 of Pillutla et al. 2022, weighed by examples; `loss(u | v, i, rows)` is F_i."""

from __future__ import annotations

from tests.oracles.common import gradient, step, total


def fedsim(clients, u, v, cohorts, batches, loss, *, lr, personal_lr):
    v = dict(v)
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            u_i, v_i = u, v[i]
            for rows in batches(round, i):
                grads = gradient(loss, u_i | v_i, i, rows)
                v_i = step(v_i, grads, personal_lr)
                u_i = step(u_i, grads, lr)
            v[i] = v_i
            trained.append((len(clients[i].targets), u_i))
        num_examples = sum(size for size, _ in trained)
        u = total((size / num_examples, u_i) for size, u_i in trained) if trained else u
    return u, v
