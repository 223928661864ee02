"""The paper's three tasks and what stands for them: data, network and rates, at each scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plures.papers.recipe import Scale

Table = dict[str, Any]

STACKOVERFLOW, GLDV2, EMNIST, UNIPEN = "StackOverflow", "GLDv2", "EMNIST", "UNIPEN"
PAPER_TASKS = (STACKOVERFLOW, GLDV2, EMNIST)
INPUT, OUTPUT, ADAPTER = "Input Layer", "Output Layer", "Adapter"
PARTS = (INPUT, OUTPUT, ADAPTER)
OF_IMAGES = {INPUT: "input_layer", OUTPUT: "output_layer", ADAPTER: "adapters_and_norms"}
OF_TEXT = {INPUT: "first_block", OUTPUT: "last_block", ADAPTER: "adapters_and_norms"}
STANDS_FOR: dict[Scale, dict[str, str]] = {
    "micro": {
        EMNIST: "6,000 digits of MNIST dealt to 40 clients, each with a style of its own",
        UNIPEN: "60 writers of UNIPEN",
        STACKOVERFLOW: "40 users of Stack Exchange",
    },
    "small": {
        EMNIST: "20,000 digits of MNIST dealt to 100 clients, each with a style of its own",
        UNIPEN: "100 writers of UNIPEN",
        STACKOVERFLOW: "all users of Stack Exchange with 500 words",
    },
    "full": {EMNIST: "EMNIST by writer", GLDV2: "GLDv2 by photographer", STACKOVERFLOW: "1,000 users of StackOverflow"},
}

SHORT = {EMNIST: "MNIST in styles (for EMNIST)", STACKOVERFLOW: "Stack Exchange (for StackOverflow)"}


def shown(task: str, scale: Scale) -> str:
    """Where other data stand in for the paper's, the name of both."""
    return task if scale == "full" else SHORT.get(task, task)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that methods on it have in common; lengths and rates of the stages (a), (b), (c)."""

    data: Table
    model: Table
    parts: Mapping[str, str]
    """Roles of the personal parts."""
    adapters: str
    cohort: int
    batch: int
    rounds: tuple[int, int]
    """Of (a) and (b)."""
    rates: tuple[Any, Any, float]
    """Clients' in (a), (b) and (c)."""
    server: tuple[Table, Table] | None = None
    """Of (a) and (b); None: plain averaging."""
    clip: float | None = None
    ditto: float = 0.1
    pfedme: float = 0.1
    every: int = 100
    before_output: str = "head"
    """Where dropout goes: the input of the personal output layer."""
    guard: bool = False
    """Whether clients also choose between their own and the shared model; needs validation data."""


def falling(start: float) -> Table:
    """Up for a tenth of the rounds, then down to 0."""
    return {"schedule": "linear", "start": start}


def halved(start: float) -> Table:
    return {"schedule": "exponential", "start": start, "factor": 0.5, "every": 500}


def adam(rate: float) -> Table:
    return {"optimizer": "adam", "lr": rate}


STYLES: Table = {
    "source": "mnist",
    "partition": "feature_shift",
    "base": "dirichlet",
    "alpha": 0.3,
    "rotation": 30.0,
    "contrast": 0.5,
    "dilation": 1,
    "test_rule": "own",
}
"""Labels are skewed, and digits are turned, bolder or paler by client: what handwriting is to EMNIST."""

