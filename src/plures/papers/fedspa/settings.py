"""The experiments of the FedSpa paper as tables, at each scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from plures.papers.cells import Cell
from plures.papers.recipe import Scale

Table = dict[str, Any]

IID, A, B = "IID", "A", "B"
COLUMNS = (IID, A, B)
"""How the labels are dealt: alike to all, and by two Dirichlet draws."""

DST, RSM, DITTO, FEDAVG = "FedSpa (DST)", "FedSpa (RSM)", "Ditto", "FedAvg"
SUB_FEDAVG, LOCAL, SUBSAMPLING = "Sub-FedAvg", "Local", "Subsampling"
METHODS = (DST, RSM, DITTO, FEDAVG, SUB_FEDAVG, LOCAL, SUBSAMPLING)
"""In the order of Table 1."""
NAMES = {DITTO: "ditto", FEDAVG: "fedavg", SUB_FEDAVG: "sub_fedavg", LOCAL: "local", SUBSAMPLING: "subsampling"}

RATE = {
    "optimizer": "sgd",
    "lr": {"schedule": "exponential", "start": 0.1, "factor": 0.998},
    "weight_decay": 0.0005,
}
CLIP_NORM = 10.0
"""Not in the paper, but in code of a neighbouring group from the same base; without it networks that have no norms may
diverge at this rate."""
EPOCHS, SHARED_EPOCHS, OWN_EPOCHS = 5, 2, 3
"""Of a visit; Ditto divides them between its two models."""
PULL = 0.5
"""Of Ditto."""
SPARSITY = 0.5


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set with a network, and how much of it is used."""

    name: str
    """Of the paper's task that it is, or stands for."""
    told: str
    source: str | Table
    model: Table
    skew: tuple[float, float]
    """The Dirichlet parameters of settings A and B."""
    clients: int = 100
    cohort: int = 10
    rounds: int = 1000
    batch: int = 128
    examples: int | float | None = None
    every: int = 1
    augment: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    targets: tuple[int, ...] = ()
    """Accuracies in percent whose first round is told."""

    def data(self, column: str) -> Table:
        dealt: Table = {"partition": "iid"}
        if column != IID:
            dealt = {"partition": "dirichlet", "alpha": self.skew[column == B], "min_examples": 10}
        return {
            "source": self.source,
            "clients": self.clients,
            **dealt,
            **({} if self.examples is None else {"examples": self.examples}),
            **({"augment": list(self.augment)} if self.augment else {}),
            "split": [1.0, 0.0, 0.0],
            "test_rule": "proportions",
            "test_size": 100,
        }

    def column(self, column: str) -> str:
        """With the parameter of the draw."""
        return IID if column == IID else f"{column} (gamma = {self.skew[column == B]:g})"


CROPPED = ("crop", "flip")
MNIST_LIKE = partial(Task, name="EMNIST-L", source="fashion-mnist", model={"name": "lenet5"}, batch=32, skew=(0.3, 0.1))
TASKS: dict[Scale, dict[str, Task]] = {
    "micro": {
        "EMNIST-L": MNIST_LIKE(
            told="Fashion-MNIST, LeNet5",
            clients=20,
            cohort=5,
            rounds=40,
            examples=1600,
            every=5,
            columns=(IID, B),
            targets=(50, 60, 70),
        ),
    },
    "small": {
        "EMNIST-L": MNIST_LIKE(told="Fashion-MNIST, LeNet5", rounds=200, examples=0.2, every=5, targets=(70, 75, 80)),
        "CIFAR-10": Task(
            name="CIFAR-10",
            told="CIFAR-10, LeNet-32",
            source="cifar-10",
            model={"name": "lenet32"},
            skew=(0.5, 0.3),
            rounds=200,
            batch=32,
            examples=0.2,
            every=5,
            augment=CROPPED,
            targets=(40, 50, 60),
        ),
    },
    "full": {
        "EMNIST-L": Task(
            name="EMNIST-L",
            told="EMNIST letters, LeNet5",
            source={"name": "emnist", "form": "letters"},
            model={"name": "lenet5"},
            skew=(0.2, 0.1),
            rounds=400,
        ),
        "CIFAR-10": Task(
            name="CIFAR-10",
            told="CIFAR-10, VGG11",
            source="cifar-10",
            model={"name": "vgg11_gn"},
            skew=(0.5, 0.3),
            augment=CROPPED,
            targets=(70, 75, 80),
        ),
        "CIFAR-100": Task(
            name="CIFAR-100",
            told="CIFAR-100, ResNet18",
            source="cifar-100",
            model={"name": "resnet18_gn"},
            skew=(0.2, 0.1),
            augment=CROPPED,
            targets=(40, 50, 55),
        ),
    },
}
ABLATED: dict[Scale, str] = {"micro": "EMNIST-L", "small": "EMNIST-L", "full": "CIFAR-100"}
"""The task of all but the main comparison."""
SPARSITIES: dict[Scale, tuple[float, ...]] = {
    "micro": (0.2, 0.5, 0.8),
    "small": (0.2, 0.5, 0.8),
    "full": (0.2, 0.4, 0.5, 0.6, 0.8),
}


def ablated(scale: Scale) -> Task:
    return TASKS[scale][ABLATED[scale]]


def method_options(method: str, batch: int, changes: Table) -> Table:
    """Of a method of Table 1; all train five epochs in a visit."""

    def epochs(count: int) -> Table:
        return {"epochs": count, "batch": batch}

    common: Table = {"lr": RATE, "clip_norm": CLIP_NORM, "budget": epochs(EPOCHS)}
    own: dict[str, Table] = {
        DST: {"density": 1 - SPARSITY, "search": "dst"},
        RSM: {"density": 1 - SPARSITY, "search": "rsm"},
        DITTO: {"lam": PULL, "budget": epochs(SHARED_EPOCHS), "personal_budget": epochs(OWN_EPOCHS)},
        SUB_FEDAVG: {
            "target_density": 1 - SPARSITY,
            "prune_share": 0.05,
            "distance_threshold": 0.0001,
            "accuracy_threshold": 0.5,
        },
        SUBSAMPLING: {"keep": 0.5},
    }
    return common | own.get(method, {}) | changes


def judged(method: str) -> str:
    """The kind of model that a method of Table 1 is judged by."""
    return "global" if method in (FEDAVG, SUBSAMPLING) else "personal"


def cell(task: Task, method: str, column: str, *, row: str | None = None, **changes: Any) -> Cell:
    """A run of a method; `changes` are options that differ from the main comparison's."""
    models = ["personal", "global"] if method == DST else [judged(method)]
    return Cell(
        row=row or method,
        column=column,
        table={
            "method": NAMES.get(method, "fedspa"),
            "rounds": task.rounds,
            "cohort": task.cohort,
            "data": task.data(column),
            "model": dict(task.model),
            "method_options": method_options(method, task.batch, changes),
            "evaluation": {"every": task.every, "models": models, "splits": ["test"], "post_local": True},
        },
        extras=("plures.papers.fedspa.seconds:search_seconds",) if method == DST else (),
    )


def sparse_cell(task: Task, sparsity: float, column: str) -> Cell:
    """FedSpa's search at a sparsity; the main comparison's cell at 0.5."""
    return cell(task, DST, column, row=f"{sparsity:g}", density=round(1 - sparsity, 6))


SCALED = (
    "Not run here: EMNIST and CIFAR-100 are not at hand, and a run of VGG11 or ResNet18 would take eleven or forty "
    "days on two cores."
)
