"""Checkpoints that anybody may have changed: what is read is what was written, or an error of ours."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from plures import run_experiment
from plures.core.errors import PluresError, RunFolderError
from plures.recipes.checkpoints import read_manifest, read_server
from plures.recipes.resuming import find_resumable
from plures.report import records
from tests.fuzz.folders import (
    KINDS,
    copy_of,
    experiment,
    know_tiny,
    lines_of,
    manifest_of,
    packed,
    remark,
    sign,
    unpacked,
)
from tests.fuzz.harness import fuzzed, mutated_bytes, mutated_tables, refused

kinds = st.sampled_from(sorted(KINDS))


@pytest.fixture(autouse=True, scope="module")
def _tiny_source():
    know_tiny()


def resume(kind, folder) -> PluresError | None:
    """A run that goes on from files that are not those it wrote."""
    error = refused("checkpoints: runs resumed", lambda: run_experiment(experiment(kind), out=folder, resume=True))
    assert error is None or not (folder / records.RUNNING).exists()
    return error


@pytest.mark.parametrize("kind", KINDS)
def test_the_runs_here_go_on_if_nothing_is_changed(kind):
    with copy_of(kind) as folder:
        path, told = manifest_of(folder)
        assert (told["recorder"]["half"] is not None) == (kind == "half")
        sign(path, told)
        assert find_resumable(folder).round == 3
        assert resume(kind, folder) is None


# Bytes


@given(kind=kinds, change=st.data())
@fuzzed(50)
def test_a_manifest_with_other_bytes_is_the_same_or_refused(kind, change):
    with copy_of(kind) as folder:
        path, _ = manifest_of(folder)
        before = read_manifest(path)
        path.write_bytes(change.draw(mutated_bytes(path.read_bytes())))
        error = refused("checkpoints: manifests with other bytes", lambda: read_manifest(path))
        assert isinstance(error, RunFolderError) or read_manifest(path) == before


@given(kind=kinds, change=st.data())
@fuzzed(30)
def test_tensors_with_other_bytes_are_refused(kind, change):
    with copy_of(kind) as folder:
        path, _ = manifest_of(folder)
        file = path.with_suffix(".safetensors")
        whole = file.read_bytes()
        changed = change.draw(mutated_bytes(whole))
        file.write_bytes(changed)
        error = refused("checkpoints: tensors with other bytes", lambda: read_server(path, read_manifest(path)))
        assert isinstance(error, RunFolderError) or changed == whole


@given(kind=kinds, change=st.data())
@fuzzed(20)
def test_tensors_with_other_bytes_and_the_right_checksum_are_tensors_or_refused(kind, change):
    with copy_of(kind) as folder:
        path, told = manifest_of(folder)
        content = change.draw(mutated_bytes(path.with_suffix(".safetensors").read_bytes()))
        path.with_suffix(".safetensors").write_bytes(content)
        told["tensors"] |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        sign(path, told)
        resume(kind, folder)


# Values


@given(kind=kinds, change=st.data())
@fuzzed(80)
def test_a_manifest_with_other_values_is_one_or_refused(kind, change):
    with copy_of(kind) as folder:
        path, told = manifest_of(folder)
        sign(path, change.draw(mutated_tables(told)))
        refused("checkpoints: manifests with other values", lambda: find_resumable(folder))


@given(kind=kinds, change=st.data())
@fuzzed(20)
def test_a_run_goes_on_from_a_manifest_with_other_values_or_refuses_it(kind, change):
    with copy_of(kind) as folder:
        path, told = manifest_of(folder)
        part = change.draw(st.sampled_from(["recorder", "tensors", "identity", "trackers", "files"]))
        sign(path, told | {part: change.draw(mutated_tables(told[part]))})
        resume(kind, folder)


plausible = st.integers(-2, 9) | st.floats(-2, 2) | st.just([]) | st.just({}) | st.none() | st.booleans() | st.just("x")


@given(change=st.data(), kind=kinds)
@fuzzed(25)
def test_a_run_goes_on_from_what_looks_like_a_record_or_refuses_it(kind, change):
    """Values of the right size, some of the right kind: these come further."""
    with copy_of(kind) as folder:
        path, told = manifest_of(folder)
        sign(path, told | {"recorder": change.draw(mutated_tables(told["recorder"], plausible))})
        resume(kind, folder)


@given(kind=kinds, change=st.data())
@fuzzed(15)
def test_other_tensors_are_refused(kind, change):
    """Of another shape or type, or under other names."""
    with copy_of(kind) as folder:
        path, told = manifest_of(folder)
        tensors = load_file(path.with_suffix(".safetensors"))
        name = change.draw(st.sampled_from(sorted(tensors)))
        other = st.sampled_from([torch.zeros(2), torch.zeros(()), tensors[name].double(), tensors[name].long()])
        if change.draw(st.booleans()):
            tensors[name] = change.draw(other)
        else:
            shared = told["tensors"]["shared"]
            shared[0] = change.draw(st.sampled_from([shared[-1], "other", ""]))
        content = save(tensors)
        path.with_suffix(".safetensors").write_bytes(content)
        told["tensors"] |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        sign(path, told)
        assert isinstance(resume(kind, folder), RunFolderError)


# Records


@given(kind=kinds, change=st.data())
@fuzzed(15)
def test_lines_with_other_values_are_lines_or_refused(kind, change):
    with copy_of(kind) as folder:
        lines = change.draw(mutated_tables(lines_of(folder)[:2]) | mutated_tables(lines_of(folder)[:2], plausible))
        remark(folder, records.ROUNDS, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        resume(kind, folder)


@given(name=st.sampled_from([records.CLIENTS, records.CHOICES, records.VISITS]), change=st.data())
@fuzzed(12)
def test_tables_with_other_bytes_are_tables_or_refused(name, change):
    with copy_of("states") as folder:
        content = change.draw(
            mutated_bytes(unpacked(folder, name)).map(packed) | mutated_bytes((folder / name).read_bytes())
        )
        remark(folder, name, content)
        resume("states", folder)
