"""Networks by plain names, and networks that differ between clients."""

from collections.abc import Callable

from torch import nn

from plures.models.additive import Additive, additive
from plures.models.char_lstm import char_lstm
from plures.models.cnn_1d import cnn_1d
from plures.models.cnn_pflego import cnn_o, cnn_p
from plures.models.lenet import leaf_cnn, lenet5, lenet32
from plures.models.logistic import logistic
from plures.models.mlp import mlp
from plures.models.networks import AnyModel, as_networks, per_client, with_own_heads
from plures.models.resnet import resnet8_gn, resnet18_gn
from plures.models.split_input import SplitInput, split_input
from plures.models.transformer import char_transformer, transformer
from plures.models.vgg import vgg11_gn

MODELS: dict[str, Callable[..., nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn_p": cnn_p,
    "cnn_o": cnn_o,
    "leaf_cnn": leaf_cnn,
    "lenet32": lenet32,
    "lenet5": lenet5,
    "vgg11_gn": vgg11_gn,
    "resnet8_gn": resnet8_gn,
    "resnet18_gn": resnet18_gn,
    "cnn_1d": cnn_1d,
    "char_lstm": char_lstm,
    "char_transformer": char_transformer,
    "transformer": transformer,
}

__all__ = [
    "MODELS",
    "Additive",
    "AnyModel",
    "SplitInput",
    "additive",
    "as_networks",
    "char_lstm",
    "char_transformer",
    "cnn_1d",
    "cnn_o",
    "cnn_p",
    "leaf_cnn",
    "lenet5",
    "lenet32",
    "logistic",
    "mlp",
    "per_client",
    "resnet8_gn",
    "resnet18_gn",
    "split_input",
    "transformer",
    "vgg11_gn",
    "with_own_heads",
]
