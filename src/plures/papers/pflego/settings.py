"""The experiments of the PFLEGO papers as tables, at each scale."""

from __future__ import annotations

from typing import Any, NamedTuple

from plures.papers.recipe import Scale

Table = dict[str, Any]

DEGREES = ("high", "medium", "none")
"""Of personalisation: a client has 2 classes, half of them, or all."""
RATES: dict[str, dict[str, tuple[float, float]]] = {
    "mnist": {"high": (0.006, 0.002), "medium": (0.006, 0.003), "none": (0.007, 0.003)},
    "fashion-mnist": {"high": (0.007, 0.001), "medium": (0.006, 0.002), "none": (0.007, 0.003)},
    "emnist": {"high": (0.007, 0.001), "medium": (0.006, 0.002), "none": (0.007, 0.003)},
    "unipen": {"high": (0.007, 0.001), "medium": (0.006, 0.002), "none": (0.007, 0.003)},
    "cifar-10": {"high": (0.002, 0.001), "medium": (0.007, 0.001), "none": (0.007, 0.001)},
}
"""The best (client, server) rates of PFLEGO, Table 5 of the 2022 paper; UNIPEN takes EMNIST's."""
OTHER_RATES: dict[str, dict[str, float]] = {
    "fedper": {"high": 0.007, "medium": 0.005, "none": 0.005},
    "fedavg": {"high": 0.007, "medium": 0.007, "none": 0.006},
}
"""Of CIFAR-10; elsewhere they are 0.007."""


class Rates(NamedTuple):
    """Of the clients, of the server where it has one of its own, and how many of FedRep's steps are the body's."""

    client: float
    server: float = 1.0
    body: int = 1

    def __str__(self) -> str:
        told = f"{self.client:g}" if self.server == 1.0 else f"{self.client:g} and {self.server:g}"
        return told if self.body == 1 else f"{told}, {self.body} steps on the body"


OMNIGLOT_RATES = Rates(0.009, 0.001)
FEW_STEPS: dict[str, Rates] = {
    **dict.fromkeys(("pflego", "fedrecon"), Rates(2.0, 0.003)),
    "fedper": Rates(0.5),
    **dict.fromkeys(("fedavg", "fedprox", "ditto"), Rates(0.3)),
    "fedrep": Rates(0.5, body=5),
    "fedbabu": Rates(0.3),
}
"""Rates of Omniglot at the scale small, which has too few rounds and steps for the papers': the best tried."""
CLASSES = {"mnist": 10, "fashion-mnist": 10, "cifar-10": 10, "emnist": 62, "unipen": 62}
EMNIST = {"name": "emnist", "form": "byclass"}


class Size(NamedTuple):
    """How much of a setting a scale has."""

    examples: float | int | None
    clients: int
    cohort: int
    tau: int
    rounds: int
    every: int = 1


FLAT: dict[Scale, Size] = {
    "micro": Size(examples=0.1, clients=100, cohort=20, tau=50, rounds=60, every=2),
    "small": Size(examples=0.2, clients=100, cohort=20, tau=50, rounds=200, every=2),
    "full": Size(examples=None, clients=100, cohort=20, tau=50, rounds=200),
}
"""Of the perceptron's data sets."""
PHOTOS: dict[Scale, Size] = {
    "micro": Size(examples=2000, clients=20, cohort=4, tau=10, rounds=30, every=2),
    "small": Size(examples=5000, clients=50, cohort=10, tau=10, rounds=100, every=2),
    "full": Size(examples=None, clients=100, cohort=20, tau=50, rounds=200),
}
ALPHABETS: dict[Scale, Size] = {
    "micro": Size(examples=None, clients=8, cohort=2, tau=10, rounds=80, every=5),
    "small": Size(examples=None, clients=12, cohort=3, tau=10, rounds=300, every=2),
    "full": Size(examples=None, clients=50, cohort=10, tau=50, rounds=5000),
}
FILTERS: dict[Scale, int] = {"micro": 16, "small": 32, "full": 64}
"""Of each convolution of the alphabets' network."""
PHOTO_NETWORK = {"name": "cnn_p", "filters": [16, 32], "fc": [128, 64]}
"""Narrower than the paper's, for all scales but full."""


def evaluation(method: str, every: int) -> Table:
    """The shared model or the personal ones of everybody, and what the cohort has right after its training."""
    kind = "global" if method in ("fedavg", "fedprox", "fedbabu") else "personal"
    return {"every": every, "models": [kind], "splits": ["train", "test"], "post_local": True}


