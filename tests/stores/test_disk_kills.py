"""A process that is killed while it writes, and processes that are forked from one that does."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from plures.core.errors import RunFolderError
from plures.stores.disk import DiskStore
from plures.stores.state_file import Layout

KILLS, CLIENTS, COHORT, SIZE = 12, 60, 20, 4_000
SMALL = Layout(cache_bytes=64 * 2**10)
"""SQLite writes into the file long before a commit."""
SAVED_EVERY = 3

forked = pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes can be forked here")


def cohort(round: int) -> list[int]:
    return random.Random(round).sample(range(CLIENTS), COHORT)


def expected(round: int) -> dict[int, float]:
    """Each client has the number of the last round it took part in."""
    return {client: float(at) for at in range(1, round + 1) for client in cohort(at)}


def held(store: DiskStore) -> dict[int, float]:
    states = {client: store.get(client)["v"] for client in store.clients()}
    assert all(state.shape == (SIZE,) and state.eq(state[0]).all() for state in states.values())
    return {client: state[0].item() for client, state in states.items()}


def play_round(store: DiskStore) -> None:
    round = store.round + 1
    for client in cohort(round):
        store.stage(round, {client: {"v": torch.full((SIZE,), float(round))}})
    store.commit(round)


def play_for_ever(path: Path, begun: Connection, cache_bytes: int = 5 * 4 * SIZE, layout: Layout = SMALL) -> None:
    """Says after each save that it is done."""
    store = DiskStore(path, cache_bytes=cache_bytes, layout=layout)
    while True:
        play_round(store)
        if store.round % SAVED_EVERY == 0:
            store.save(store.round)
            begun.send(store.round)
            store.forget_before(max(0, store.round - SAVED_EVERY))


def killed_after(saves: int, seconds: float, path: Path) -> int:
    """The last round whose save has returned in a process that is killed some time after some of them."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=play_for_ever, args=(path, theirs))
    process.start()
    theirs.close()
    told = [ours.recv() for _ in range(saves)]
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    while ours.poll():
        try:
            told.append(ours.recv())
        except EOFError:
            break
    return told[-1] if told else 0


@forked
def test_a_killed_process_leaves_the_states_of_one_save(path):
    draws, saved, half_written = random.Random(0), 0, 0
    for _ in range(KILLS):
        saved = max(saved, killed_after(draws.randrange(3), draws.uniform(0.0, 0.1), path))
        half_written += Path(f"{path}-journal").exists()
        with DiskStore(path) as store:
            assert store.round in (saved, saved + SAVED_EVERY)
            assert held(store) == expected(store.round)
            saved = store.round
    assert half_written > 0, "no process was killed while it wrote"


@forked
def test_a_reader_beside_a_writer_sees_whole_rounds_or_is_told_that_they_are_gone(path):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=play_for_ever, args=(path, theirs, 2**30, Layout()))
    process.start()
    theirs.close()
    seen, end = set[int](), time.monotonic() + 1.5
    while len(seen) < 10 and (not seen or time.monotonic() < end):  # once at least, however busy the machine is
        ours.recv()  # there is a save
        try:
            with DiskStore(path, read_only=True) as store:
                assert held(store) == expected(store.round)
                seen.add(store.round)
        except RunFolderError as error:
            if "are gone" not in str(error):
                raise
    process.kill()
    process.join()
    assert seen


def left_half_written(path: Path) -> None:
    """By a process that is killed when SQLite has written into the file."""

    def write_and_wait(begun: Connection) -> None:
        store = DiskStore(path, cache_bytes=0, layout=SMALL)
        for _ in range(SAVED_EVERY):
            play_round(store)
        begun.send(None)
        time.sleep(60)

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=write_and_wait, args=(theirs,))
    process.start()
    theirs.close()
    ours.recv()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert Path(f"{path}-journal").stat().st_size > 0


def saved_at(path: Path, round: int) -> None:
    with DiskStore(path) as store:
        while store.round < round:
            play_round(store)
        store.save(round)


@forked
@pytest.mark.parametrize("read_only", [False, True])
def test_what_was_left_half_written_is_taken_back(path, read_only):
    saved_at(path, 4)
    left_half_written(path)
    with DiskStore(path, read_only=read_only) as store:
        assert (store.round, held(store)) == (4, expected(4))
    assert not Path(f"{path}-journal").exists()


@forked
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become nobody for a while")
def test_a_folder_that_cannot_be_written_is_read_unless_something_is_half_written():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "personal.db"
        saved_at(path, 4)
        folder.chmod(0o555)
        path.chmod(0o444)
        assert as_nobody(path) == expected(4)
        left_half_written(path)
        Path(f"{path}-journal").chmod(0o444)
        with pytest.raises(RunFolderError, match=r"cut off while it wrote .*personal\.db.*Make the folder writable"):
            as_nobody(path)


def as_nobody(path: Path) -> dict[int, float]:
    os.seteuid(65534)
    try:
        with DiskStore(path, read_only=True) as store:
            return held(store)
    finally:
        os.seteuid(0)


@forked
def test_a_store_goes_on_when_a_process_that_was_forked_from_it_is_killed(path):
    with DiskStore(path, cache_bytes=0, layout=SMALL) as store:
        play_round(store)
        store.save(1)
        play_round(store)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        play_round(store)
        child.kill()
        child.join()
        play_round(store)
        store.save(4)
    with DiskStore(path) as store:
        assert held(store) == expected(4)


def refusals(path: Path, store: DiskStore, told: Connection) -> None:
    """What a forked process gets of its parent's store."""
    found = list[str]()
    for use in (lambda: store.get(cohort(1)[0]), lambda: store.commit(9, {0: {"v": torch.zeros(SIZE)}}), store.close):
        try:
            use()
        except RunFolderError as error:
            found.append(str(error))
    told.send(found)


@forked
def test_a_forked_process_cannot_use_its_parents_store_nor_harm_it(path):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with DiskStore(path, cache_bytes=0, layout=SMALL) as store:
        play_round(store)
        child = context.Process(target=refusals, args=(path, store, theirs))
        child.start()
        found = ours.recv()
        child.join()
        assert [f"{path} was opened by another process" in one for one in found] == [True, True]
        play_round(store)
        store.save(2)
    with DiskStore(path) as store:
        assert held(store) == expected(2)


ORDERLY_END = """
    import gc, os, sys, torch
    from pathlib import Path
    from plures.stores.disk import DiskStore
    from plures.stores.state_file import Layout

    store = DiskStore(Path(sys.argv[1]), cache_bytes=0, layout=Layout(cache_bytes=64 * 2**10))
    store.commit(1, {client: {"v": torch.full((4000,), 1.0)} for client in range(30)})
    child = os.fork()
    if child == 0:
        del store
        gc.collect()
        sys.exit()  # with all that Python does at its end
    os.waitpid(child, 0)
    store.save(1)
    store.close()
"""


@forked
def test_a_forked_process_that_ends_in_order_takes_nothing_back(path):
    subprocess.run([sys.executable, "-c", textwrap.dedent(ORDERLY_END), str(path)], check=True)
    with DiskStore(path) as store:
        assert held(store) == dict.fromkeys(range(30), 1.0)
