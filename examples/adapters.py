"""Adapters: train a network together, then let each client add small adapters and norms of its own."""

from torch import nn

import plures
from plures.local import epochs
from plures.methods import fedalt, fedavg
from plures.parts import adapters_and_norms, conv_adapters, split


def network() -> nn.Module:
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


federation = plures.data.digits_federation(num_clients=20, classes_per_client=2)
together = plures.run(fedavg(lr=0.4, budget=epochs(1, batch=10)), federation, network, rounds=15, cohort=10)


def with_adapters() -> nn.Module:
    """The second convolution gets an adapter; names stay as they were, so what was trained can be loaded."""
    adapted = conv_adapters(network())
    adapted.load_state_dict(together.server.shared, strict=False)
    return adapted


personal = adapters_and_norms()
result = plures.run(fedalt(personal=personal, lr=0.2), federation, with_adapters, rounds=5, cohort=10)

print(split(personal).table(with_adapters()))
print(together)
print(result)
