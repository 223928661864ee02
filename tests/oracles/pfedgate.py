"""pFedGate: Algorithm 1 of Chen et al. 2023 with one set of gates for a batch, as plain loops on the tiny network."""

from __future__ import annotations

from math import ceil, floor

import torch

from tests.oracles.common import client_loss

EPS = 1e-5


def pfedgate(clients, theta, gates, cohorts, batches, *, s, least, splits=5, **options):
    """The server's model and every client's gate with its running statistics; `s` has each client's capacity."""
    gates = dict(gates)
    pieces = {name: cut(value.numel(), splits, least) for name, value in theta.items()}
    for round, cohort in enumerate(cohorts, 1):
        moved, weights = ({name: 0 * value for name, value in theta.items()} for _ in range(2))
        for i in cohort:
            own, n = theta, len(clients[i].targets)
            velocity = {name: 0 * value for name, value in theta.items()}
            for rows in batches(round, i):
                if len(rows) > 1:  # of one example there are no statistics
                    own, gates[i], velocity = one_step(
                        own, gates[i], velocity, clients[i], rows, pieces, s[i], least, **options
                    )
            for name in theta:
                moved[name] += n * (own[name] - theta[name])
                weights[name] += n * touched(own[name] - theta[name], pieces[name])
        theta = {name: theta[name] + moved[name] / weights[name].clamp_min(1) for name in theta}
    return theta, gates


def cut(size, splits, least):
    """(start, stop, always kept): a first piece of floor(size * least), then equal ones, the last perhaps shorter."""
    first = floor(size * least)
    length = ceil((size - first) / min(splits - 1, size - first))
    rest = [(start, min(start + length, size), False) for start in range(first, size, length)]
    return [(0, first, True)] * (first > 0) + rest


def one_step(theta, gate, velocity, client, rows, pieces, s, least, *, lr, gate_lr, clip=10.0, momentum=0.0, decay=0.0):
    """One batch: forward through the gate, selection, straight through, and a step of both at their own rates."""
    learnt = [name for name in gate if not any(word in name for word in ("running", "tracked", "capacity"))]
    leaves = {name: value.clone().requires_grad_() for name, value in (theta | {n: gate[n] for n in learnt}).items()}
    weights, importance, statistics = gates_of(leaves, gate, client.inputs[rows])
    kept = torch.tensor(chosen(importance.tolist(), pieces, s, least), dtype=torch.float64)
    straight = kept - importance.detach() + importance if s < 1 else kept
    mask = iter(weights * straight)
    seen = {
        name: torch.cat([leaves[name].flatten()[a:b] * next(mask) for a, b, _ in pieces[name]]).reshape_as(theta[name])
        for name in theta
    }
    loss = client_loss(seen, client, rows)
    values = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    grads = dict(zip(leaves, values, strict=True))
    grads = clipped(grads, theta, clip) | clipped(grads, learnt, clip)
    new = dict(theta)
    for name in theta:  # momentum and decay only where a piece was touched
        here = touched(grads[name], pieces[name]).bool()
        step = momentum * velocity[name] + grads[name] + decay * theta[name]
        velocity = velocity | {name: torch.where(here, step, velocity[name])}
        new[name] = torch.where(here, theta[name] - lr * step, theta[name])
    return new, gate | {name: gate[name] - gate_lr * grads[name] for name in learnt} | statistics, velocity


def gates_of(phi, kept, x):
    """M and G of each block, means over the batch; and the new running statistics."""
    mean, variance = x.mean(dim=1), x.var(dim=1, unbiased=False)  # of each example: its four numbers are one channel
    batch_mean = mean.mean()
    batch_variance = (variance + mean**2).mean() - batch_mean**2
    statistics = {
        "gate.norm.running_mean": 0.9 * kept["gate.norm.running_mean"] + 0.1 * batch_mean,
        "gate.norm.running_variance": 0.9 * kept["gate.norm.running_variance"] + 0.1 * batch_variance,
    }
    a, b = (torch.softmax(phi[f"gate.norm.{kind}_mix"], dim=0) for kind in ("mean", "variance"))
    centre = (a[0] + a[1]) * mean + a[2] * batch_mean  # with one channel, instance and layer are the same
    spread = (b[0] + b[1]) * variance + b[2] * batch_variance
    normed = (x - centre[:, None]) / torch.sqrt(spread + EPS)[:, None]
    normed = normed * phi["gate.norm.weight"] + phi["gate.norm.bias"]
    found = []
    for head in [f"gate.{word}" for word in ("weigh", "rank") if f"gate.{word}.linear.weight" in phi]:
        z = normed @ phi[f"{head}.linear.weight"].T + phi[f"{head}.linear.bias"]
        centre, spread, size = z.mean(dim=0), z.var(dim=0, unbiased=False), len(x)
        z = (z - centre) / torch.sqrt(spread + EPS) * phi[f"{head}.norm.weight"] + phi[f"{head}.norm.bias"]
        found.append((1 / (1 + torch.exp(-z))).mean(dim=0))
        for name, value in (("mean", centre), ("var", spread * size / (size - 1))):
            name = f"{head}.norm.running_{name}"
            statistics[name] = 0.9 * kept[name] + 0.1 * value.detach()
        statistics[f"{head}.norm.num_batches_tracked"] = kept[f"{head}.norm.num_batches_tracked"] + 1
    return found[0], found[-1], statistics


def chosen(importance, pieces, s, least):
    """The first pieces, and by worth the others as long as they fit; all layers are linear, so there is one group."""
    blocks = [(stop - start, always) for ends in pieces.values() for start, stop, always in ends]
    total, forced = sum(size for size, _ in blocks), sum(size for size, always in blocks if always)
    room = min(floor((s - least) * (total - forced) + 0.5), floor(s * total + 1e-9) - forced)
    kept = [always or s == 1 for _, always in blocks]
    worth = [round(10 * max(value, least)) for value in importance]
    for number in sorted(range(len(blocks)), key=lambda number: -worth[number]):
        if not kept[number] and blocks[number][0] <= room:
            kept[number] = True
            room -= blocks[number][0]
    return kept


def clipped(grads, names, most):
    norm = sum(float((grads[name] ** 2).sum()) for name in names) ** 0.5
    return {name: grads[name] * min(1.0, most / (norm + 1e-6)) for name in names}


def touched(change, pieces):
    """1 in the pieces in which anything is not zero."""
    flat = change.flatten()
    ones = [torch.full((stop - start,), float(flat[start:stop].any())) for start, stop, _ in pieces]
    return torch.cat(ones).double().reshape_as(change)
