"""Per-FedAvg: Algorithm 1 of Fallah et al. 2020, weighed by examples; first order (FO), or Hessian-free (HF)."""

from __future__ import annotations

from tests.oracles.common import client_loss, gradient, step, total


def per_fedavg(clients, w, cohorts, batches, *, inner_lr, lr, difference=None):
    """`difference` is HF's delta; without it, FO. Batches left over by pairs (FO) or triples (HF) are not used."""
    size = 2 if difference is None else 3
    for round, cohort in enumerate(cohorts, 1):
        trained = []
        for i in cohort:
            own, all_rows = w, batches(round, i)
            for first in range(0, len(all_rows) - size + 1, size):
                rows = all_rows[first : first + size]
                tilde = step(own, gradient(client_loss, own, clients[i], rows[0]), inner_lr)
                grads = gradient(client_loss, tilde, clients[i], rows[1])
                if difference is not None:
                    ahead = gradient(client_loss, step(own, grads, -difference), clients[i], rows[2])
                    behind = gradient(client_loss, step(own, grads, difference), clients[i], rows[2])
                    product = {name: (ahead[name] - behind[name]) / (2 * difference) for name in grads}
                    grads = step(grads, product, inner_lr)
                own = step(own, grads, lr)
            trained.append((len(clients[i].targets), own))
        num_examples = sum(number for number, _ in trained)
        w = total((number / num_examples, own) for number, own in trained) if trained else w
    return w
