"""Every error Plures raises on purpose.

PluresError
├── InvalidInput            found before round 1; lists every problem at once
│   ├── InvalidConfig       an experiment file or an option
│   ├── InvalidData         a client's examples or labels
│   ├── InvalidModel        the network, or its output size
│   └── InvalidSplit        which parameters are whose
├── ClientFailed            a client could not finish its work in a round
│   ├── Diverged            a loss or an upload is no longer a number
│   ├── Gone                a client that was not heard of again
│   ├── Unheard             a client on a machine of its own that has not answered as it should
│   └── Refused             an upload that does not fit, or is too large
├── TooFewClients           fewer of a cohort arrived than a round needs
├── Stopped                 whoever watches a run ended it at a whole round
├── InvalidMessage          bytes that are no message of ours, or values a code cannot hold
└── RunFolderError          a run folder that cannot be written or read
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class PluresError(Exception):
    """The family: catch this to catch everything Plures raises on purpose."""


class InvalidInput(PluresError):
    """Something given to Plures cannot work; says what, where, and what to do."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__(self._message())

    def _message(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        lines = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(self.problems, 1))
        return f"{len(self.problems)} problems:\n{lines}"


MOST_TOLD = 10
"""Problems of one kind that are told one by one."""


def first_of(problems: Sequence[str]) -> list[str]:
    """The first problems of one kind, and how many more there are."""
    told = list(problems[:MOST_TOLD])
    return told if len(problems) <= MOST_TOLD else [*told, f"... and {len(problems) - MOST_TOLD} more like these."]


class InvalidConfig(InvalidInput):
    """An experiment file or an option is wrong."""


class InvalidData(InvalidInput):
    """A client's examples or labels cannot be used."""


class InvalidModel(InvalidInput):
    """The network does not fit the data or the method."""


class InvalidSplit(InvalidInput):
    """The parameters cannot be split as asked."""


class ClientFailed(PluresError):
    """A client could not finish its work in a round."""

    kind = "failed"
    """In the records of a round that goes on without the client."""

    def __init__(self, what: str, *, client: str, round: int, phase: str, remedy: str) -> None:
        self.client, self.round, self.phase = client, round, phase
        super().__init__(f"{what} (client {client}, round {round}, phase {phase}). {remedy}")


class Diverged(ClientFailed):
    """A loss or an upload is no longer a finite number."""

    kind = "diverged"


class Gone(ClientFailed):
    """A client worked, and was not heard of again."""

    kind = "gone"


class Unheard(ClientFailed):
    """A client on a machine of its own that is not there, too late, or has failed in a way that only it knows."""

    def __init__(self, what: str, *, client: str, round: int, kind: str) -> None:
        self.kind = kind
        super().__init__(what, client=client, round=round, phase="visit", remedy="Look at the log of that node.")


class Refused(ClientFailed):
    """An upload that does not fit the shared part, is empty, or is larger than a round bears."""

    def __init__(self, what: str, *, client: str, round: int, phase: str, remedy: str, kind: str = "misfit") -> None:
        self.kind = kind
        super().__init__(what, client=client, round=round, phase=phase, remedy=remedy)


class TooFewClients(PluresError):
    """Fewer of a cohort arrived than a round needs; the last whole round is kept."""


class Stopped(PluresError):
    """Raised by whoever watches a run, to end it at a whole round; what there is by then is kept."""


class InvalidMessage(PluresError):
    """Bytes that are no message of ours, or values that a code cannot hold."""


class RunFolderError(PluresError):
    """A run folder cannot be written or read."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence naming the nearest known words, or the whole list if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(f"'{name}'" for name in near) + "?"
    return "Known: " + ", ".join(names) + "."
