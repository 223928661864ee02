"""Networks by plain names, and networks that differ between clients."""

from collections.abc import Callable

from torch import nn

from plures.models.mlp import mlp
from plures.models.networks import AnyModel, as_networks, per_client, with_own_heads

MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp}

__all__ = ["MODELS", "AnyModel", "as_networks", "mlp", "per_client", "with_own_heads"]
