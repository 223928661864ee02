"""The networks of the workloads for the peers that use torch: a body and a linear head."""

from __future__ import annotations

import torch
from task import CLASSES
from torch import nn


class Net(nn.Module):
    def __init__(self, model: str, mlp_width: int) -> None:
        super().__init__()
        self.body, width = mlp_body(mlp_width) if model == "mlp" else cnn_body()
        self.head = nn.Linear(width, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def mlp_body(width: int) -> tuple[nn.Module, int]:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU()), width


def cnn_body() -> tuple[nn.Module, int]:
    """Convolutions 5 x 5 with 32 and 64 channels, each halved, and a layer of 2,048."""
    layers = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 2048), nn.ReLU()), 2048
