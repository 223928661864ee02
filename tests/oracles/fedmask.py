"""FedMask as the pFedGate paper describes it: frozen weights, scores of some, bits that their owners vote on."""

from __future__ import annotations

import torch

from tests.oracles.common import client_loss, gradient


def fedmask(clients, w, axes, kept, cohorts, batches, first_batches, *, lr, first, quorum, identity):
    """Votes, where there are some, and each visited client's scores and entries.

    `axes` has the dimension of each masked tensor's units (None: entries), `kept` how many of them stay.
    """
    vote = {name: torch.zeros(w[name].shape) > 0 for name in axes}
    given, scores, owned = dict(vote), {}, {}
    for round, cohort in enumerate(cohorts, 1):
        ones, owners = ({name: torch.zeros(w[name].shape) for name in axes} for _ in range(2))
        for i in cohort:
            fresh = i not in owned
            own = {name: torch.ones(w[name].shape) > 0 for name in axes} if fresh else owned[i]
            r = {name: torch.full_like(w[name], first) for name in axes} if fresh else dict(scores[i])
            for name in axes:
                signed = torch.where(vote[name], r[name].abs(), -r[name].abs())
                r[name] = torch.where(given[name] & own[name], signed, r[name])
            if fresh:
                r = trained(clients[i], w, r, own, first_batches(round, i), lr, identity)
                own = {name: best(r[name], axes[name], kept[name]) for name in axes}
                r = {name: torch.where(own[name], r[name], 0.0) for name in axes}
            r = trained(clients[i], w, r, own, batches(round, i), lr, identity)
            scores[i], owned[i] = r, own
            for name in axes:
                ones[name] += (r[name] > 0) & own[name]
                owners[name] += own[name]
        for name in axes:
            decided = owners[name] >= quorum
            vote[name] = torch.where(decided, ones[name] / owners[name] > 0.5, vote[name])
            given[name] = given[name] | decided
    return vote, given, scores, owned


def trained(client, w, r, own, all_rows, lr, identity):
    """dF/dr = dF/dw_eff * w * db/dr, with sigmoid'(r) = s (1 - s), or 1, in the place of db/dr."""
    for rows in all_rows:
        seen = w | {name: w[name] * ((r[name] > 0) & own[name]) for name in r}
        grads = gradient(client_loss, seen, client, rows)
        slope = {name: 1.0 if identity else torch.sigmoid(r[name]) * (1 - torch.sigmoid(r[name])) for name in r}
        r = {name: r[name] - lr * grads[name] * w[name] * slope[name] * own[name] for name in r}
    return r


def best(score, axis, count):
    """The entries of the units with the highest mean scores."""
    if axis is None:
        places = sorted(range(score.numel()), key=lambda place: -float(score.flatten()[place]))[:count]
        return torch.tensor([place in places for place in range(score.numel())]).reshape(score.shape)
    means = [float(score.select(axis, unit).mean()) for unit in range(score.shape[axis])]
    units = sorted(range(len(means)), key=lambda unit: -means[unit])[:count]
    chosen = torch.tensor([unit in units for unit in range(len(means))])
    return (chosen[:, None] if axis == 0 else chosen[None, :]).expand(score.shape)
