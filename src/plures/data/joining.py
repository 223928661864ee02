"""Participants and newcomers under one numbering: the newcomers come last."""

from __future__ import annotations

from dataclasses import dataclass

from plures.data.client import AnyClientData, LabelSpace
from plures.data.federation import Federation


@dataclass(frozen=True, kw_only=True, eq=False)
class Everyone:
    """All clients of a run; nothing is copied."""

    participants: Federation
    newcomers: Federation

    @property
    def num_clients(self) -> int:
        return self.participants.num_clients + self.newcomers.num_clients

    @property
    def total_examples(self) -> int:
        return self.participants.total_examples + self.newcomers.total_examples

    @property
    def label_space(self) -> LabelSpace:
        return self.participants.label_space

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.participants.input_shape

    @property
    def newcomer_numbers(self) -> range:
        return range(self.participants.num_clients, self.num_clients)

    def client(self, client: int) -> AnyClientData:
        federation, number = self._at(client)
        return federation.client(number)

    def name(self, client: int) -> str:
        federation, number = self._at(client)
        return federation.name(number)

    def num_examples(self, client: int) -> int:
        federation, number = self._at(client)
        return federation.num_examples(number)

    def num_classes(self, client: int) -> int:
        federation, number = self._at(client)
        return federation.num_classes(number)

    def _at(self, client: int) -> tuple[Federation, int]:
        first = self.participants.num_clients
        return (self.participants, client) if client < first else (self.newcomers, client - first)


def everyone(participants: Federation, newcomers: Federation | None) -> Federation | Everyone:
    """The participants alone where there are no others."""
    return participants if newcomers is None else Everyone(participants=participants, newcomers=newcomers)
