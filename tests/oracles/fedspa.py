"""FedSpa: Algorithms 1 to 3 of Huang et al. 2022, masks coordinate by coordinate; a prune rate of 0 is RSM."""

from __future__ import annotations

from math import ceil, cos, pi

import torch

from tests.oracles.common import client_loss, gradient


def fedspa(clients, w, masks, cohorts, batches, *, rate, alpha, decay=0.0, by_holders=False, worth=None):
    """The dense model and every client's mask; `worth(round, client, weights)` replaces the gradient of regrowth."""
    masks = dict(masks)
    for t, cohort in enumerate(cohorts):
        sent, held = {name: 0 * w[name] for name in w}, {name: 0 * w[name] for name in w}
        a_t = alpha / 2 * (1 + cos(pi * t / (len(cohorts) - 1)))
        for i in cohort:
            m, all_rows = masks[i], batches(t + 1, i)
            start = w_i = {name: m[name] * w[name] for name in w}
            for rows in all_rows:
                grads = gradient(client_loss, w_i, clients[i], rows)
                w_i = {name: w_i[name] - rate * (m[name] * (grads[name] + decay * w_i[name])) for name in w}
            g = gradient(client_loss, w_i, clients[i], all_rows[0]) if worth is None else worth(t + 1, i, w_i)
            masks[i] = {name: next_mask(m[name], w_i[name], g[name], a_t) for name in w}
            sent = {name: sent[name] + start[name] - w_i[name] for name in w}
            held = {name: held[name] + m[name] for name in w}
        for name in w if cohort else ():
            divisor = held[name].clamp_min(1) if by_holders else len(cohort)
            w = w | {name: w[name] - sent[name] / divisor}
    return w, masks


def next_mask(mask, weights, worth, a_t):
    """Of one tensor, drop a share of the ones, the smallest weights first; then take as many of the largest worth."""
    size, value = weights.abs().flatten().tolist(), worth.abs().flatten().tolist()
    ones = [k for k, bit in enumerate(mask.flatten().tolist()) if bit]
    count = ceil(a_t * len(ones) * (1 - 1e-12))  # 0.07 * 100 is 7.000000000000001, by rounding
    kept = sorted(ones, key=lambda k: size[k])[count:]
    others = [k for k in range(mask.numel()) if k not in kept]
    grown = sorted(others, key=lambda k: -value[k])[:count]
    return torch.tensor([k in kept + grown for k in range(mask.numel())]).reshape(mask.shape)
