"""pFedMe: Algorithm 1 of Dinh et al. 2020; `pull` is what lam is in theta's own steps (0 in the code of P000)."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def pfedme(clients, w, cohorts, batches, *, lam, pull, inner_steps, inner_lr, lr, beta=1.0):
    """The shared model, and the last theta of every client that has been visited."""
    personal = {}
    for round, cohort in enumerate(cohorts, 1):
        sent = []
        for i in cohort:
            w_i = w
            for rows in batches(round, i):
                theta = w_i
                for _ in range(inner_steps):
                    grads = gradient(client_loss, theta, clients[i], rows)
                    theta = step(theta, {n: grads[n] + pull * (theta[n] - w_i[n]) for n in theta}, inner_lr)
                w_i = step(w_i, {n: lam * (w_i[n] - theta[n]) for n in w_i}, lr)
                personal[i] = theta
            sent.append((1 / len(cohort), w_i))
        w = total([(1 - beta, w), (beta, total(sent))]) if sent else w
    return w, personal
