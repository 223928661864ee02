"""What a client sends after its phases: how far the shared part moved, or the gradient it observed."""

from __future__ import annotations

from plures.core.visit import Trained, Upload, Visit

__all__ = ["delta", "gradient"]


def delta(visit: Visit, trained: Trained) -> Upload:
    """Received minus trained: points like a gradient, so that a server optimiser steps against it."""
    return Upload({name: visit.received[name] - value for name, value in trained.shared.items()})


def gradient(visit: Visit, trained: Trained) -> Upload:
    """The gradient of the observed part, as kept by the phase that observed it."""
    return Upload(trained.observed)