def options(method: str, tau: int, beta: float, rho: float, body: int = 1) -> Table:
    """As the papers ran each method: full batches, and as many steps as PFLEGO has; of FedRep so many on the body."""
    steps = {"steps": tau, "batch": "full"}
    known: dict[str, Table] = {
        "pflego": {"tau": tau, "client_lr": beta, "server": rho},
        "fedrecon": {
            "variant": "pflego",
            "recon_budget": {"steps": tau, "batch": "full"},
            "recon_lr": beta,
            "server": rho,
        },
        "fedper": {"lr": beta, "budget": steps},
        "fedavg": {"lr": beta, "budget": steps},
        "fedprox": {"lr": beta, "budget": steps, "mu": 0.01},
        "fedbabu": {
            "lr": {"optimizer": "sgd", "lr": beta, "momentum": 0.9},
            "budget": steps,
            "tune": steps,
            "orthonormal": True,
        },
        "ditto": {"lr": beta, "budget": steps, "personal_budget": steps, "lam": 0.1},
        "fedrep": {
            "lr": beta,
            "budget": {"steps": body, "batch": "full"},
            "head_budget": {"steps": tau - body, "batch": "full"},
            "start": "uniform",
        },
    }
    return known[method]


def images(source: str, degree: str, method: str, scale: Scale, space: str = "local") -> Table:
    """A cell of Table 1: images of ten (or 62) classes, dealt by class."""
    photos = source == "cifar-10"
    size = (PHOTOS if photos else FLAT)[scale]
    beta, rho = RATES[source][degree]
    if method != "pflego":
        beta = OTHER_RATES.get(method, {}).get(degree, 0.007) if photos else 0.007
    return {
        "method": method,
        "rounds": size.rounds,
        "cohort": size.cohort,
        "data": image_data(source, degree, size, space),
        "model": image_network(source, scale),
        "method_options": options(method, size.tau, beta, rho),
        "evaluation": evaluation(method, size.every),
    }


def image_data(source: str, degree: str, size: Size, space: str = "local") -> Table:
    """Everything is trained on, and the set's own test images are dealt by the same rule; UNIPEN has none.

    Pixels are from 0 to 1, as in the authors' code; photographs at the scale micro ran normalised.
    """
    share = {"high": 2, "medium": CLASSES[source] // 2, "none": CLASSES[source]}
    named: dict[str, str | Table] = {"emnist": EMNIST}
    if size is not PHOTOS["micro"]:
        named["cifar-10"] = {"name": "cifar-10", "normalised": False}
    data: Table = {
        "source": named.get(source, source),
        "partition": "by_class",
        "clients": size.clients,
        "classes_per_client": share[degree],
        "label_space": space,
        "split": [0.75, 0.0, 0.25] if source == "unipen" else [1.0, 0.0, 0.0],
    }
    return data if size.examples is None else {**data, "examples": size.examples}


def image_network(source: str, scale: Scale) -> Table:
    if source != "cifar-10":
        return {"name": "mlp", "hidden": [200], "init": "pflego"}
    return {"name": "cnn_p"} if scale == "full" else PHOTO_NETWORK


def participation(method: str, cohort: int, scale: Scale) -> Table:
    """High personalisation, both rates 0.001, more and more clients in a round; photographs in the paper alone."""
    source = "cifar-10" if scale == "full" else "mnist"
    size = FLAT[scale]._replace(every=5)
    return {
        **images(source, "high", method, scale),
        "cohort": cohort,
        "method_options": options(method, size.tau, 0.001, 0.001),
        "evaluation": evaluation(method, size.every),
    }


def rates(beta: float, rho: float, scale: Scale) -> Table:
    """PFLEGO with every pair of rates: alphabets in the paper, digits with two classes elsewhere."""
    table = omniglot("pflego", scale) if scale == "full" else images("mnist", "high", "pflego", scale)
    size = ALPHABETS[scale] if scale == "full" else FLAT[scale]
    return {
        **table,
        "method_options": options("pflego", size.tau, beta, rho),
        "evaluation": evaluation("pflego", 5),
    }


def steps(method: str, tau: int, scale: Scale) -> Table:
    """PFLEGO or FedRecon with tau steps; 4 to 28 clients in a round, as many as the draw says."""
    table = omniglot(method, scale) if scale == "full" else images("mnist", "high", method, scale)
    return {
        **{name: value for name, value in table.items() if name != "cohort"},
        "participation": {"rule": "random_size", "low": 4, "high": 28},
        "method_options": options(method, tau, 0.007, 0.001),
        "evaluation": evaluation(method, 5),
    }


def omniglot(method: str, scale: Scale, rates: Rates | None = None) -> Table:
    """A cell of Table 2: every client has one alphabet, and no class is anywhere else."""
    size = ALPHABETS[scale]
    chosen = rates or (FEW_STEPS.get(method, OMNIGLOT_RATES) if scale == "small" else OMNIGLOT_RATES)
    source: Table = {"name": "omniglot", "rotations": True, "leaky": True} if scale == "full" else {"name": "omniglot"}
    data: Table = {"source": source, "partition": "natural", "label_space": "local", "split": [1.0, 0.0, 0.0]}
    if scale != "full":
        data |= {"sample_clients": size.clients}
    if scale == "micro":
        data |= {"max_train": 300}
    return {
        "method": method,
        "rounds": size.rounds,
        "cohort": size.cohort,
        "data": data,
        "model": {"name": "cnn_o", "filters": FILTERS[scale]},
        "method_options": options(method, size.tau, *chosen),
        "evaluation": evaluation(method, size.every),
    }
