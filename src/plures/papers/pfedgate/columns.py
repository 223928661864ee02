"""The data sets of the pFedGate paper with their networks, and what stands in for them at smaller scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plures.papers.published import load
from plures.papers.recipe import Scale

PUBLISHED = load("pfedgate")
CONVOLUTIONS = ["body.0.*", "body.3.*"]
"""Of both networks: what LG-FedAvg keeps on its clients."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A data set and how it is dealt, with its network and its rates."""

    name: str
    stands_for: str
    """The data set of the paper whose numbers are put beside."""
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    rounds: int
    batch: int
    every: int
    """Rounds between evaluations."""
    often: int
    """Rounds between those of pFedGate with s = 0.5, whose speed is compared."""
    lr: float
    """Of methods that average all that they train."""
    own_lr: float
    """Of methods that keep weights of their own, gates apart."""
    gate_rates: Mapping[str, tuple[float, float]]
    """By s, the rates of the network and of the gate."""
    masked: Any = "head"
    """The layers that FedMask masks: the last of LEAF-CNN, the last two of LeNet."""
    falling: bool = True
    """Whether rates fall towards the end."""
    sampled_times: int = 5
    """With a fifth of the clients in a round, so many times as many rounds."""

    @property
    def title(self) -> str:
        return self.name if self.name == self.stands_for else f"{self.name} (for {self.stands_for})"

    def rates(self, density: float) -> tuple[float, float]:
        """Those of the nearest s that the paper has rates for, the larger of two."""
        nearest = min(self.gate_rates, key=lambda name: (round(abs(float(name) - density), 9), -float(name)))
        return self.gate_rates[nearest]

    def beside(self, name: str) -> Column:
        """The same runs, beside the numbers of another data set of the paper."""
        return replace(self, stands_for=name)


def gate_rates(name: str) -> dict[str, tuple[float, float]]:
    """Table 4 of the paper."""
    return {s: (network, gate) for s, (network, gate) in PUBLISHED["table-4"][name].items()}


DIRICHLET = {"partition": "dirichlet", "alpha": 0.4, "split": [0.6, 0.2, 0.2]}
FULL: dict[str, Any] = {"rounds": 400, "batch": 128, "every": 10, "often": 5}
TWO_LAST = ["body.9.*", "head"]

FULL_COLUMNS = {
    "EMNIST": Column(
        name="EMNIST",
        stands_for="EMNIST",
        data={
            "source": {"name": "emnist", "form": "byclass"},
            "examples": 81_425,
            "test_rule": "own",
            "clients": 100,
            **DIRICHLET,
        },
        model={"name": "leaf_cnn"},
        lr=0.03,
        own_lr=0.03,
        gate_rates=gate_rates("EMNIST"),
        **FULL,
    ),
    "FEMNIST": Column(
        name="FEMNIST",
        stands_for="FEMNIST",
        data={"source": "femnist", "partition": "natural", "sample_clients": 539, "split": [0.6, 0.2, 0.2]},
        model={"name": "leaf_cnn"},
        lr=0.03,
        own_lr=0.03,
        gate_rates=gate_rates("FEMNIST"),
        **FULL,
    ),
    "CIFAR-10": Column(
        name="CIFAR-10",
        stands_for="CIFAR-10",
        data={"source": "cifar-10", "test_rule": "joined", "clients": 100, **DIRICHLET},
        model={"name": "lenet32"},
        lr=0.03,
        own_lr=0.03,
        gate_rates=gate_rates("CIFAR-10"),
        masked=TWO_LAST,
        **FULL,
    ),
    "CIFAR-100": Column(
        name="CIFAR-100",
        stands_for="CIFAR-100",
        data={"source": "cifar-100", "test_rule": "joined", "clients": 50, **DIRICHLET},
        model={"name": "leaf_cnn"},
        lr=0.03,
        own_lr=0.03,
        gate_rates=gate_rates("CIFAR-100"),
        **FULL,
    ),
}

SMALL: dict[str, Any] = {"rounds": 100, "batch": 64, "every": 5, "often": 2}
"""Rates at the scale small are the best of those that `rates.py` tries; a test holds them to it."""
CLOTHES = Column(
    name="Fashion-MNIST",
    stands_for="EMNIST",
    data={"source": "fashion-mnist", "examples": 12_000, "test_rule": "own", "clients": 20, **DIRICHLET},
    model={"name": "leaf_cnn"},
    lr=0.3,
    own_lr=0.1,
    gate_rates={"0.5": (0.3, 15.0)},
    **SMALL,
)
PHOTOGRAPHS = Column(
    name="CIFAR-10",
    stands_for="CIFAR-10",
    data={"source": "cifar-10", "examples": 12_000, "test_rule": "own", "clients": 20, **DIRICHLET},
    model={"name": "lenet32"},
    lr=0.03,
    own_lr=0.03,
    gate_rates={"0.5": (0.3, 5.0)},
    masked=TWO_LAST,
    **SMALL,
)
FEW_CLOTHES = replace(
    CLOTHES,
    data={**CLOTHES.data, "examples": 2_000, "clients": 10},
    model={"name": "leaf_cnn", "filters": [16, 32], "fc": [256]},
    rounds=30,
    batch=16,
    lr=0.03,
    own_lr=0.03,
    gate_rates={"0.5": (0.3, 0.1)},
    falling=False,
    sampled_times=2,
)


def columns(scale: Scale, *names: str) -> list[Column]:
    """What runs for these data sets of the paper; at smaller scales one set of clothes stands for all drawings."""
    if scale == "full":
        return [FULL_COLUMNS[name] for name in names]
    drawings = CLOTHES if scale == "small" else FEW_CLOTHES
    first = next(name for name in names if "EMNIST" in name or len(names) == 1)
    found = [drawings.beside(first)]
    if scale == "small" and "CIFAR-10" in names:
        found = [PHOTOGRAPHS] if names == ("CIFAR-10",) else [*found, PHOTOGRAPHS]
    return found
