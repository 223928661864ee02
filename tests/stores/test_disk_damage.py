"""Damaged files, full disks and other people's files: errors name the file, and what can be read is read."""

import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plures.core.errors import RunFolderError
from plures.stores.disk import DiskStore
from plures.stores.faults import DamagedFile, DamagedState
from plures.stores.rescue import check, rescued
from plures.stores.state_file import SMALL_PAGE, Layout, StateFile
from plures.stores.versions import key

PAGE, CLIENTS, ROUND = SMALL_PAGE, 240, 3
SIZES = (20, 600, 3_000)
"""Values of a state: many states in a page, about two pages for one, and several."""


def state(client: int, round: int) -> dict[str, torch.Tensor]:
    return {"v": torch.full((SIZES[client % 3],), client + round / 100)}


def fill(path: Path) -> None:
    """Everybody at round 2, and every other client at round 3 as well."""
    with DiskStore(path) as store:
        for round, clients in ((2, range(CLIENTS)), (ROUND, range(0, CLIENTS, 2))):
            store.commit(round, {client: state(client, round) for client in clients})
            store.save(round)


def latest(client: int, at: int = ROUND) -> int:
    return 3 if client % 2 == 0 and at == 3 else 2


def right(client: int, at: int = ROUND) -> torch.Tensor:
    return state(client, latest(client, at))["v"]


def unreadable(path: Path, at: int = ROUND) -> set[int]:
    """Clients whose state cannot be read; that of all others is right."""
    lost = list[DamagedState]()
    with DiskStore(path, read_only=True, as_of=at) as store:
        for client in range(CLIENTS):
            try:
                assert store.get(client)["v"].equal(right(client, at))
            except DamagedState as error:
                lost.append(error)
    assert all(str(path) in str(error) for error in lost)
    return {error.client for error in lost}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "personal.db"
    fill(path)
    return path


@pytest.fixture
def copy(whole, path) -> Path:
    shutil.copy(whole, path)
    return path


