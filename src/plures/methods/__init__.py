"""Methods: one short file each; importing this package registers them all."""

from plures.methods.apfl import apfl
from plures.methods.ditto import ditto
from plures.methods.fedalt import fedalt
from plures.methods.fedavg import fedavg
from plures.methods.fedbabu import fedbabu
from plures.methods.fedbn import fedbn
from plures.methods.fedem import fedem
from plures.methods.fedmask import fedmask
from plures.methods.fedper import fedper
from plures.methods.fedprox import fedprox
from plures.methods.fedrecon import fedrecon
from plures.methods.fedrep import fedrep
from plures.methods.fedsim import fedsim
from plures.methods.fedspa import fedspa
from plures.methods.finetune import finetune
from plures.methods.heterofl import heterofl
from plures.methods.lg_fedavg import lg_fedavg
from plures.methods.local import local
from plures.methods.per_fedavg import per_fedavg
from plures.methods.pfedgate import pfedgate
from plures.methods.pfedhn import pfedhn
from plures.methods.pfedme import pfedme
from plures.methods.pflego import pflego
from plures.methods.registry import METHODS, MethodInfo, find_method, register
from plures.methods.scaffold import scaffold
from plures.methods.sub_fedavg import sub_fedavg
from plures.methods.subsampling import subsampling

__all__ = [
    "METHODS",
    "MethodInfo",
    "apfl",
    "ditto",
    "fedalt",
    "fedavg",
    "fedbabu",
    "fedbn",
    "fedem",
    "fedmask",
    "fedper",
    "fedprox",
    "fedrecon",
    "fedrep",
    "fedsim",
    "fedspa",
    "find_method",
    "finetune",
    "heterofl",
    "lg_fedavg",
    "local",
    "per_fedavg",
    "pfedgate",
    "pfedhn",
    "pfedme",
    "pflego",
    "register",
    "scaffold",
    "sub_fedavg",
    "subsampling",
]
