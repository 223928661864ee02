"""FedSim and FedAlt: "Federated Learning with Partial Model Personalization"."""

from __future__ import annotations

from plures.papers.fedalt import counts, figure_items, tables, theory_page
from plures.papers.fedalt.claims import CLAIMS
from plures.papers.fedalt.directions import DIRECTIONS
from plures.papers.published import load
from plures.papers.recipe import Paper

PAPER = Paper(
    name="fedalt",
    title="Federated Learning with Partial Model Personalization (FedSim and FedAlt)",
    citation="Pillutla, Malik, Mohamed, Rabbat, Sanjabi and Xiao, ICML 2022; numbers are those of its submission to "
    "ICLR 2022.",
    recipes=[*tables.RECIPES, *counts.RECIPES, *figure_items.RECIPES, *tables.OWN_RECIPES, *theory_page.RECIPES],
    claims=CLAIMS,
    directions=DIRECTIONS,
    data=["mnist", "unipen", "stackexchange"],
    slips=load("fedalt")["notes"],
)

__all__ = ["PAPER"]
