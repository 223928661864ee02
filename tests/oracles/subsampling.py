"""Subsampling: FedAvg with equal weights, of whose updates a random part is sent (Konečný et al. 2016)."""

from __future__ import annotations

import torch

from tests.oracles.common import client_loss, gradient, step


def subsampling(clients, w, cohorts, batches, masks, *, lr, factor=1.0, server_lr=1.0):
    """`masks(round, client)` is a vector of zeros and ones over all weights; what is sent is multiplied by `factor`."""
    for round, cohort in enumerate(cohorts, 1):
        change = 0.0
        for i in cohort:
            own = w
            for rows in batches(round, i):
                own = step(own, gradient(client_loss, own, clients[i], rows), lr)
            update = torch.cat([(w[name] - own[name]).flatten() for name in w])
            change = change + factor * masks(round, i) * update / len(cohort)
        if cohort:
            parts = change.split([value.numel() for value in w.values()])
            w = {name: w[name] - server_lr * part.view_as(w[name]) for name, part in zip(w, parts, strict=True)}
    return w