def overwrite(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


LEAF = {"states": 0x0D, "ids": 0x0A}
"""The first byte of a page that has rows of the table, or of an index."""


def leaves_of(path: Path, table: str) -> list[int]:
    """Where the pages with the rows of a table or of its index begin."""
    content, others = path.read_bytes(), {0, root_of(path, "meta")}
    starts = [place for place in range(0, len(content), PAGE) if content[place] == LEAF[table]]
    return [place for place in starts if place not in others]


def root_of(path: Path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    connection.close()
    return (page - 1) * PAGE


def test_a_whole_file_is_found_whole(whole):
    damage = check(whole)
    assert damage.is_whole
    assert (damage.round, damage.num_states) == (ROUND, CLIENTS * 3 // 2)
    assert unreadable(whole) == set()


def test_one_wrong_bit_costs_one_client(copy):
    content = copy.read_bytes()
    place = content.index(state(8, 3)["v"].numpy().tobytes()[:2000]) + 1000
    overwrite(copy, place, bytes([content[place] ^ 1]))
    assert unreadable(copy) == {8}
    assert unreadable(copy, at=2) == set()
    damage = check(copy)
    assert [(one.client, one.round) for one in damage.unreadable] == [(8, 3)]
    assert not damage.is_whole
    with DiskStore(copy) as store, pytest.raises(DamagedState, match=r"client 8 in .*personal\.db.*plures doctor RUN"):
        store.get(8)


def test_a_run_goes_on_with_the_other_clients(copy):
    content = copy.read_bytes()
    overwrite(copy, content.index(state(8, 3)["v"].numpy().tobytes()[:2000]), b"\xff" * 100)
    with DiskStore(copy) as store:
        store.commit(4, {1: state(1, 4), 8: state(8, 4)})
        store.save(4)
    with DiskStore(copy) as store:
        assert store.get(8)["v"].equal(state(8, 4)["v"])
        assert store.get(1)["v"].equal(state(1, 4)["v"])


@pytest.mark.parametrize("table", ["states", "ids"])
@pytest.mark.parametrize("content", [b"\0" * PAGE, b"\xff" * PAGE, b"\x0d" + b"\x07" * (PAGE - 1)])
def test_a_damaged_page_costs_its_own_clients_and_the_rest_is_rescued(copy, path, table, content):
    leaves = leaves_of(copy, table)
    overwrite(copy, leaves[len(leaves) // 2], content)
    lost = unreadable(copy)
    assert 0 < len(lost) < CLIENTS
    damage = check(copy)
    assert damage.findings
    assert {one.client for one in damage.unreadable if one.round == latest(one.client)} <= lost
    into = path.parent / "rescued.db"
    given_up = rescued(copy, into)
    assert set(given_up) <= lost
    assert (table == "ids") == (given_up == []), "without its index a table is whole"
    assert check(into).is_whole
    with DiskStore(into) as store:
        assert store.round == ROUND
        assert list(store.clients()) == [client for client in range(CLIENTS) if client not in given_up]
        assert all(store.get(client)["v"].equal(right(client)) for client in store.clients())


def test_the_rest_is_rescued_when_the_same_clients_are_lost_from_table_and_index(copy, path):
    for table in ("states", "ids"):
        for page in leaves_of(copy, table)[-3:]:
            overwrite(copy, page, b"\0" * PAGE)
    given_up = rescued(copy, path.parent / "rescued.db")
    assert 0 < len(given_up) < CLIENTS / 2
    assert given_up[-1] == CLIENTS - 1
    with DiskStore(path.parent / "rescued.db") as store:
        assert sorted([*store.clients(), *given_up]) == list(range(CLIENTS))
        assert all(store.get(client)["v"].equal(right(client)) for client in store.clients())


def test_a_file_without_its_roots_rescues_nobody(copy, path):
    for table in ("states", "ids"):
        overwrite(copy, root_of(copy, table), b"\0" * PAGE)
    assert unreadable(copy) == set(range(CLIENTS))
    assert rescued(copy, path.parent / "rescued.db") == list(range(CLIENTS))


def test_an_earlier_checkpoint_can_be_rescued(copy, path):
    content = copy.read_bytes()
    overwrite(copy, content.index(state(8, 3)["v"].numpy().tobytes()[:2000]), b"\xff" * 100)
    assert rescued(copy, path.parent / "latest.db") == [8]
    assert rescued(copy, path.parent / "earlier.db", as_of=2) == []
    assert unreadable(path.parent / "earlier.db", at=2) == set()


def test_a_rescue_does_not_write_over_a_file(copy, path):
    into = path.parent / "rescued.db"
    into.write_text("mine")
    with pytest.raises(RunFolderError, match=r"rescued\.db is there already"):
        rescued(copy, into)
    assert into.read_text() == "mine"


def test_a_file_that_was_cut_short_is_read_as_far_as_it_goes(copy, path):
    with copy.open("r+b") as file:
        file.truncate(copy.stat().st_size * 19 // 20 // PAGE * PAGE)
    lost = unreadable(copy)
    assert 0 < len(lost) < CLIENTS
    assert set(rescued(copy, path.parent / "rescued.db")) <= lost
    with pytest.raises(DamagedFile, match=r"personal\.db is damaged.*plures doctor RUN"):
        DiskStore(copy)


def test_a_file_that_is_no_database_is_told_by_name(path):
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(DamagedFile, match=r"personal\.db is damaged"):
        DiskStore(path)
    assert "personal.db is damaged" in check(path).unopened
    assert not check(path).is_whole


def test_another_programs_database_is_refused_and_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE states (id, mine)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(RunFolderError, match=r"personal\.db is no file of client states: another program made it"):
        DiskStore(path)
    assert path.read_bytes() == before


def test_a_file_of_a_later_format_is_refused(copy):
    with sqlite3.connect(copy) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(RunFolderError, match="has format 2; this version of Plures reads format 1"):
        DiskStore(copy)


def damaged_copy(whole: Path, folder: Path, data: st.DataObject, *, only: str | None) -> Path:
    """A few bytes are wrong at some places, in the table or in its lists, or anywhere."""
    copy = folder / "personal.db"
    shutil.copy(whole, copy)
    lists = [root_of(whole, "meta"), root_of(whole, "ids"), *leaves_of(whole, "ids")]
    table = [page for page in range(PAGE, whole.stat().st_size, PAGE) if page not in lists]
    pages = {"lists": st.sampled_from(lists), "table": st.sampled_from(table)}
    page = st.one_of(*pages.values()) if only is None else pages[only]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(page) + data.draw(st.integers(0, PAGE - 50))
        overwrite(copy, place, data.draw(st.binary(min_size=1, max_size=40)))
    return copy


damages = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@given(st.data())
@damages
def test_whatever_is_damaged_a_state_is_right_or_refused(whole, tmp_path_factory, data):
    copy = damaged_copy(whole, tmp_path_factory.mktemp("copy"), data, only=None)
    with suppress(RunFolderError):  # where it cannot even be opened
        unreadable(copy)
    with suppress(RunFolderError), DiskStore(copy, read_only=True) as store:
        assert all(type(client) is int for client in store.clients())


@given(st.data())
@damages
def test_whatever_is_damaged_what_is_rescued_is_right(whole, tmp_path_factory, data):
    only = data.draw(st.sampled_from(["lists", "table"]))
    copy = damaged_copy(whole, tmp_path_factory.mktemp("copy"), data, only=only)
    check(copy)
    lost = rescued(copy, copy.with_name("rescued.db"), as_of=ROUND)
    with DiskStore(copy.with_name("rescued.db")) as store:
        assert all(store.get(client)["v"].equal(right(client)) for client in store.clients())
        assert {*store.clients(), *lost} >= set(range(CLIENTS))


def connection_of(store: DiskStore) -> sqlite3.Connection:
    file: StateFile = store._file
    assert file._connection is not None
    return file._connection


def test_a_full_disk_leaves_the_save_before_and_ends_the_work(copy):
    with DiskStore(copy) as store:
        connection_of(store).execute(f"PRAGMA max_page_count = {copy.stat().st_size // PAGE + 20}")
        store.commit(4, {client: state(client, 4) for client in range(CLIENTS)})
        with pytest.raises(RunFolderError, match=r"Cannot write .*personal\.db: the disk is full"):
            store.save(4)
        for refused in (lambda: store.save(4), lambda: store.commit(5, {}) or store.save(5)):
            with pytest.raises(RunFolderError, match=r"An earlier error has ended the work.*disk is full"):
                refused()
        store.stage(6, {1: state(1, 6)})
        store.discard()
    assert unreadable(copy) == set()


def test_two_writers_do_not_mix(copy):
    with DiskStore(copy, cache_bytes=0) as first, DiskStore(copy, layout=Layout(wait_seconds=0.05)) as second:
        first.commit(4, {1: state(1, 4)})
        second.commit(4, {2: state(2, 4)})
        with pytest.raises(RunFolderError, match=r"personal\.db is in use by another process"):
            second.save(4)
        first.save(4)
    with DiskStore(copy) as store:
        assert store.get(1)["v"].equal(state(1, 4)["v"])
        assert store.get(2)["v"].equal(right(2))


def test_a_folder_that_is_not_there_is_told(tmp_path):
    store = DiskStore(tmp_path / "nowhere" / "personal.db")
    store.commit(1, {1: state(1, 1)})
    with pytest.raises(RunFolderError, match=r"Cannot open .*personal\.db. Is its folder there"):
        store.save(1)


def test_a_row_in_anothers_place_is_noticed(copy):
    with sqlite3.connect(copy) as connection:
        one, other = key(6, 3), key(9, 2)
        query = "UPDATE states SET (checksum, state) = (SELECT checksum, state FROM states WHERE id = ?) WHERE id = ?"
        connection.execute(query, (one, other))
    connection.close()
    assert unreadable(copy) == {9}


def test_an_older_state_does_not_stand_for_one_that_is_lost(copy, path):
    with sqlite3.connect(copy) as connection:
        connection.execute("PRAGMA writable_schema = on")
        connection.execute("UPDATE sqlite_master SET type = 'gone', sql = '' WHERE name = 'ids'")
    connection.close()
    with sqlite3.connect(copy) as connection:
        connection.execute("PRAGMA writable_schema = on")
        connection.execute("DELETE FROM states WHERE id = ?", (key(8, 3),))
        index = "CREATE INDEX ids ON states (id)"
        connection.execute("UPDATE sqlite_master SET type = 'index', sql = ? WHERE name = 'ids'", (index,))
    connection.close()
    assert unreadable(copy) == {8}
    assert rescued(copy, path.parent / "rescued.db") == [8]
