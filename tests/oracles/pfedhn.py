"""pFedHN: Algorithm 1 of Shamsian et al. 2021, for groups of clients that have their turn together.

`phi` has the layers "body.0", "body.1", ... and for each parameter w of the clients' network the layer "heads.w"; `e`
is the embedding of each client and `own` its personal layers (pFedHN-PC), if any. The server's SGD is that of torch, at
the rate `server_lr` of each round.
"""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def made(phi, embedding, shapes):
    """theta = h(e; phi)."""
    x, layer = phi["body.0.weight"] @ embedding + phi["body.0.bias"], 1
    while f"body.{layer}.weight" in phi:
        x, layer = phi[f"body.{layer}.weight"] @ (x * (x > 0)) + phi[f"body.{layer}.bias"], layer + 1
    return {n: (phi[f"heads.{n}.weight"] @ x + phi[f"heads.{n}.bias"]).reshape(shape) for n, shape in shapes.items()}


def agreement(weights, shapes, delta):
    """<h(e; phi), delta>, whose gradient is the transposed Jacobian of h on delta."""
    theta = made(weights, weights["e"], shapes)
    return sum((theta[name] * delta[name]).sum() for name in shapes)


def pfedhn(clients, phi, e, own, shapes, turns, batches, *, lr, server_lr, momentum=0.0, decay=0.0, clip=float("inf")):
    e, own, speed, speeds = dict(e), dict(own), step(phi, phi, 1.0), {i: 0.0 * value for i, value in e.items()}
    for round, groups in enumerate(turns, 1):
        for group in groups:
            pulled = []
            for i in group:
                theta = made(phi, e[i], shapes)
                w = theta | own[i]
                for rows in batches(round, i):
                    w = step(w, gradient(client_loss, w, clients[i], rows), lr)
                own[i] = {name: w[name] for name in own[i]}
                grads = gradient(agreement, phi | {"e": e[i]}, shapes, step(theta, w, 1.0))
                pulled.append((1 / len(group), {**{n: grads[n] for n in phi}, f"e{i}": grads["e"]}))
            mean = total((share, {n: grads[n] for n in phi}) for share, grads in pulled)
            mean |= {n: share * grads[n] for share, grads in pulled for n in set(grads) - set(phi)}
            length = sum((value**2).sum() for value in mean.values()) ** 0.5
            mean = {n: value * min(1.0, clip / (length + 1e-6)) for n, value in mean.items()}
            speed = {n: momentum * speed[n] + mean[n] + decay * phi[n] for n in phi}
            phi = step(phi, speed, server_lr(round))
            for i in group:
                speeds[i] = momentum * speeds[i] + mean[f"e{i}"] + decay * e[i]
                e[i] = e[i] - server_lr(round) * speeds[i]
    return phi, e, own
