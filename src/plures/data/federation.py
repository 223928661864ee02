"""The federation: a population of clients with their data, loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import overload

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.goals import CLASSIFICATION, Goal
from plures.core.task import Augment
from plures.data.cache import ClientCache
from plures.data.client import AnyClientData, ClientData, LabelSpace, Prepare, PreparedClient, check_label_space
from plures.data.dealing import keyed_generator
from plures.data.fingerprints import Fingerprint
from plures.data.populations import FunctionPopulation, Population
from plures.data.views import View

CACHE_BYTES = 64 * 2**20


class Federation:
    """Clients by number, from 0; at most `cache_bytes` of their data are kept ready besides the population's own."""

    def __init__(
        self,
        population: Population,
        *,
        cache_bytes: int = CACHE_BYTES,
        goal: Goal = CLASSIFICATION,
        prepare: Prepare | None = None,
        augment: Augment | None = None,
        class_names: tuple[str, ...] = (),
    ) -> None:
        self.population = population
        self.goal = goal
        self.class_names = class_names
        """Of each class, or of each token; empty where only numbers are known."""
        self.prepare = prepare
        """From inputs as they are held (bytes) to what networks take, done on use."""
        self.augment = augment
        self.cache = ClientCache(cache_bytes)
        self._total_examples: int | None = None

    @classmethod
    def from_function(
        cls,
        num_clients: int,
        load: Callable[[int], ClientData],
        num_examples: Callable[[int], int],
        num_classes: int,
        *,
        label_space: LabelSpace = "global",
        client_classes: Callable[[int], int] | None = None,
        name: Callable[[int], str] = str,
        cache_bytes: int = CACHE_BYTES,
        goal: Goal = CLASSIFICATION,
        prepare: Prepare | None = None,
        augment: Augment | None = None,
    ) -> Federation:
        """For populations too large to hold: functions from the client's number to its data and its train size."""
        check_label_space(label_space)
        if num_clients < 1:
            raise InvalidData(f"num_clients is {num_clients}: a federation has at least one client.")
        if (label_space == "local") != (client_classes is not None):
            raise InvalidConfig(
                "client_classes says how many classes each client has: give it for label_space 'local'."
            )
        population = FunctionPopulation(
            num_clients=num_clients,
            load=load,
            num_examples=num_examples,
            classes=num_classes,
            client_classes=client_classes,
            name=name,
            label_space=label_space,
        )
        return cls(population, cache_bytes=cache_bytes, goal=goal, prepare=prepare, augment=augment)

    def __repr__(self) -> str:
        return f"Federation({self.num_clients} clients, {self.classes} classes, {self.label_space} label space)"

    @property
    def num_clients(self) -> int:
        return self.population.num_clients

    @property
    def label_space(self) -> LabelSpace:
        return self.population.label_space

    @property
    def classes(self) -> int:
        """Classes over all clients."""
        return self.population.classes

    @property
    def names(self) -> Sequence[str]:
        """Made when asked for, never held."""
        return _Names(self.population)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return tuple(self.client(0).train.inputs.shape[1:])

    @property
    def total_examples(self) -> int:
        """Training examples of all clients."""
        if self._total_examples is None:
            self._total_examples = sum(map(self.population.num_examples, range(self.num_clients)))
        return self._total_examples

    def client(self, client: int) -> AnyClientData:
        data = self.cache.get(self._known(client), self.population.load)
        return data if self.prepare is None else PreparedClient(data=data, prepare=self.prepare)

    def name(self, client: int) -> str:
        return self.population.name(self._known(client))

    def num_examples(self, client: int) -> int:
        """Training examples of one client."""
        return self.population.num_examples(self._known(client))

    def num_classes(self, client: int) -> int:
        """Outputs this client's model needs."""
        return self.population.num_classes(self._known(client))

    def fingerprint(self) -> Fingerprint:
        """sha256 of the examples (`data`) and of who has which (`split`)."""
        return self.population.fingerprint()

    def only(self, clients: Iterable[int]) -> Federation:
        """Some of the clients as a federation of their own, numbered anew, with their names; nothing is copied."""
        chosen = [self._known(client) for client in clients]
        if not chosen or len(set(chosen)) < len(chosen):
            raise InvalidConfig("A federation of some clients needs at least one of them, and each only once.")
        view = View(whole=self.population, clients=chosen, cache=self.cache)
        if isinstance(self.population, View):
            view = self.population.only(chosen)
        return Federation(
            view,
            cache_bytes=0,
            goal=self.goal,
            prepare=self.prepare,
            augment=self.augment,
            class_names=self.class_names,
        )

    def hold_out(self, newcomers: int | float, seed: int) -> tuple[Federation, Federation]:
        """Participants and newcomers: a number of clients, or a share of them, drawn by the seed, stays outside."""
        number = num_newcomers(newcomers, self.num_clients)
        drawn = keyed_generator(seed, "newcomers").choice(self.num_clients, number, replace=False)
        outside = set(drawn.tolist())
        participants = self.only(client for client in range(self.num_clients) if client not in outside)
        return participants, self.only(sorted(outside))

    def _known(self, client: int) -> int:
        number = index(client)
        if not 0 <= number < self.num_clients:
            raise IndexError(f"There is no client {number}: clients are numbered 0 to {self.num_clients - 1}.")
        return number


def num_newcomers(asked: int | float, num_clients: int) -> int:
    """From a number, or from a share between 0 and 1; at least one stays on either side."""
    if isinstance(asked, float) and 0 < asked < 1 and num_clients > 1:
        return min(max(1, round(asked * num_clients)), num_clients - 1)
    if isinstance(asked, int) and not isinstance(asked, bool) and 0 < asked < num_clients:
        return asked
    limits = f"a number of clients from 1 to {num_clients - 1}, or a share between 0 and 1, such as 0.2"
    raise InvalidConfig(f"newcomers is {asked!r}: give {limits}.")


class _Names(Sequence[str]):
    """The names of a population, as a sequence that holds none of them."""

    def __init__(self, population: Population) -> None:
        self._population = population

    def __len__(self) -> int:
        return self._population.num_clients

    @overload
    def __getitem__(self, client: int) -> str: ...

    @overload
    def __getitem__(self, client: slice) -> list[str]: ...

    def __getitem__(self, client: int | slice) -> str | list[str]:
        numbers = range(len(self))[client]
        if isinstance(numbers, range):
            return [self._population.name(number) for number in numbers]
        return self._population.name(numbers)

    def __iter__(self) -> Iterator[str]:
        return map(self._population.name, range(len(self)))
