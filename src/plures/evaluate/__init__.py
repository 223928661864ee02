"""Evaluation: protocols by name, and numbers over clients."""

from plures.evaluate.protocols import Evaluator
from plures.evaluate.scores import ClientScore, Comparison, Evaluation, ModelKind, SplitName, Summary, compare

__all__ = ["ClientScore", "Comparison", "Evaluation", "Evaluator", "ModelKind", "SplitName", "Summary", "compare"]
