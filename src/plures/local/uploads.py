"""What a client sends after its phases: how far the shared part moved, or the gradient it observed."""

from __future__ import annotations

from plures.core.method import Upload, Visit
from plures.core.types import Params

__all__ = ["delta", "gradient"]


def delta(visit: Visit, trained: Params, observed: Params) -> Upload:
    """Received minus trained: points like a gradient, so that a server optimiser steps against it."""
    return Upload({name: visit.received[name] - value for name, value in trained.items()})


def gradient(visit: Visit, trained: Params, observed: Params) -> Upload:
    """The gradient of the observed part, as kept by the phase that observed it."""
    return Upload(observed)
