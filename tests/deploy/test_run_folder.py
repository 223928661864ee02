"""The folder of a deployed run is one like any other, but that models of clients are not in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

import plures
from plures.core.errors import RunFolderError
from plures.recipes.doctor import examine_run
from plures.report import records
from tests.deploy.helpers import Deployment, small


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deployment")
    Deployment.of(small("fedper", cohort="all"), path).serve()
    return path / "out" / "run"


def test_what_clients_keep_is_not_in_it(run: Path) -> None:
    told = load_file(run / records.PERSONAL)
    assert set(told) == {f"{client}/plures.counted" for client in range(3)}
    with pytest.raises(RunFolderError, match="is of a deployment"):
        plures.load_run(run)


def test_labels_are_not_in_it(run: Path) -> None:
    assert not (run / records.FEDERATION).exists()


def test_the_doctor_finds_nothing_wrong(run: Path) -> None:
    assert {finding.state for finding in examine_run(run).findings} == {"fine"}
