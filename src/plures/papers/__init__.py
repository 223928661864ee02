"""The papers' tables and figures, rerun: recipes, the runner, and pages of measured beside published numbers."""

from __future__ import annotations

from importlib import import_module

from plures.core.errors import InvalidConfig, did_you_mean
from plures.papers.recipe import Paper

PAPERS = ("fedalt", "pflego", "pfedgate", "fedspa")
"""By the name of their method; each is a package that has PAPER."""


def find_paper(name: str) -> Paper:
    """A paper by its name."""
    if name not in PAPERS:
        raise InvalidConfig(f"There is no paper '{name}'. {did_you_mean(name, PAPERS)}")
    paper: Paper = import_module(f"plures.papers.{name}").PAPER
    return paper
