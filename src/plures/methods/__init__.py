"""Methods: one short file each; importing this package registers them all."""

from plures.methods.fedalt import fedalt
from plures.methods.fedavg import fedavg
from plures.methods.fedper import fedper
from plures.methods.fedsim import fedsim
from plures.methods.finetune import finetune
from plures.methods.local import local
from plures.methods.pflego import pflego
from plures.methods.registry import METHODS, MethodInfo, find_method

__all__ = [
    "METHODS",
    "MethodInfo",
    "fedalt",
    "fedavg",
    "fedper",
    "fedsim",
    "find_method",
    "finetune",
    "local",
    "pflego",
]
