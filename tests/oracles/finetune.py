"""FedAvg, then fine-tuning of a copy on each client: all weights, or the named ones only."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step
from tests.oracles.fedavg import fedavg


def finetune(clients, weights, cohorts, batches, tune_batches, *, lr, tune_lr, tuned):
    """The common weights, and each client's own; `tune_batches` are those of the last round."""
    common = fedavg(clients, weights, cohorts, batches, lr=lr)
    own = {}
    for i, client in enumerate(clients):
        moving = {name: common[name] for name in tuned}
        for rows in tune_batches(len(cohorts), i):
            moving = step(moving, gradient(client_loss, common | moving, client, rows), tune_lr)
        own[i] = common | moving
    return common, own
