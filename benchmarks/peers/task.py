"""What all peers have in common: the same clients, the same sizes, and one line of JSON at the end.

Runs in a peer's own environment, where there is no Plures.
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RATE = 0.05
CLASSES = 10


class Client(NamedTuple):
    """The examples of one client that are trained on, or tested."""

    inputs: np.ndarray
    """Pixels from 0 to 1, (N, 1, 28, 28)."""
    targets: np.ndarray


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="npz file with inputs, targets and ends")
    parser.add_argument("--model", choices=["mlp", "cnn"], required=True)
    parser.add_argument("--width", type=int, default=100, help="of the MLP's hidden layer")
    parser.add_argument("--batch", type=int, default=0, help="examples of a step (default: all that a client has)")
    parser.add_argument("--epochs", type=int, default=1, help="of a client in a round")
    parser.add_argument("--evaluate", action="store_true", help="measure the evaluation of all clients, no training")
    parser.add_argument("--cohort", type=int, required=True)
    parser.add_argument("--personal-head", action="store_true", help="FedPer: each client keeps its last layer")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before the clock starts")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that are measured")
    return parser.parse_args()


@lru_cache(maxsize=1)
def clients(data: Path) -> list[Client]:
    """All clients, in memory."""
    with np.load(data) as arrays:
        inputs = arrays["inputs"].astype(np.float32) / 255
        targets, ends = arrays["targets"], arrays["ends"]
    starts = [0, *ends[:-1]]
    return [Client(inputs[a:b], targets[a:b]) for a, b in zip(starts, ends, strict=True)]


def num_steps(num_examples: int, asked: argparse.Namespace) -> int:
    """Of a client in a round; an evaluation counts clients."""
    if asked.evaluate:
        return 1
    return asked.epochs * ceil(num_examples / (asked.batch or num_examples))


def tell(peer: str, version: str, seconds: list[float], steps: list[int], **more: Any) -> None:
    """Seconds and gradient steps of each round that was measured."""
    print(json.dumps({"peer": peer, "version": version, "seconds": seconds, "steps": steps, **more}), flush=True)
