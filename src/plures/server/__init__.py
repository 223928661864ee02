"""What happens on the server: weights of uploads and server optimisers."""

from plures.server.optimizers import SERVER_OPTIMIZERS, fedadagrad, fedadam, fedyogi
from plures.server.weights import (
    WEIGHTS,
    batches,
    global_ht,
    ht_share,
    inverse_inclusion,
    round_ht,
    round_share,
    samples,
    uniform,
)

__all__ = [
    "SERVER_OPTIMIZERS",
    "WEIGHTS",
    "batches",
    "fedadagrad",
    "fedadam",
    "fedyogi",
    "global_ht",
    "ht_share",
    "inverse_inclusion",
    "round_ht",
    "round_share",
    "samples",
    "uniform",
]
