"""PFLEGO: Algorithm 1 of Nikoloutsopoulos et al. 2023; `inclusion` is Pr(i in I_t) = r / I.

exact: alpha_i over all clients, also in the head's last step (equation 5), SGD at the server (equation 4).
paper: alpha_i over the cohort, none in the head's last step (equation 3), Adam at the server, as the authors ran it.
"""

from __future__ import annotations

import torch

from tests.oracles.common import client_loss, gradient, step, total


def pflego(clients, theta, heads, cohorts, inner_batches, joint_batches, *, inclusion, client_lr, rate, exact):
    """`rate` gives rho_t; with `exact` False the server is Adam, whose moments go on from round to round."""
    heads = dict(heads)
    first = {name: torch.zeros_like(value) for name, value in theta.items()}
    second, count = dict(first), 0
    for round, cohort in enumerate(cohorts, 1):
        counted = range(len(clients)) if exact else cohort
        num_examples = sum(len(clients[j].targets) for j in counted)
        sent = []
        for i in cohort:
            alpha = len(clients[i].targets) / num_examples
            for rows in inner_batches(round, i):
                heads[i] = step(heads[i], gradient(client_loss, theta | heads[i], clients[i], rows), client_lr)
            (rows,) = joint_batches(round, i)
            joint = gradient(client_loss, theta | heads[i], clients[i], rows)
            heads[i] = step(heads[i], joint, rate(round) / inclusion * (alpha if exact else 1.0))
            sent.append((alpha / inclusion, {name: joint[name] for name in theta}))
        if not sent:
            continue
        direction = total(sent)
        if not exact:
            count += 1
            first = {name: 0.9 * first[name] + 0.1 * direction[name] for name in theta}
            second = {name: 0.999 * second[name] + 0.001 * direction[name] ** 2 for name in theta}
            direction = {
                name: first[name] / (1 - 0.9**count) / (torch.sqrt(second[name] / (1 - 0.999**count)) + 1e-8)
                for name in theta
            }
        theta = step(theta, direction, rate(round))
    return theta, heads
