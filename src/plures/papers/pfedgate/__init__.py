"""The pFedGate paper (Chen et al. 2023): sparse models by gates, rerun."""

from __future__ import annotations

from plures.papers.pfedgate.claims import CLAIMS
from plures.papers.pfedgate.directions import DIRECTIONS
from plures.papers.pfedgate.recipes import RECIPES
from plures.papers.recipe import Paper

PAPER = Paper(
    name="pfedgate",
    title="pFedGate: efficient personalised federated learning by sparse model adaptation",
    citation="Chen, Yao, Gao, Ding and Li, Efficient Personalized Federated Learning via Sparse Model-Adaptation, "
    "ICML 2023",
    recipes=RECIPES,
    claims=CLAIMS,
    directions=DIRECTIONS,
    data=("fashion-mnist", "cifar-10"),
)
