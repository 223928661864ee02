"""Ditto: Algorithm 1 of Li et al. 2021, with FedAvg as its G; v_i starts from the first w that client i receives.

`ditto_ft` is the variant of Pillutla et al. 2022: FedAvg, then steps on F_i(v) + lam |v - w|^2, without the half.
"""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total
from tests.oracles.fedavg import fedavg


def pulled_steps(v, centre, client, batches, strength, lr):
    """v <- v - lr (grad F_i(v) + strength (v - centre)) on each batch."""
    for rows in batches:
        grads = gradient(client_loss, v, client, rows)
        v = step(v, {name: grads[name] + strength * (v[name] - centre[name]) for name in v}, lr)
    return v


def ditto(clients, w, cohorts, batches, own_batches, *, lam, lr, personal_lr, trained_centre=False):
    """The shared model, and the personal model of every client that has been visited."""
    v = {}
    for round, cohort in enumerate(cohorts, 1):
        num_examples = sum(len(clients[i].targets) for i in cohort)
        sent = []
        for i in cohort:
            w_i = w
            for rows in batches(round, i):
                w_i = step(w_i, gradient(client_loss, w_i, clients[i], rows), lr)
            centre = w_i if trained_centre else w
            v[i] = pulled_steps(v.get(i, w), centre, clients[i], own_batches(round, i), lam, personal_lr)
            sent.append((len(clients[i].targets) / num_examples, w_i))
        w = total(sent) if sent else w
    return w, v


def ditto_ft(clients, w, cohorts, batches, tune_batches, *, lam, lr, personal_lr):
    """FedAvg's model, and each client's after tuning with the batches of the last round."""
    w = fedavg(clients, w, cohorts, batches, lr=lr)
    last = len(cohorts)
    return w, {
        i: pulled_steps(w, w, client, tune_batches(last, i), 2 * lam, personal_lr) for i, client in enumerate(clients)
    }
