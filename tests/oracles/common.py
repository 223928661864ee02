"""What the oracles share: the loss of explicit weights, its gradients, and which examples make a batch."""

from __future__ import annotations

import torch

from plures.core.seeds import generator
from tests.helpers.methods import SEED


def client_loss(weights, client, rows=slice(None)):
    """Mean cross-entropy of tanh(x A^T + a) W^T + b, written out."""
    inputs, targets = client.inputs[rows], client.targets[rows]
    hidden = torch.tanh(inputs @ weights["body.weight"].T + weights["body.bias"])
    logits = hidden @ weights["head.weight"].T + weights["head.bias"]
    chosen = logits[torch.arange(len(targets)), targets]
    return (torch.log(torch.exp(logits).sum(dim=1)) - chosen).mean()


def gradient(loss, weights, *others):
    """d loss(weights, *others) / d weights; zero for weights that the loss does not depend on."""
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    grads = torch.autograd.grad(loss(leaves, *others), list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(weights[name]) if grad is None else grad
        for name, grad in zip(weights, grads, strict=True)
    }


def step(weights, grads, rate):
    """One step down; gradients of other weights may be among `grads`."""
    return {name: weights[name] - rate * grads[name] for name in weights}


def total(weighed):
    """Sum of share * weights over pairs (share, weights)."""
    weighed = list(weighed)
    return {name: sum(share * weights[name] for share, weights in weighed) for name in weighed[0][1]}


def batches_of(clients, budget, seed=SEED):
    """(round, client) -> rows of each batch, from the same keyed draws as Plures: only these are common."""

    def rows(round, client):
        size = len(clients[client].targets)
        draws = generator(seed, "batches", round, client, budget.stream)
        return [torch.arange(size) if some is None else some for some in budget.batches(size, draws)]

    return rows
