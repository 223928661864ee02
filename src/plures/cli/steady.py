"""A stream that never fails: a closed terminal or pipe must not end what is shown there."""

from __future__ import annotations

from typing import IO, Any, cast


class Steady:
    """Writes as long as somebody reads; after that it drops what comes."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.gone = stream, False

    def write(self, text: str) -> int:
        if not self.gone:
            try:
                return self.stream.write(text)
            except (OSError, ValueError):  # a closed pipe, a terminal that went away, a closed file
                self.gone = True
        return len(text)

    def flush(self) -> None:
        if not self.gone:
            try:
                self.stream.flush()
            except (OSError, ValueError):
                self.gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def steady(stream: IO[str]) -> IO[str]:
    return cast("IO[str]", stream if isinstance(stream, Steady) else Steady(stream))
