"""Sub-FedAvg (Un) of Vahidian et al. 2021: numpy's percentiles as in the authors' code, thresholds as fractions."""

from __future__ import annotations

import numpy as np
import torch

from tests.oracles.common import client_loss, gradient, step

WEIGHTS = ("body.weight", "head.weight")


def sub_fedavg(clients, w, cohorts, batches, *, lr, share, target, distance, accuracy, server_lr=1.0):
    """The server's model and every client's masks."""
    masks = {i: {name: torch.ones_like(value) for name, value in w.items()} for i in range(len(clients))}
    for round, cohort in enumerate(cohorts, 1):
        sent = []
        for i in cohort:
            own, after, drawn = product(masks[i], w), [], 0
            for rows in batches(round, i):
                own = step(own, product(masks[i], gradient(client_loss, own, clients[i], rows)), lr)
                drawn += len(rows)
                if drawn >= len(clients[i].targets):  # from the end of the first epoch on
                    after.append(pruned(own, masks[i], share, target))
            first, last = (after[0], after[-1]) if after else (masks[i], masks[i])
            apart = np.mean([float((first[name] != last[name]).double().mean()) for name in WEIGHTS])
            if apart > distance and share_right(product(masks[i] | last, own), clients[i]) > accuracy:
                masks[i] = masks[i] | last
            sent.append((masks[i], own))
        for name in w if cohort else ():
            held = sum(mask[name] for mask, _ in sent)
            mean = sum(mask[name] * own[name] for mask, own in sent) / held.clamp(min=1)
            w = w | {name: torch.where(held > 0, w[name] - server_lr * (w[name] - mean), w[name])}
    return w, masks


def product(mask, weights):
    return {name: mask[name] * value for name, value in weights.items()}


def pruned(weights, mask, share, target):
    """Without what is below the percentile of each tensor; in the end, less of each, so that the target is kept."""
    sizes = {name: np.sort(weights[name].abs()[mask[name] > 0].numpy()) for name in WEIGHTS}
    below = [int((sizes[name] < np.percentile(sizes[name], 100 * share)).sum()) for name in WEIGHTS]
    room = sum(map(len, sizes.values())) - int(np.ceil(target * sum(mask[name].numel() for name in WEIGHTS)))
    if sum(below) > room:
        ends = np.cumsum(below) * room // sum(below)
        below = np.diff(ends, prepend=0)
    return {n: mask[n] * (weights[n].abs() >= float(sizes[n][k])) for n, k in zip(WEIGHTS, below, strict=True)}


def share_right(weights, client):
    hidden = torch.tanh(client.inputs @ weights["body.weight"].T + weights["body.bias"])
    guesses = (hidden @ weights["head.weight"].T + weights["head.bias"]).argmax(dim=1)
    return float((guesses == client.targets).double().mean())
