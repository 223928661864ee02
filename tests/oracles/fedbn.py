"""FedBN: Algorithm 1 of Li et al. 2021; all but the norms is averaged by examples, statistics stay with the clients."""

from __future__ import annotations

import torch

from tests.oracles.common import gradient, step, total

SCALE, SHIFT, MEAN, VAR, COUNT = (
    f"norm.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
)


def normed_loss(weights, client, rows):
    """Mean cross-entropy of tanh(scale (h - mean h) / sqrt(var h + 1e-5) + shift) W^T + b, where h = x A^T."""
    hidden, targets = client.inputs[rows] @ weights["body.weight"].T, client.targets[rows]
    centred = hidden - hidden.mean(dim=0)
    normed = centred / torch.sqrt((centred**2).mean(dim=0) + 1e-5)
    logits = torch.tanh(weights[SCALE] * normed + weights[SHIFT]) @ weights["head.weight"].T + weights["head.bias"]
    return (torch.log(torch.exp(logits).sum(dim=1)) - logits[torch.arange(len(targets)), targets]).mean()


def followed(state, hidden):
    """Running statistics a tenth nearer to those of a batch, its variance with n - 1."""
    mean, var = 0.9 * state[MEAN] + 0.1 * hidden.mean(dim=0), 0.9 * state[VAR] + 0.1 * hidden.var(dim=0)
    return {MEAN: mean, VAR: var, COUNT: state[COUNT] + 1}


def fedbn(clients, u, states, cohorts, batches, *, lr):
    states = dict(states)
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            u_i, state = u, states[i]
            for rows in batches(round, i):
                norms = {name: state[name] for name in (SCALE, SHIFT)}
                statistics = followed(state, clients[i].inputs[rows] @ u_i["body.weight"].T)
                grads = gradient(normed_loss, u_i | norms, clients[i], rows)
                u_i, state = step(u_i, grads, lr), step(norms, grads, lr) | statistics
            states[i] = state
            trained.append((len(clients[i].targets), u_i))
        num_examples = sum(size for size, _ in trained)
        u = total((size / num_examples, u_i) for size, u_i in trained) if trained else u
    return u, states
