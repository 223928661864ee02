"""What happens on the server: weights of uploads, robust sums and server optimisers."""

from plures.server.optimizers import SERVER_OPTIMIZERS, fedadagrad, fedadam, fedyogi
from plures.server.robust import ROBUST, Robust, as_summing, clipped, krum, median, trimmed_mean
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
    "ROBUST",
    "SERVER_OPTIMIZERS",
    "WEIGHTS",
    "Robust",
    "as_summing",
    "batches",
    "clipped",
    "fedadagrad",
    "fedadam",
    "fedyogi",
    "global_ht",
    "ht_share",
    "inverse_inclusion",
    "krum",
    "median",
    "round_ht",
    "round_share",
    "samples",
    "trimmed_mean",
    "uniform",
]
