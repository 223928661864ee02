"""What most networks here are: a body that gives features, and one linear layer as the head."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Classifier(nn.Module):
    """The body turns a batch of examples into rows of features, the head those into scores of classes."""

    def __init__(self, body: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(features, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(inputs))
        return result


def flat_classifier(layers: Sequence[nn.Module], features: int, fc: Sequence[int], classes: int) -> Classifier:
    """Layers whose result is flattened to so many features, linear layers with ReLU, the head.

    Flattening keeps the values of one channel together, so that a channel can be cut from both sides of it.
    """
    body: list[nn.Module] = [*layers, nn.Flatten()]
    for size in fc:
        body += [nn.Linear(features, size), nn.ReLU()]
        features = size
    return Classifier(nn.Sequential(*body), features, classes)


def pooled(convolution: nn.Module, pool: nn.Module) -> list[nn.Module]:
    """Convolution, ReLU and max-pooling. ReLU last gives the same values and gradients with a quarter of the work."""
    return [convolution, pool, nn.ReLU()]
