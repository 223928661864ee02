"""Whatever is done in whatever order, a store in a file says what a few dicts say."""

import tempfile
from pathlib import Path

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plures.stores.disk import DiskStore
from plures.stores.rescue import check
from plures.stores.state_file import Layout

HASTY = Layout(synchronous="off", wait_seconds=0.0)
SIZE = 300
"""Values of a state: so many that some of them take more than a page together."""

cohorts = st.sets(st.integers(0, 7), max_size=5)


class StoreAndDicts(RuleBasedStateMachine):
    """`current` is in force, `staged` is not yet, and `saved` has what was in force at each save."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "personal.db")
        self.round = self.saved_round = self.kept_from = self.last_value = 0
        self.current, self.staged, self.saved = {}, {}, {0: {}}
        self.store: DiskStore | None = None

    @initialize(cache_bytes=st.sampled_from([0, 3_000, 12_000, 10**6]))
    def open(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self.store = DiskStore(self.path, cache_bytes=cache_bytes, layout=HASTY)

    def new_states(self, cohort: set[int]) -> tuple[dict, dict]:
        """A value for each, and it as a state."""
        self.last_value += 1
        values = dict.fromkeys(cohort, float(self.last_value))
        return values, {client: {"v": torch.full((SIZE,), value)} for client, value in values.items()}

    @rule(cohort=cohorts)
    def stage(self, cohort: set[int]) -> None:
        values, states = self.new_states(cohort)
        self.store.stage(self.round + 1, states)
        self.staged |= values

    @rule(cohort=cohorts)
    def commit(self, cohort: set[int]) -> None:
        values, states = self.new_states(cohort)
        self.round += 1
        self.store.commit(self.round, states)
        self.current, self.staged = {**self.current, **self.staged, **values}, {}

    @rule()
    def discard(self) -> None:
        self.store.discard()
        self.staged = {}

    @rule()
    def save(self) -> None:
        self.discard()
        self.store.save(self.round)
        self.saved_round = self.round
        self.saved[self.round] = dict(self.current)

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def forget_before(self, data: st.DataObject) -> None:
        round = data.draw(st.sampled_from(sorted(self.saved)))
        self.store.forget_before(round)
        self.kept_from = max(self.kept_from, round)
        self.saved = {at: states for at, states in self.saved.items() if at >= self.kept_from}

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), reopened=st.booleans())
    def roll_back(self, data: st.DataObject, reopened: bool) -> None:
        if reopened:
            self.reopen()
        self.round = self.saved_round = data.draw(st.sampled_from(sorted(self.saved)))
        self.store.roll_back(self.round)
        self.saved = {at: states for at, states in self.saved.items() if at <= self.round}
        self.current, self.staged = dict(self.saved[self.round]), {}

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = DiskStore(self.path, cache_bytes=self.cache_bytes, layout=HASTY)
        self.round, self.staged = self.saved_round, {}
        self.current = dict(self.saved.get(self.saved_round, {}))
        if self.store.round == 0:  # nobody kept anything at the last save, so that there is no note of it
            self.store.roll_back(self.round)

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        round = data.draw(st.sampled_from(sorted(self.saved)))
        if self.path.exists():
            with DiskStore(self.path, read_only=True, as_of=round) as reader:
                assert told(reader) == self.saved[round]

    @invariant()
    def the_store_says_what_the_dicts_say(self) -> None:
        assert told(self.store) == self.current
        assert list(self.store.clients()) == sorted(self.current)
        assert self.store.get(8) is None
        assert self.store.round == self.round

    def teardown(self) -> None:
        with self.folder:
            if self.store is not None:  # some attempts end before they begin
                self.store.close()
                assert check(self.path).is_whole


def told(store: DiskStore) -> dict[int, float]:
    """The value of each client; all of its values are the same."""
    states = {client: store.get(client)["v"] for client in store.clients()}
    assert all(state.shape == (SIZE,) and state.eq(state[0]).all() for state in states.values())
    return {client: state[0].item() for client, state in states.items()}


TestStoreAndDicts = StoreAndDicts.TestCase
TestStoreAndDicts.settings = settings(
    max_examples=120, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
