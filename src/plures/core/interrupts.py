"""A few steps that no signal comes between."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Those that end a run at a whole round."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that arrive meanwhile are delivered afterwards; nothing is held back where that cannot be."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = {getattr(signal, name) for name in SIGNALS if hasattr(signal, name)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
