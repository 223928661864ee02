"""Runs of FedMask on the tiny federation, and clients that own given entries."""

from __future__ import annotations

import torch

from plures.local import epochs
from plures.methods import fedmask
from plures.stores.memory import MemoryStore
from tests.helpers.methods import play

W, A = "head.weight", "body.weight"
BOTH = "*.weight"
BUDGET = epochs(2, batch=3)


def tiny(rounds=4, sampler=None, **options):
    """Two of three units; so fast that bits change."""
    given = {
        key: options.pop(key) for key in ("store", "wire", "capacity_of", "population", "module") if key in options
    }
    method = fedmask(**{"lr": 0.5, "density": 0.7, "budget": BUDGET, "first_budget": BUDGET} | options)
    return play(method, rounds, sampler, **given)


def bits(run, client, name=W):
    """The mask that the client's model is seen with, after the last round."""
    seen = run.program.method.predict(run.model(client), run.population.batches[client].inputs)[name]
    return seen != 0


def kept(scores, owned):
    """A store with clients that have been pruned: scores and entries of the head, client by client."""
    store = MemoryStore()
    pairs = enumerate(zip(scores, owned, strict=True))
    store.commit(0, {i: {f"score.{W}": score.double(), f"owned.{W}": own} for i, (score, own) in pairs})
    return store


def columns(*places):
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[:, list(places)] = True
    return mask


ONES = torch.ones(3, 3)
