"""Validation examples merged into those that are trained on, once nothing is left to choose."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from plures.core.types import Batch
from plures.data.client import ClientData, LabelSpace, empty_like
from plures.data.federation import CACHE_BYTES, Federation
from plures.data.fingerprints import Fingerprint, digest_of_text
from plures.data.populations import PooledPopulation, Population


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged:
    """The same clients of the same split, whose validation examples come behind their training examples.

    Test examples are the whole's own, bit for bit: what a data set learns before any network does (a vocabulary, means)
    still comes of the former training examples alone.
    """

    whole: Population

    @property
    def num_clients(self) -> int:
        return self.whole.num_clients

    @property
    def classes(self) -> int:
        return self.whole.classes

    @property
    def label_space(self) -> LabelSpace:
        return self.whole.label_space

    def load(self, client: int) -> ClientData:
        data = self.whole.load(client)
        return ClientData(
            train=joined(data.train, data.validation),
            validation=empty_like(data.validation),
            test=data.test,
            classes=data.classes,
        )

    def name(self, client: int) -> str:
        return self.whole.name(client)

    def num_examples(self, client: int) -> int:
        if isinstance(self.whole, PooledPopulation):
            return self.whole.num_examples(client) + len(self.whole.indices[client].validation)
        return self.whole.num_examples(client) + self.whole.load(client).validation.num_examples

    def num_classes(self, client: int) -> int:
        return self.whole.num_classes(client)

    def fingerprint(self) -> Fingerprint:
        whole = self.whole.fingerprint()
        return {"data": whole["data"], "split": digest_of_text(whole["split"], "validation merged")}


def merge_validation(federation: Federation) -> Federation:
    """A federation whose clients train on their validation examples too; nothing is left to validate on."""
    return Federation(
        Merged(whole=federation.population),
        cache_bytes=federation.cache.limit_bytes or CACHE_BYTES,
        goal=federation.goal,
        prepare=federation.prepare,
        augment=federation.augment,
    )


def joined(first: Batch, second: Batch) -> Batch:
    return Batch(torch.cat([first.inputs, second.inputs]), torch.cat([first.targets, second.targets]))