FULL = {
    EMNIST: Task(
        data={
            "source": "femnist",
            "partition": "natural",
            "min_train": 100,
            "min_test": 25,
            "split": [0.8, 0.0, 0.2],
        },
        model={"name": "resnet18_gn", "groups": "by_width", "init": "kaiming"},
        parts=OF_IMAGES,
        adapters="conv",
        cohort=10,
        batch=32,
        rounds=(2000, 500),
        rates=(halved(0.5), halved(0.01), 0.01),
    ),
    GLDV2: Task(
        data={"source": "gldv2", "partition": "natural", "split": [0.5, 0.0, 0.5]},
        model={
            "name": "resnet18_gn",
            "groups": "by_width",
            "stem": "large",
            "init": "kaiming",
            "weights": "resnet18-imagenet.pth",
            "match": "loose",
        },
        parts=OF_IMAGES,
        adapters="conv",
        cohort=50,
        batch=64,
        rounds=(2500, 600),
        rates=(falling(0.01), falling(0.001), 0.001),
        server=(adam(2e-4), adam(2e-5)),
    ),
    STACKOVERFLOW: Task(
        data={"source": "stackoverflow", "partition": "natural", "split": [0.8, 0.0, 0.2]},
        model={"name": "transformer"},
        parts=OF_TEXT,
        adapters="bottleneck",
        cohort=50,
        batch=64,
        rounds=(1000, 500),
        rates=(falling(1.0), falling(0.1), 0.1),
        server=(adam(5e-4), adam(5e-5)),
        clip=0.1,
        ditto=1e-3,
        pfedme=1e-4,
        before_output="blocks.3",
    ),
}

SMALL = {
    EMNIST: Task(
        data={**STYLES, "clients": 100, "examples": 20_000, "split": [0.6, 0.1, 0.3]},
        model={"name": "resnet8_gn", "stem": "large"},
        parts=OF_IMAGES,
        adapters="conv",
        cohort=10,
        batch=32,
        rounds=(300, 150),
        rates=(0.1, 0.01, 0.01),
        every=75,
        guard=True,
    ),
    UNIPEN: Task(
        data={
            "source": "unipen",
            "partition": "natural",
            "min_train": 80,
            "min_test": 25,
            "max_train": 120,
            "sample_clients": 100,
            "split": [0.6, 0.1, 0.3],
        },
        model={"name": "resnet8_gn", "stem": "large"},
        parts=OF_IMAGES,
        adapters="conv",
        cohort=10,
        batch=32,
        rounds=(300, 150),
        rates=(0.1, 0.01, 0.01),
        every=75,
        guard=True,
    ),
    STACKOVERFLOW: Task(
        data={
            "source": {"name": "stackexchange", "vocabulary": 10_000},
            "partition": "natural",
            "split_by": "group",
            "split": [0.8, 0.0, 0.2],
        },
        model={"name": "transformer", "width": 64, "depth": 2, "hidden": 256},
        parts=OF_TEXT,
        adapters="bottleneck",
        cohort=20,
        batch=32,
        rounds=(300, 100),
        rates=(falling(1.0), falling(0.1), 0.1),
        server=(adam(5e-3), adam(5e-4)),
        clip=0.1,
        ditto=1e-3,
        pfedme=1e-4,
        every=50,
    ),
}

MICRO = {
    EMNIST: replace(
        SMALL[EMNIST],
        data={**STYLES, "clients": 40, "examples": 6000, "split": [0.5, 0.2, 0.3]},
        rounds=(80, 30),
        every=100,
    ),
    UNIPEN: replace(
        SMALL[UNIPEN],
        data={**SMALL[UNIPEN].data, "max_train": 100, "sample_clients": 60},
        rounds=(120, 30),
        every=100,
    ),
    STACKOVERFLOW: replace(
        SMALL[STACKOVERFLOW],
        data={
            "source": {"name": "stackexchange", "vocabulary": 8000},
            "partition": "natural",
            "split_by": "group",
            "sample_clients": 40,
            "max_train": 30,
        },
        model={"name": "transformer", "width": 32, "depth": 2, "hidden": 128},
        cohort=10,
        batch=16,
        rounds=(60, 20),
        rates=(1.0, 0.1, 0.1),
        server=(adam(1e-2), adam(1e-3)),
        every=100,
    ),
}
"""Images enter through the large stem, here and at small: it halves them twice, for a sixteenth of the work."""

TASKS: dict[Scale, dict[str, Task]] = {"micro": MICRO, "small": SMALL, "full": FULL}
