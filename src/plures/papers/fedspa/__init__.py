"""FedSpa: sparse personal models by masks that move."""

from __future__ import annotations

from plures.papers.fedspa.claims import CLAIMS
from plures.papers.fedspa.directions import DIRECTIONS
from plures.papers.fedspa.recipes import RECIPES
from plures.papers.recipe import Paper

PAPER = Paper(
    name="fedspa",
    title="FedSpa",
    citation='Huang et al., "Achieving Personalized Federated Learning with Sparse Local Models", 2022.',
    recipes=RECIPES,
    claims=CLAIMS,
    directions=DIRECTIONS,
    data=("fashion-mnist", "cifar-10", "emnist", "cifar-100"),
)
