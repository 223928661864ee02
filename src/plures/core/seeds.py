"""Keyed randomness: every draw comes from a generator named by what it is for.

No draw depends on how many draws came before it, so clients may run in any order, on any number of
workers, and a resumed run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

Key = int | str


def derive_seed(seed: int, purpose: str, *keys: Key) -> int:
    """A 63-bit seed for one purpose; distinct keys give independent seeds."""
    text = "\x1f".join([str(seed), purpose, *(f"{type(key).__name__}:{key}" for key in keys)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(seed: int, purpose: str, *keys: Key) -> torch.Generator:
    """A generator on the CPU, keyed by (run seed, purpose, keys such as round and client)."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, *keys))


@contextmanager
def global_draws(seed: int, purpose: str, *keys: Key) -> Iterator[None]:
    """Key torch's global generator for code that can draw from nothing else (dropout, layer initialisation)."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        # Not torch.manual_seed: where there is no GPU, that writes down a stack trace each time.
        number = derive_seed(seed, purpose, *keys)
        torch.default_generator.manual_seed(number)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(number)
        yield
