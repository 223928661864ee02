"""APFL: Algorithm 1 of Deng et al. 2020 with the adaptive mixing weight of its section 3, weighed by examples.

The mixing weight moves once per visit, on all examples: by <v - w, grad F(m)>, the derivative of F(a v + (1 - a) w).
"""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def mixed(a, v, w):
    return {name: a * v[name] + (1 - a) * w[name] for name in w}


def apfl(clients, w, v, alphas, cohorts, batches, *, lr, alpha_lr):
    v, alphas = dict(v), dict(alphas)
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            w_i, v_i, a = w, v[i], alphas[i]
            grads = gradient(client_loss, mixed(a, v_i, w_i), clients[i])
            slope = sum(((v_i[name] - w_i[name]) * grads[name]).sum() for name in w)
            a = min(max(a - alpha_lr * float(slope), 0.0), 1.0)
            for rows in batches(round, i):
                of_mixture = gradient(client_loss, mixed(a, v_i, w_i), clients[i], rows)
                w_i = step(w_i, gradient(client_loss, w_i, clients[i], rows), lr)
                v_i = step(v_i, of_mixture, lr * a)
            v[i], alphas[i] = v_i, a
            trained.append((len(clients[i].targets), w_i))
        num_examples = sum(size for size, _ in trained)
        w = total((size / num_examples, w_i) for size, w_i in trained) if trained else w
    return w, v, alphas
