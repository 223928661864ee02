"""SCAFFOLD: Algorithm 1 of Karimireddy et al. 2020 with option II; `rate(round)` is its local step size."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def scaffold(clients, x, cohorts, batches, *, rate, server_lr=1.0):
    """The server's model and control, and the control of every client."""
    c = {name: 0.0 * value for name, value in x.items()}
    own = dict.fromkeys(range(len(clients)), c)
    for round, cohort in enumerate(cohorts, 1):
        moves, changes = [], []
        for i in cohort:
            y, all_rows = x, batches(round, i)
            for rows in all_rows:
                grads = gradient(client_loss, y, clients[i], rows)
                y = {name: y[name] - rate(round) * (grads[name] - own[i][name] + c[name]) for name in y}
            length = len(all_rows) * rate(round)
            new = {name: own[i][name] - c[name] + (x[name] - y[name]) / length for name in x}
            moves.append((1 / len(cohort), step(y, x, 1.0)))
            changes.append((1 / len(cohort), step(new, own[i], 1.0)))
            own[i] = new
        if cohort:
            x = step(x, total(moves), -server_lr)
            c = step(c, total(changes), -len(cohort) / len(clients))
    return x, c, own
