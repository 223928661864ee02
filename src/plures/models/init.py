"""How the networks of the papers draw their first values."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from plures.core.errors import InvalidModel, did_you_mean

WEIGHTED = (nn.Linear, nn.modules.conv._ConvNd)


def torch_default(module: nn.Module) -> None:
    """What PyTorch has drawn already."""


def glorot_normal(module: nn.Module) -> None:
    """Weights N(0, 2 / (fan in + fan out)), biases N(0, 0.01^2): the PFLEGO papers."""
    for layer in module.modules():
        if isinstance(layer, WEIGHTED):
            nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.normal_(layer.bias, std=0.01)


def kaiming_fan_out(module: nn.Module) -> None:
    """Convolutions N(0, 2 / fan out) with zero biases; linear layers stay: the ResNets of FedAlt and FedSim."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.conv._ConvNd):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def small_normal(module: nn.Module, std: float) -> None:
    """Linear layers and embeddings N(0, std^2), biases of linear layers zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=std)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


INITS: dict[str, Callable[[nn.Module], None]] = {
    "torch": torch_default,
    "pflego": glorot_normal,
    "kaiming": kaiming_fan_out,
}


def initialise(module: nn.Module, init: str) -> None:
    """Draw the values again, by the name of a rule."""
    if init not in INITS:
        raise InvalidModel(f"There is no initialisation '{init}'. {did_you_mean(init, INITS)}")
    INITS[init](module)
