"""HeteroFL: Algorithm 1 of Diao et al. 2021 with really smaller networks, as its public code trains them."""

from __future__ import annotations

import math

import torch

from tests.oracles.common import gradient, step

HIDDEN = 3


def slice_of(width):
    """The first rows and columns of each tensor that a client of that width has: all inputs, all classes."""
    k = slice(math.ceil(width * HIDDEN))
    return {"body.weight": (k,), "body.bias": (k,), "head.weight": (slice(None), k), "head.bias": (slice(None),)}


def narrow_loss(weights, client, rows, width, mask):
    """Cross-entropy with what the hidden layer gives divided by the width, and zeros for classes not there."""
    hidden = torch.tanh((client.inputs[rows] @ weights["body.weight"].T + weights["body.bias"]) / width)
    logits = hidden @ weights["head.weight"].T + weights["head.bias"]
    if mask:
        logits = torch.stack([column * (c in client.targets) for c, column in enumerate(logits.T)]).T
    chosen = logits[torch.arange(len(rows)), client.targets[rows]]
    return (torch.log(torch.exp(logits).sum(dim=1)) - chosen).mean()


def heterofl(clients, w, widths, cohorts, batches, *, lr, scaler, mask, clip):
    """The server's model."""
    for round, cohort in enumerate(cohorts, 1):
        sums, counts = ({name: torch.zeros_like(value) for name, value in w.items()} for _ in range(2))
        for i in cohort:
            places = slice_of(widths[i])
            own = {name: w[name][place] for name, place in places.items()}
            for rows in batches(round, i):
                grads = gradient(narrow_loss, own, clients[i], rows, widths[i] if scaler else 1.0, mask)
                norm = math.sqrt(sum(float((grad**2).sum()) for grad in grads.values()))
                own = step(own, grads, lr * min(1.0, clip / (norm + 1e-6)))
            classes = clients[i].targets.unique() if mask else torch.arange(3)
            for name, place in places.items():
                rows = classes if name.startswith("head") else slice(None)
                sums[name][place][rows] += own[name][rows]
                counts[name][place][rows] += 1
        w = {name: torch.where(counts[name] > 0, sums[name] / counts[name], value) for name, value in w.items()}
    return w
