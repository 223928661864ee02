"""Some clients of a population as a population of their own; nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plures.data.cache import ClientCache
from plures.data.client import ClientData, LabelSpace
from plures.data.fingerprints import Fingerprint, digest_of_text
from plures.data.populations import Population


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Clients are numbered anew from 0, and keep their names; what is kept ready is shared with the whole."""

    whole: Population
    clients: Sequence[int]
    """By their numbers in the whole."""
    cache: ClientCache

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def classes(self) -> int:
        """Of the whole, so that models fit all its clients."""
        return self.whole.classes

    @property
    def label_space(self) -> LabelSpace:
        return self.whole.label_space

    def only(self, clients: Sequence[int]) -> View:
        """Fewer of them, seen in the whole: a view is never of a view."""
        return replace(self, clients=[self.clients[client] for client in clients])

    def load(self, client: int) -> ClientData:
        return self.cache.get(self.clients[client], self.whole.load)

    def name(self, client: int) -> str:
        return self.whole.name(self.clients[client])

    def num_examples(self, client: int) -> int:
        return self.whole.num_examples(self.clients[client])

    def num_classes(self, client: int) -> int:
        return self.whole.num_classes(self.clients[client])

    def fingerprint(self) -> Fingerprint:
        whole = self.whole.fingerprint()
        return {"data": whole["data"], "split": digest_of_text(whole["split"], *self.clients)}
