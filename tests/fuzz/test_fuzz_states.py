"""Files of client states that anybody may have changed: a state is what was written, or an error of ours in time.

tests/stores/test_disk_damage.py has a larger file; here it is the store of a run, with its header, read in every way.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plures import run_experiment
from plures.core.errors import RunFolderError
from plures.recipes.checkpoints import read_manifest
from plures.recipes.doctor_states import look_at_states
from plures.recipes.resume_checks import check_states
from plures.report import records
from plures.stores.disk import DiskStore
from plures.stores.faults import DamagedFile
from plures.stores.versions import HIGHEST, Versions
from tests.fuzz.folders import base, copy_of, experiment, know_tiny, manifest_of
from tests.fuzz.harness import fuzzed, mutated_bytes, overwritten_bytes, refused
from tests.recipes.helpers import same_bits


@pytest.fixture(autouse=True, scope="module")
def _tiny_source():
    know_tiny()


def right_states():
    with DiskStore(base("states", 1) / records.STATES, read_only=True) as store:
        return {client: store.get(client) for client in store.clients()}


@given(change=st.data(), read_only=st.booleans())
@fuzzed(40)
def test_a_state_is_what_was_written_or_refused(change, read_only):
    """As a run reads it that goes on."""
    right = right_states()
    with copy_of("states") as folder:
        path = folder / records.STATES
        whole = path.read_bytes()
        path.write_bytes(change.draw(overwritten_bytes(whole) | mutated_bytes(whole)))
        for client in right:

            def read(client=client):
                check_states(folder, read_manifest(manifest_of(folder)[0]))
                with DiskStore(path, read_only=read_only) as store:
                    state = store.get(client)
                assert state is not None, "a client that was visited is taken for one that was not"
                assert same_bits(state, right[client])

            refused("states: read one by one", read)


@given(change=st.data())
@fuzzed(40)
def test_a_list_of_clients_has_an_end(change):
    with copy_of("states") as folder:
        path = folder / records.STATES
        path.write_bytes(change.draw(overwritten_bytes(path.read_bytes())))

        def go_through():
            with DiskStore(path, read_only=True) as store:
                list(store.clients())

        refused("states: listed", go_through)


@given(change=st.data())
@fuzzed(40)
def test_the_doctor_tells_who_is_lost(change):
    """Whoever it does not name can be read."""
    right = right_states()
    with copy_of("states") as folder:
        path = folder / records.STATES
        path.write_bytes(change.draw(overwritten_bytes(path.read_bytes())))
        found = []
        assert refused("states: looked at", lambda: found.append(look_at_states(folder, [3]))) is None
        (states,) = found
        if states.damage.is_whole and states.serve(3):
            with DiskStore(path, read_only=True, as_of=3) as store:
                assert all(same_bits(store.get(client), state) for client, state in right.items())


def test_a_store_without_a_byte_does_not_let_everybody_begin_anew():
    with copy_of("states") as folder:
        (folder / records.STATES).write_bytes(b"")
        with pytest.raises(RunFolderError, match=r"clients\.sqlite is empty"):
            run_experiment(experiment("states"), out=folder, resume=True)
        assert (folder / records.PERSONAL).is_file()  # nothing was removed before


def test_a_table_whose_name_is_no_text_is_told_as_damage():
    """SQLite quotes it in its error, which Python then cannot put into words."""
    with copy_of("states") as folder:
        path = folder / records.STATES
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"tablemetameta", b"table\xafetameta"))
        assert path.read_bytes() != whole
        with pytest.raises(RunFolderError, match="is no text"):
            DiskStore(path)
        refused("states: looked at", lambda: look_at_states(folder, [3]))


def test_an_index_that_goes_in_circles_is_told_as_damage(monkeypatch):
    monkeypatch.setattr(Versions, "_ids_after", lambda versions, last: [7 << 32, 5 << 32])
    path = base("states", 1) / records.STATES
    with DiskStore(path, read_only=True) as store, pytest.raises(DamagedFile, match="out of order"):
        list(store.clients())


def test_a_number_of_clients_beyond_all_bounds_is_gone_through_in_time():
    with copy_of("states") as folder:
        store = DiskStore(folder / records.STATES)
        store._versions.note(HIGHEST, 2**62)
        store._file.commit()
        store.close()
        assert refused("states: looked at", lambda: look_at_states(folder, [3])) is None
        assert look_at_states(folder, [3]).damage.num_states == len(right_states())


def test_a_note_that_is_no_number_is_told_as_damage():
    with copy_of("states") as folder:
        store = DiskStore(folder / records.STATES)
        store._versions.note(HIGHEST, "many")  # type: ignore[arg-type]
        store._file.commit()
        store.close()
        with pytest.raises(DamagedFile, match="no number"):
            DiskStore(folder / records.STATES)
