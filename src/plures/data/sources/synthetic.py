"""Clients drawn from a known law: a data set of them, or a population too large to hold."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch

from plures.core.errors import InvalidConfig
from plures.core.types import Batch
from plures.data.client import ClientData, make_client
from plures.data.datasets import DataSet
from plures.data.dealing import keyed_generator
from plures.data.federation import CACHE_BYTES, Federation
from plures.data.populations import FunctionPopulation
from plures.data.sources.reading import check_count
from plures.data.sources.registry import source
from plures.data.splitting import DEFAULT_RATIOS, Ratios, check_ratios, split_sizes
from plures.data.synthesis import PURPOSE, Labels, Synthetic, SyntheticGoal


@source("synthetic", about="clients drawn from a known law, as unlike one another as asked for; synthetic(alpha, beta)")
def synthetic(
    *,
    clients: int = 30,
    alpha: float = 1.0,
    beta: float = 1.0,
    classes: int = 10,
    features: int = 60,
    goal: SyntheticGoal = "classification",
    labels: Labels = "likeliest",
    noise: float = 0.1,
    iid: bool = False,
    min_examples: int = 50,
    max_examples: int = 10_000,
    log_mean: float = 4.0,
    log_spread: float = 2.0,
    seed: int = 0,
) -> DataSet:
    """The law is that of `plures.data.synthesis.Synthetic`, whose `truth` gives each client's model.

    A client has min_examples + floor(exp(N(log_mean, log_spread ** 2))) examples, at most max_examples.
    """
    for option, count in (("clients", clients), ("min_examples", min_examples), ("max_examples", max_examples)):
        check_count(option, count)
    if not isfinite(log_mean) or not isfinite(log_spread) or log_spread < 0:
        raise InvalidConfig(
            f"log_mean is {log_mean} and log_spread {log_spread}: give numbers, the second not below 0."
        )
    law = Synthetic(
        alpha=alpha,
        beta=beta,
        classes=classes,
        features=features,
        goal=goal,
        labels=labels,
        noise=noise,
        iid=iid,
        seed=seed,
    )
    draws = [keyed_generator(seed, PURPOSE, "size", client).standard_normal() for client in range(clients)]
    # Cut off before the exponential, so that no draw is too large for a number.
    logs = np.minimum(log_mean + log_spread * np.array(draws), np.log(max_examples))
    sizes = np.minimum(min_examples + np.exp(logs).astype(np.int64), max_examples)
    drawn = [law.examples(client, int(size)) for client, size in enumerate(sizes)]
    return DataSet(
        name="synthetic",
        examples=Batch(torch.cat([own.inputs for own in drawn]), torch.cat([own.targets for own in drawn])),
        owners=np.repeat(np.arange(clients), sizes),
        owner_names=tuple(map(str, range(clients))),
        class_names=() if goal == "regression" else tuple(map(str, range(classes))),
        goal=law.aim,
    )


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """Draws a client each time it is asked for; holds nothing."""

    law: Synthetic
    sizes: tuple[int, int, int]

    def load(self, client: int) -> ClientData:
        batch = self.law.examples(client, sum(self.sizes))
        inputs, targets = (torch.split(part, list(self.sizes)) for part in batch)
        train, validation, test = (Batch(*pair) for pair in zip(inputs, targets, strict=True))
        return make_client(train, validation, test, "global")

    def num_examples(self, client: int) -> int:
        return self.sizes[0]


def synthetic_population(
    num_clients: int,
    examples: int = 50,
    *,
    law: Synthetic | None = None,
    split: Ratios = DEFAULT_RATIOS,
    cache_bytes: int = CACHE_BYTES,
) -> Federation:
    """Any number of clients with `examples` each, drawn on demand: memory does not grow with their number."""
    check_count("num_clients", num_clients)
    check_count("examples", examples)
    check_ratios(split, own_test=False)
    sizes = split_sizes(examples, split)
    if sizes[0] < 1:
        raise InvalidConfig(f"examples is {examples}, too few for the split {split}: give more.")
    law = Synthetic() if law is None else law
    clients = OnDemand(law=law, sizes=sizes)
    population = FunctionPopulation(
        num_clients=num_clients, load=clients.load, num_examples=clients.num_examples, classes=law.num_outputs
    )
    return Federation(population, cache_bytes=cache_bytes, goal=law.aim)
