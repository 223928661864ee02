"""Clients drawn from a known law: how much they differ is a choice, and the truth is there to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from plures.core.errors import InvalidConfig, did_you_mean
from plures.core.goals import CLASSIFICATION, REGRESSION, Goal
from plures.core.types import Batch
from plures.data.dealing import keyed_generator

Numbers = NDArray[np.float64]

SyntheticGoal = Literal["classification", "regression"]
Labels = Literal["likeliest", "drawn"]

PURPOSE = "synthetic"


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth:
    """What a client's targets are made with."""

    weights: Numbers
    """(features, outputs): the shared ones and the client's own together."""
    shared: Numbers
    """(features, outputs): what is the same for all clients."""
    biases: Numbers
    """(outputs,)"""
    centre: Numbers
    """(features,): the mean of the client's inputs."""

    @property
    def personal(self) -> Numbers:
        return self.weights - self.shared


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """A law for any number of clients; each is drawn from keys of its own, so that none depends on the others.

    N(m, s) is the normal law with mean m and variance s. Of client k with inputs x of d features:

        B_k ~ N(0, beta),   v_k[j] ~ N(B_k, 1),   x[j] ~ N(v_k[j], j**-1.2)   for j = 1..d.

    Classification, as synthetic(alpha, beta) of the FedProx paper and of LEAF:

        u_k ~ N(0, alpha),   W_k[j, c] ~ N(u_k, 1),   b_k[c] ~ N(u_k, 1),
        y = argmax of x W_k + b_k;   with `labels` "drawn", y ~ softmax(x W_k + b_k).

    (FedProx's code takes alpha and beta for standard deviations; at 0 and 1, the usual values, that is the same.)

    Regression, with a part that all share and one that is the client's own:

        w[j] ~ N(0, 1) once,   p_k[j] ~ N(0, alpha),   c_k ~ N(0, alpha),
        y = x (w + p_k) + c_k + noise * e,   e ~ N(0, 1).

    With `iid`, all clients have one law: v_k = 0, and one W ~ N(0, 1) and b ~ N(0, 1); or p_k = 0 and c_k = 0.
    """

    alpha: float = 1.0
    """How much clients' models differ."""
    beta: float = 1.0
    """How much clients' inputs differ."""
    classes: int = 10
    features: int = 60
    goal: SyntheticGoal = "classification"
    labels: Labels = "likeliest"
    noise: float = 0.1
    iid: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}: it must be a number of at least 0."
            for name, value in (("alpha", self.alpha), ("beta", self.beta), ("noise", self.noise))
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0
        ]
        for name, count, least in (("classes", self.classes, 2), ("features", self.features, 1)):
            if isinstance(count, bool) or not isinstance(count, int) or count < least:
                problems.append(f"{name} is {count!r}: it must be a whole number of at least {least}.")
        for name, word, known in (("goal", self.goal, SyntheticGoal), ("labels", self.labels, Labels)):
            if word not in get_args(known):
                problems.append(f"{name} is {word!r}. {did_you_mean(str(word), get_args(known))}")
        if problems:
            raise InvalidConfig(problems)

    @property
    def aim(self) -> Goal:
        return REGRESSION if self.goal == "regression" else CLASSIFICATION

    @property
    def num_outputs(self) -> int:
        return 1 if self.goal == "regression" else self.classes

    def truth(self, client: int) -> Truth:
        """The model and the centre of one client."""
        own = keyed_generator(self.seed, PURPOSE, "truth", client)
        shape = self.features, self.num_outputs
        shared, shared_biases = self._shared()
        centre = own.normal(0, self.beta**0.5) + own.standard_normal(self.features)
        if self.goal == "regression":
            weights = shared + self.alpha**0.5 * own.standard_normal(shape)
            biases = self.alpha**0.5 * own.standard_normal(1)
        else:
            mean = own.normal(0, self.alpha**0.5)
            weights, biases = mean + own.standard_normal(shape), mean + own.standard_normal(self.classes)
        if self.iid:
            weights, biases, centre = shared, shared_biases, np.zeros(self.features)
        return Truth(weights=weights, shared=shared, biases=biases, centre=centre)

    def _shared(self) -> tuple[Numbers, Numbers]:
        """What all clients have in common: of classifiers nothing, unless they are all the same."""
        rng = keyed_generator(self.seed, PURPOSE, "shared")
        if self.goal == "regression":
            return rng.standard_normal((self.features, 1)), np.zeros(1)
        if self.iid:
            return rng.standard_normal((self.features, self.classes)), rng.standard_normal(self.classes)
        return np.zeros((self.features, self.classes)), np.zeros(self.classes)

    def examples(self, client: int, num_examples: int) -> Batch:
        """The first examples of one client."""
        truth = self.truth(client)
        spreads = np.arange(1, self.features + 1) ** -0.6
        normal = keyed_generator(self.seed, PURPOSE, "inputs", client).standard_normal((num_examples, self.features))
        # Rounded first, so that targets follow from the inputs as they are held.
        inputs = (truth.centre + spreads * normal).astype(np.float32)
        scores = inputs.astype(np.float64) @ truth.weights + truth.biases
        return Batch(torch.from_numpy(inputs), torch.from_numpy(self._targets(scores, client)))

    def _targets(self, scores: Numbers, client: int) -> NDArray[np.float32] | NDArray[np.int64]:
        rng = keyed_generator(self.seed, PURPOSE, "targets", client)
        if self.goal == "regression":
            return (scores[:, 0] + self.noise * rng.standard_normal(len(scores))).astype(np.float32)
        # The largest of scores with Gumbel noise is a draw from their softmax.
        chance = rng.gumbel(size=scores.shape) if self.labels == "drawn" else 0.0
        classes: NDArray[np.int64] = np.argmax(scores + chance, axis=1)
        return classes
